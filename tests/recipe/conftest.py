"""What the recipe tests share: recipes in a folder, schemas of a few transforms, problems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.tree import InvalidRecipeError, SourceText, dotted

Write = Callable[..., Path]

_TEXTS = {"type": "array", "items": {"type": "string"}, "default": []}
_SCHEMAS: dict[str, dict[str, object]] = {
    "strip_unused_nodes": {
        "type": {"type": "string", "default": "float"},
        "shape": {"type": "string", "default": ""},
        "name": _TEXTS,
        "type_for_name": _TEXTS,
        "shape_for_name": _TEXTS,
    },
    "remove_nodes": {"op": _TEXTS, "max_inputs": {"type": "integer", "default": 1}},
    "fold_batch_norms": {},
    "fold_constants": {"clear_output_shapes": {"type": "boolean", "default": True}},
    "round_weights": {"num_steps": {"type": "integer", "minimum": 1, "default": 256}},
    "quantize_nodes": {"input_min": {"type": "number"}, "input_max": {"type": "number"}},
}


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> TransformSchemas:
    """Schemas of five transforms, as the original tool has them."""
    folder = tmp_path_factory.mktemp("transforms")
    for name, properties in _SCHEMAS.items():
        schema: dict[str, object] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
        if name == "remove_nodes":
            schema["required"] = ["op"]
        (folder / f"{name}.json").write_text(json.dumps(schema))
    return TransformSchemas(folder)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a recipe into a fresh working folder; by default ``recipe.yaml``."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes, name: str = "recipe.yaml") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write: Write, schemas: TransformSchemas) -> Callable[..., Recipe]:
    """Loads a recipe given as text, with no environment but what is passed."""

    def load(text: str | bytes, **options: object) -> Recipe:
        return load_recipe(write(text), schemas=schemas, **{"environ": {}, **options})  # type: ignore[arg-type]

    return load


@pytest.fixture
def problems(load: Callable[..., Recipe]) -> Callable[..., list[str]]:
    """All problems of a recipe given as text: ``line:column keys: message; hint``."""

    def problems(text: str | bytes, **options: object) -> list[str]:
        with pytest.raises(InvalidRecipeError) as caught:
            load(text, **options)
        assert caught.value.exit_code == 3
        found = []
        for problem in caught.value.problems:
            place = problem.place
            hint = f"; {problem.hint}" if problem.hint else ""
            keys = f" {dotted(place.keys)}" if place.keys else ""
            found.append(f"{place.line}:{place.column}{keys}: {problem.message}{hint}")
        return found

    return problems


@pytest.fixture
def source() -> Callable[[str], SourceText]:
    """A recipe file's text that lies nowhere."""
    return lambda text: SourceText("recipe.yaml", Path(), text)

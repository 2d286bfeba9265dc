"""Fixtures of the recipe tests: recipe files, schemas of a few transforms, and problems."""

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

_STRINGS = {"type": "array", "items": {"type": "string"}, "default": []}
_SCHEMAS: dict[str, dict[str, object]] = {
    "strip_unused_nodes": {
        "type": {"type": "string", "default": "float"},
        "shape": {"type": "string", "default": ""},
        "name": _STRINGS,
        "type_for_name": _STRINGS,
        "shape_for_name": _STRINGS,
    },
    "remove_nodes": {"op": _STRINGS, "max_inputs": {"type": "integer", "default": 1}},
    "fold_batch_norms": {},
    "fold_constants": {"clear_output_shapes": {"type": "boolean", "default": True}},
    "round_weights": {"num_steps": {"type": "integer", "minimum": 1, "default": 256}},
    "quantize_nodes": {"input_min": {"type": "number"}, "input_max": {"type": "number"}},
}


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> TransformSchemas:
    """Return the schemas of a few transforms of the original tool."""
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
    """Write a recipe, ``recipe.yaml`` by default, to a new working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes, name: str = "recipe.yaml") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write: Write, schemas: TransformSchemas) -> Callable[..., Recipe]:
    """Load a recipe from text, with an empty environment by default."""

    def load(text: str | bytes, **options: object) -> Recipe:
        return load_recipe(write(text), schemas=schemas, **{"environ": {}, **options})  # type: ignore[arg-type]

    return load


@pytest.fixture
def problems(load: Callable[..., Recipe]) -> Callable[..., list[str]]:
    """Return the problems of a recipe as ``line:column keys: message; hint``."""

    def problems(text: str | bytes, **options: object) -> list[str]:
        with pytest.raises(InvalidRecipeError) as caught:
            load(text, **options)
        assert caught.value.exit_code == 3
        lines = []
        for problem in caught.value.problems:
            place = problem.place
            hint = f"; {problem.hint}" if problem.hint else ""
            keys = f" {dotted(place.keys)}" if place.keys else ""
            lines.append(f"{place.line}:{place.column}{keys}: {problem.message}{hint}")
        return lines

    return problems


@pytest.fixture
def source() -> Callable[[str], SourceText]:
    """Return recipe text that is not in a file."""
    return lambda text: SourceText("recipe.yaml", Path(), text)

"""Fixtures of the recipe tests: recipe files and problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.tree import InvalidRecipeError, SourceText, dotted

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def schemas() -> TransformSchemas:
    return TransformSchemas()


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
def load(write: Write) -> Callable[..., Recipe]:
    """Load a recipe from text, with an empty environment by default."""

    def load(text: str | bytes, **options: object) -> Recipe:
        return load_recipe(write(text), **{"environ": {}, **options})  # type: ignore[arg-type]

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

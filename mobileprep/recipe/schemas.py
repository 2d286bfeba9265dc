"""The JSON Schemas of the recipe and of each transform, found by file name."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

SCHEMA_FOLDER = Path(__file__).resolve().parent.parent / "schemas"

IGNORE_ERRORS: Schema = {
    "description": "Leave the graph as it was when the transform fails.",
    "type": "boolean",
    "default": False,
}


@lru_cache(maxsize=1)
def recipe_schema() -> Schema:
    """The schema of a whole recipe."""
    return _read(SCHEMA_FOLDER / "recipe.schema.json")


class TransformSchemas:
    """The schemas of a folder, ``<transform>.json`` each, read when they are asked for.

    Args:
        folder: by default the one of this package.
    """

    def __init__(self, folder: Path = SCHEMA_FOLDER / "transforms") -> None:
        self._folder = folder
        self.names = tuple(sorted(path.stem for path in folder.glob("*.json")))
        self._read: dict[str, Schema] = {}

    def get(self, name: str) -> Schema | None:
        """The schema of a transform's parameters, or None where there is no such transform."""
        if name not in self.names:
            return None
        if name not in self._read:
            self._read[name] = _with_ignore_errors(_read(self._folder / f"{name}.json"))
        return self._read[name]


def _with_ignore_errors(schema: Schema) -> Schema:
    """A transform's schema with the parameter that every transform takes."""
    return {
        **schema,
        "properties": {**schema.get("properties", {}), "ignore_errors": IGNORE_ERRORS},
    }


def _read(path: Path) -> Schema:
    schema: Schema = json.loads(path.read_text(encoding="utf-8"))
    return schema

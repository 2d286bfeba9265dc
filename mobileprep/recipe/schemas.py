"""The JSON Schemas of the recipe and of each transform, found by file name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from mobileprep.recipe.model import Plugin
from mobileprep.recipe.plugins import check_parameters_schema, installed_plugins, no_schema

Schema: TypeAlias = dict[str, Any]

SCHEMA_FOLDER = Path(__file__).resolve().parent.parent / "schemas"
# For editors: made by ``recipe.documents.editor_schema`` from what is read here.
EDITOR_SCHEMA = SCHEMA_FOLDER / "recipe.schema.json"
# Of what verbs print with --json, by name.
OUTPUT_SCHEMAS = SCHEMA_FOLDER / "outputs"

IGNORE_ERRORS: Schema = {
    "description": "Leave the graph as it was when the transform fails.",
    "type": "boolean",
    "default": False,
}


@lru_cache(maxsize=1)
def recipe_schema() -> Schema:
    """The schema of a whole recipe."""
    return _read(SCHEMA_FOLDER / "recipe.json")


def modeline(recipe: Path) -> str:
    """The first line of a recipe, by which editors find its schema; the same on every machine.

    It names a ``recipe.schema.json`` in the recipe's directory or above, up to the root of the
    repository, or the schema of a mobileprep checkout that is part of the repository. Without
    either it names ``recipe.schema.json`` next to the recipe, which ``mobileprep schema`` prints.
    """
    folder = Path(os.path.realpath(recipe)).parent  # resolve() raises where links lead in a circle
    above = [folder, *folder.parents]
    top = next((i for i, path in enumerate(above) if (path / ".git").exists()), 0)
    copies = [path / EDITOR_SCHEMA.name for path in above[: top + 1]]
    copies += [EDITOR_SCHEMA] if _is_checked_in(EDITOR_SCHEMA, above[top]) else []
    schema = next((copy for copy in copies if copy.is_file()), folder / EDITOR_SCHEMA.name)
    relative = Path(os.path.relpath(schema, folder)).as_posix()
    if not relative.isprintable() or " " in relative:
        relative = EDITOR_SCHEMA.name
    return f"# yaml-language-server: $schema={relative}"


def _is_checked_in(path: Path, repository: Path) -> bool:
    """Whether a file may be part of a repository, unlike one of an installed package."""
    inner = path.relative_to(repository).parts if repository in path.parents else ()
    return bool(inner) and not any(p == "site-packages" or p.startswith(".") for p in inner)


class TransformSchemas:
    """The schemas of a folder, ``<transform>.json`` each, read when they are asked for.

    Args:
        folder: by default the one of this package.
        plugins: transforms from outside the package.
    """

    def __init__(
        self, folder: Path = SCHEMA_FOLDER / "transforms", plugins: Iterable[Plugin] = ()
    ) -> None:
        self._paths = {path.stem: path for path in folder.glob("*.json")}
        self._plugins = {p.name: p for p in plugins if p.name not in self._paths}
        self._paths |= {p.name: p.schema.path for p in self._plugins.values()}
        self.names = tuple(sorted(self._paths))
        self._read: dict[str, Schema] = {}

    def plugin(self, name: str) -> Plugin | None:
        """Where a transform comes from, or None for one of the package's."""
        return self._plugins.get(name)

    def get(self, name: str) -> Schema | None:
        """The schema of a transform's parameters, or None where there is no such transform."""
        if name not in self._paths and not self._install(name):
            return None
        if name not in self._read:
            schema = _read(self._paths[name])
            if name in self._plugins:
                check_parameters_schema(schema, str(self._paths[name]))
            self._read[name] = _with_ignore_errors(schema)
        return self._read[name]

    def _install(self, name: str) -> bool:
        """Whether an installed package offers the transform; it is known from then on."""
        plugin = installed_plugins().get(name)
        if plugin is None:
            return False
        self._plugins[name] = plugin
        self._paths[name] = plugin.schema.path
        return True


def name_faults(plugins: Iterable[Plugin]) -> Iterator[tuple[Plugin, str, str]]:
    """Each plugin that another transform's name keeps from running: it, what is wrong, the mend."""
    own = {path.stem for path in (SCHEMA_FOLDER / "transforms").glob("*.json")}
    first: dict[str, Plugin] = {}
    for plugin in plugins:
        other = first.setdefault(plugin.name, plugin)
        if plugin.name in own:
            message = f"mobileprep has a transform {plugin.name!r} of its own, which would run"
            yield plugin, message, "give the file another name"
        elif other.file.path != plugin.file.path:
            message = f"{other.file.name!r} is the transform {plugin.name!r} already"
            yield plugin, message, "give one of them another name"


def _with_ignore_errors(schema: Schema) -> Schema:
    """A transform's schema with the parameter that every transform takes."""
    return {
        **schema,
        "properties": {**schema.get("properties", {}), "ignore_errors": IGNORE_ERRORS},
    }


def _read(path: Path) -> Schema:
    try:
        schema: Schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise no_schema(str(error), str(path)) from error
    return schema

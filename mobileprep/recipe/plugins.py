"""Transforms from outside the package: files that a recipe names, and installed packages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from mobileprep.errors import CorruptFileError
from mobileprep.recipe.model import Plugin
from mobileprep.recipe.settings import InputFile

ENTRY_POINTS = "mobileprep.transforms"


def named_plugin(file: InputFile) -> Plugin:
    """Return the plugin in a Python file; the file name is the name of the transform."""
    path = file.path.parent / f"{file.path.stem}.json"
    name = Path(file.name).parent / path.name
    return Plugin(file.path.stem, file, InputFile(name.as_posix(), path, file.place))


@lru_cache(maxsize=1)
def installed_plugins() -> dict[str, Plugin]:
    """Return the transforms that installed packages provide as entry points, by name.

    An entry point names a module (``my_transform = my_package.my_transform``), whose schema is next
    to it. No code of the package runs.
    """
    import importlib.metadata  # Slow to import, and most recipes do not need it.

    plugins = {}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        path = _module_file(entry.value)
        if path is None:
            continue
        file = InputFile(f"{entry.value.replace('.', '/')}.py", path, f"entry point {entry.name}")
        plugin = named_plugin(file)
        plugins[entry.name] = Plugin(entry.name, plugin.file, plugin.schema)
    return plugins


def _module_file(module: str) -> Path | None:
    """Return the file of a module; unlike ``find_spec``, do not import its parent packages."""
    import importlib.util
    from importlib.machinery import PathFinder

    head, *below = module.split(".")
    spec = importlib.util.find_spec(head) if head else None
    for count in range(len(below)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = ".".join([head, *below[: count + 1]])
        spec = PathFinder.find_spec(name, spec.submodule_search_locations)
    return None if spec is None or spec.origin is None else Path(spec.origin)


_HINT = 'start with {"type": "object", "additionalProperties": false, "properties": {}}'
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def no_schema(reason: str, where: str) -> CorruptFileError:
    """Return the error for a file that is not a schema of transform parameters."""
    message = f"is not a readable JSON Schema of a transform's parameters: {reason}"
    return CorruptFileError(message, _HINT, where)


def check_parameters_schema(schema: Any, where: str) -> None:  # noqa: ANN401 - whatever JSON holds
    """Check that a schema describes parameters by name and has no external references."""
    if not isinstance(schema, dict):
        msg = "it is not a mapping"
        raise no_schema(msg, where)
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        msg = "its 'properties' are not a mapping"
        raise no_schema(msg, where)
    for name, described in properties.items():
        if not _describes(described):
            msg = f"its parameter {name!r} is not described by a mapping"
            raise no_schema(msg, where)
    for reference in _references(schema):
        if not reference.startswith("#"):
            message = f"refers to {reference!r}, and nothing is fetched for it"
            hint = "move the referenced schema into the file, under '$defs'"
            raise CorruptFileError(message, hint, where)


def _describes(described: object) -> bool:
    """Return whether the schema of a parameter has the form that reading recipes relies on."""
    if not isinstance(described, dict):
        return False
    kind, items = described.get("type", ""), described.get("items", {})
    return isinstance(kind, str | list) and isinstance(items, dict)


def _references(schema: object) -> Iterator[str]:
    """Yield all references in a schema."""
    waiting = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            waiting += item.values()
            yield from (v for k in _REFERENCES if isinstance(v := item.get(k), str))

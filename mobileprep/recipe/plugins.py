"""Transforms from outside the package: files that a recipe names, and installed packages'."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from mobileprep.recipe.model import Plugin
from mobileprep.recipe.settings import InputFile

ENTRY_POINTS = "mobileprep.transforms"


def named_plugin(file: InputFile) -> Plugin:
    """The plugin of a Python file; its transform is named as the file is."""
    path = file.path.parent / f"{file.path.stem}.json"
    name = Path(file.name).parent / path.name
    return Plugin(file.path.stem, file, InputFile(name.as_posix(), path, file.place))


@lru_cache(maxsize=1)
def installed_plugins() -> dict[str, Plugin]:
    """The transforms that installed packages offer as entry points, by name.

    An entry point names a module (``my_transform = my_package.my_transform``), whose schema lies
    beside it. Nothing of the package is run.
    """
    import importlib.metadata  # slow, and most recipes name no transform that needs it

    found = {}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        path = _module_file(entry.value)
        if path is None:
            continue
        file = InputFile(f"{entry.value.replace('.', '/')}.py", path, f"entry point {entry.name}")
        plugin = named_plugin(file)
        found[entry.name] = Plugin(entry.name, plugin.file, plugin.schema)
    return found


def _module_file(module: str) -> Path | None:
    """The file of a module; unlike ``find_spec``, this imports none of the packages it is in."""
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

"""Transforms from outside the package: files that a recipe names, and installed packages'."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from mobileprep.recipe.model import InputFile, Plugin

ENTRY_POINTS = "mobileprep.transforms"


def named_plugin(file: InputFile) -> Plugin:
    """The plugin of a Python file; its transform is named as the file is."""
    name, path = Path(file.name).with_suffix(".json"), file.path.with_suffix(".json")
    return Plugin(file.path.stem, file, InputFile(name.as_posix(), path, file.place))


@lru_cache(maxsize=1)
def installed_plugins() -> dict[str, Plugin]:
    """The transforms that installed packages offer as entry points, by name.

    An entry point names a module (``my_transform = my_package.my_transform``), whose schema lies
    beside it. Nothing of the package is run.
    """
    # Both are slow to import, and most recipes name no transform that needs them.
    import importlib.metadata
    import importlib.util

    found = {}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        spec = importlib.util.find_spec(entry.value)
        if spec is None or spec.origin is None:
            continue
        path = Path(spec.origin)
        file = InputFile(f"{entry.value.replace('.', '/')}.py", path, f"entry point {entry.name}")
        plugin = named_plugin(file)
        found[entry.name] = Plugin(entry.name, plugin.file, plugin.schema)
    return found

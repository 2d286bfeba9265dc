"""Check that the files of a recipe exist, and report all missing ones at once."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from mobileprep.core.paths import directory_error, file_error
from mobileprep.errors import CorruptFileError, MobileprepError, nearest_hint
from mobileprep.recipe.files import what_is_there
from mobileprep.recipe.model import Recipe, Target
from mobileprep.recipe.pipeline_settings import PassRate
from mobileprep.recipe.settings import EVERY_SHARD, Data, InputFile, Source


def check_files(recipe: Recipe) -> None:
    """Check that every file that the targets of a recipe read exists."""
    missing: dict[tuple[str, str], str] = {}
    # Plugins include unused ones, because a chain may misspell their names.
    plugins = [plugin.file for plugin in recipe.plugins]
    for file, message in chain(_missing_files(plugins), *map(_missing, recipe.targets)):
        missing[file.place, file.name] = f"{file.place}: {message}{_nearest(file)}"
    for target in recipe.targets:
        error = source_kind_error(target.source)
        if error is not None:
            file = target.source.file
            missing[file.place, file.name] = f"{error}; {error.hint}"
            if len(missing) == 1:
                raise error
    if missing:
        lines = [missing[key] for key in sorted(missing, key=_by_line)]
        hint = "paths start at the folder of the recipe that names them"
        raise CorruptFileError("\n".join(lines), hint)


def source_kind_error(source: Source) -> MobileprepError | None:
    """Return the error for a SavedModel that is a file, or another model that is a directory."""
    path, name = source.file.path, source.file.name
    where = source.file.place or str(path)
    # Unlike Path, os.path does not raise for names that are too long.
    if source.kind == "saved_model" and os.path.isfile(path):  # noqa: PTH113
        return file_error(path, where, name)
    if source.kind != "saved_model" and os.path.isdir(path):  # noqa: PTH112
        return directory_error(path, where, name)
    return None


def _missing_files(files: Iterable[InputFile]) -> Iterator[tuple[InputFile, str]]:
    for file in files:
        if not os.path.isfile(file.path):  # noqa: PTH113
            yield file, f"no such file: {file.name!r}"


def _missing(target: Target) -> Iterator[tuple[InputFile, str]]:
    source = target.source
    # Path methods raise for names that are too long; os.path functions do not.
    if source.kind == "saved_model" and not os.path.exists(source.file.path):  # noqa: PTH110
        yield source.file, f"no such directory: {source.file.name!r}"
    checkpoints = [f.file for step in target.transforms for f in step.files if f.kind != "path"]
    for file in (source.checkpoint, *checkpoints):
        if file is not None and not _is_checkpoint(file):
            yield file, f"no such checkpoint: {file.name!r}"
    for data in _data(target):
        for file in (data.file, *data.beside):
            if not os.path.exists(file.path):  # noqa: PTH110
                yield file, f"no such {_what(data, file)}: {file.name!r}"
    if source.assets is not None and not os.path.exists(source.assets.path):  # noqa: PTH110
        yield source.assets, f"no such file or directory: {source.assets.name!r}"
    yield from _missing_files(_files(target))


def _files(target: Target) -> Iterator[InputFile]:
    source = target.source
    if source.kind != "saved_model" and source_kind_error(source) is None:
        yield source.file
    if source.saver is not None:
        yield source.saver
    yield from (pin.file for pin in source.pins)
    for step in target.transforms:
        yield from (file.file for file in step.files if file.kind == "path")
        if step.plugin is not None:
            yield step.plugin.file
    for op in target.ops:
        yield from op.sources
    for validation in target.validations:
        yield from validation.functions
    calibration = target.calibration
    # Samples replace a range file.
    if calibration is not None and calibration.data is None and calibration.range_file is not None:
        yield calibration.range_file


def _data(target: Target) -> Iterator[Data]:
    calibration = target.calibration
    if calibration is not None and calibration.data is not None:
        ranges = calibration.range_file
        # A range file replaces the samples.
        if ranges is None or not os.path.isfile(ranges.path):  # noqa: PTH113
            yield calibration.data
    yield from (validation.data for validation in target.validations)
    if target.check is not None and target.check.data is not None:
        yield target.check.data
    steps = () if target.pipeline is None else target.pipeline.steps
    yield from (s.pass_rate.data for s in steps if isinstance(s.pass_rate, PassRate))


def _what(data: Data, file: InputFile) -> str:
    return "folder" if file is data.file and data.kind in ("pictures", "wav") else "file"


def _is_checkpoint(file: InputFile) -> bool:
    """Return whether a path is a directory, a file, or a prefix; ``?????`` matches every shard."""
    if os.path.exists(file.path):  # noqa: PTH110
        return True
    prefix, every, count = file.path.name.rpartition(EVERY_SHARD)
    if every:
        shards = re.compile(rf"{re.escape(prefix)}-\d{{5}}-of-{re.escape(count)}\Z")
    else:
        shards = re.compile(rf"{re.escape(count)}(\.|-\d{{5}}-of-\d{{5}}\Z)")
    return any(shards.match(name) for name in _beside(file))


def _nearest(file: InputFile) -> str:
    kind = what_is_there(file.path)
    if kind:
        return f": it is {kind}"
    names = _beside(file)
    if not names and not os.path.isdir(file.path.parent):  # noqa: PTH112
        return ": its folder does not exist"
    hint = nearest_hint(file.path.name, names)
    return f"; {hint}" if hint else ""


def _beside(file: InputFile) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(file.path.parent))  # noqa: PTH208 - names are all that is asked
    return []


def _by_line(key: tuple[str, str]) -> tuple[str, int, int, str]:
    name, line, column = key[0].rsplit(":", 2)
    return name, int(line), int(column), key[1]

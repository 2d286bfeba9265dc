"""The ``data`` of a recipe's sections: a path, or a mapping with a path and reading options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from mobileprep.data.options import (
    DATA_KINDS,
    FOLDERS,
    KINDS_OF_KEYS,
    LABEL_FILES,
    DataKind,
    FeatureReading,
    Reading,
)
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.recipe.files import input_file, read_source
from mobileprep.recipe.schemas import SCHEMA_FOLDER, Schema
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import Data, InputFile
from mobileprep.recipe.tree import (
    InvalidRecipeError,
    MappingNode,
    Node,
    Plain,
    Problem,
    Scalar,
    Sequence,
    plain,
    recipe_error,
)
from mobileprep.recipe.validate import schema_problems
from mobileprep.recipe.yaml_tree import parse_yaml
from mobileprep.targets.targets import DEVICE_FILES, Device, find_device

DATA_SECTIONS: Final = ("calibration", "check", "validation")
"""Sections with a ``data`` key."""


def resolve_data(node: Node) -> Data:
    """Return the data that a valid ``data`` value describes."""
    if not isinstance(node, MappingNode):
        return Data(_file(node))
    kind = next(kind for kind in DATA_KINDS if kind in node.entries)
    labels, classes = node.get("labels"), node.get("classes")
    files = node.get("files")
    return Data(
        _file(node.entries[kind].value),
        kind,
        _reading(node),
        _file(labels) if labels is not None and _is_file(kind, plain(labels)) else None,
        _file(classes) if classes is not None else None,
        tuple(map(_file, files.items)) if isinstance(files, Sequence) else (),
    )


def data_problems(target: TargetSections) -> Iterator[Problem]:
    """Report problems of the ``data`` sections of a target whose values have valid types."""
    for name in DATA_SECTIONS:
        section = target.mapping(name)
        entry = None if section is None else section.entries.get("data")
        if entry is not None and isinstance(entry.value, MappingNode):
            yield from _problems(entry.value)


def _problems(data: MappingNode) -> Iterator[Problem]:
    kinds = [kind for kind in DATA_KINDS if kind in data.entries]
    if not kinds:
        # An unknown key may be a misspelled kind, which the schema reports.
        if set(data.entries) <= set(KINDS_OF_KEYS):
            hint = f"add one of {', '.join(DATA_KINDS)}"
            yield Problem(data.place, "the data names no file or folder", hint)
        return
    for kind in kinds[1:]:
        message = f"data has one kind: {kinds[0]!r} is already set"
        yield Problem(data.entries[kind].key_place, message, "keep one of them")
    for key, entry in data.items():
        goes_with = KINDS_OF_KEYS.get(key, ())
        if goes_with and not set(goes_with) & set(kinds):
            message = f"{key!r} applies only to {' or '.join(map(repr, goes_with))}"
            yield Problem(entry.key_place, message, "remove it")
    if kinds[0] == "tfrecord" and "features" not in data.entries:
        place = data.entries["tfrecord"].key_place
        hint = "add 'features: {INPUT: {key: FEATURE}}'"
        yield Problem(place, "TFRecords need the features that are fed", hint)
    deviation = data.get("std")
    if deviation is not None and 0 in _numbers(plain(deviation)):
        yield Problem(deviation.place, "values cannot be divided by 0", "leave 'std' out, or use 1")


def _is_file(kind: DataKind, labels: Plain) -> bool:
    return kind in LABEL_FILES and labels != FOLDERS


def _reading(node: MappingNode) -> Reading:
    given: dict[str, Any] = plain(node)
    given = {key: value for key, value in given.items() if key not in _NAMED}
    for key in ("mean", "std"):
        if key in given:
            given[key] = tuple(map(float, _numbers(given[key])))
    if "resize" in given:
        given["resize"] = tuple(map(int, given["resize"]))
    for key in ("desired_channels", "desired_samples"):
        if key in given:
            given[key] = int(given[key])
    if "inputs" in given:
        given["inputs"] = tuple((n, _texts(columns)) for n, columns in given["inputs"].items())
    if "features" in given:
        given["features"] = tuple((n, _feature(f)) for n, f in given["features"].items())
    return Reading(**given)


def _numbers(value: Plain) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _texts(value: Plain) -> tuple[str, ...]:
    return tuple(map(str, _numbers(value)))


def _feature(value: Plain) -> FeatureReading:
    if isinstance(value, str):
        return FeatureReading(value)
    given = dict(value)
    if "shape" in given:
        given["shape"] = tuple(map(int, given["shape"]))
    return FeatureReading(**given)


def _file(node: Node) -> InputFile:
    return input_file(cast(Scalar, node))


_NAMED: Final = frozenset({*DATA_KINDS, "classes", "files"})


DEVICE_SCHEMA: Final = SCHEMA_FOLDER / "device.json"


def device_named(name: str, path: Path | None = None) -> Device:
    """Return the device with this name, or read its profile if the name is a file name."""
    if not is_device_file(name):
        return find_device(name)
    tree = parse_yaml(read_source(path or Path(name)))
    problems = schema_problems(tree, _device_schema())
    if problems:
        raise recipe_error(problems)
    given = plain(tree)
    return Device(Path(name).stem, **{**given, "gflops": float(given["gflops"])})


def is_device_file(name: str) -> bool:
    """Return whether a string is the file name of a profile, not the name of a device."""
    return name.lower().endswith(DEVICE_FILES)


def resolve_device(sections: TargetSections) -> tuple[Device | None, InputFile | None]:
    """Return the device of a valid target, and its profile if it is a file."""
    named = sections.get("device")
    if not isinstance(named, Scalar):
        return None, None
    name = str(named.value)
    file = input_file(named) if is_device_file(name) else None
    return device_named(name, None if file is None else file.path), file


def device_problems(target: TargetSections) -> Iterator[Problem]:
    """Yield a problem for an unknown device, or a file that is not a profile."""
    named = target.get("device")
    if not isinstance(named, Scalar) or not isinstance(named.value, str) or "\0" in named.value:
        return
    try:
        device_named(named.value, input_file(named).path)
    except InvalidRecipeError as error:
        yield from error.problems
    except UsageError as error:
        hint = f"{error.hint}; or name a file of your own, such as devices/ours.yaml"
        yield Problem(named.place, error.message, hint)
    except CorruptFileError as error:
        yield Problem(named.place, f"{error.where} {error.message}", error.hint)


@lru_cache(maxsize=1)
def _device_schema() -> Schema:
    schema: Schema = json.loads(DEVICE_SCHEMA.read_text(encoding="utf-8"))
    return schema

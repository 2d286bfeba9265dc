"""Samples and devices that a recipe names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import convert

from mobileprep.data.options import DATA_KINDS, KINDS_OF_KEYS
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.recipe.decode import validation_nodes
from mobileprep.recipe.files import input_file, read_source
from mobileprep.recipe.model import Target
from mobileprep.recipe.schemas import SCHEMA_FOLDER, Schema
from mobileprep.recipe.settings import InputFile
from mobileprep.recipe.tree import (
    InvalidRecipeError,
    MappingNode,
    Problem,
    Scalar,
    Sequence,
    find,
    place_of,
    plain,
    recipe_error,
)
from mobileprep.recipe.validate import schema_problems
from mobileprep.recipe.yaml_tree import parse_yaml
from mobileprep.targets.measurements import Measurement, read_measurement_file
from mobileprep.targets.targets import DEVICE_FILES, Device, find_device


def data_problems(_target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report keys of a target's samples that do not fit together."""
    validations = (keys for keys, _ in validation_nodes(tree))
    for keys in (("calibration",), ("check",), *validations):
        data = find(tree, (*keys, "data"))
        if isinstance(data, MappingNode):
            yield from samples_problems(data)


def samples_problems(data: MappingNode) -> Iterator[Problem]:
    """Report keys of samples that do not fit together."""
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
    divisor = data.get("std")
    divisors = divisor.items if isinstance(divisor, Sequence) else (divisor,)
    if divisor is not None and any(isinstance(d, Scalar) and d.value == 0 for d in divisors):
        yield Problem(divisor.place, "values cannot be divided by 0", "leave 'std' out, or use 1")


DEVICE_SCHEMA: Final = SCHEMA_FOLDER / "device.json"


def device_named(name: str, path: Path | None = None) -> Device:
    """Return the device with this name, or read its profile if the name is a file name."""
    if not _is_device_file(name):
        return find_device(name)
    tree = parse_yaml(read_source(path or Path(name)))
    problems = schema_problems(tree, _device_schema())
    if problems:
        raise recipe_error(problems)
    profile = plain(tree)
    rates = [{"kind": kind, **rate} for kind, rate in profile.pop("rates", {}).items()]
    return convert({"name": Path(name).stem, "rates": rates, **profile}, Device)


def _is_device_file(name: str) -> bool:
    """Return whether a string is the file name of a profile, not the name of a device."""
    return name.lower().endswith(DEVICE_FILES)


def read_device(tree: MappingNode) -> dict[str, Device | InputFile]:
    """Return the fields of a target for its device, and for its profile if that is a file.

    Raises:
        MobileprepError: if the device is unknown, or its file is not a profile.
    """
    named = tree.get("device")
    if not isinstance(named, Scalar) or not isinstance(named.value, str) or "\0" in named.value:
        return {}
    file = input_file(named.value, named.place)
    device = device_named(file.name, file.path)
    profile = {"device_file": file} if _is_device_file(file.name) else {}
    return {"device": device, **profile}


def read_measurement(tree: MappingNode) -> dict[str, Measurement | InputFile]:
    """Return the fields of a target for its measurement, and for its file.

    Raises:
        CorruptFileError: the file does not exist, or is not a measurement.
    """
    named = tree.get("measurement")
    if not isinstance(named, Scalar) or not isinstance(named.value, str) or "\0" in named.value:
        return {}
    file = input_file(named.value, named.place)
    return {"measurement": read_measurement_file(file.path), "measurement_file": file}


def measurement_problems(_target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Yield a problem if the file of a measurement cannot be read."""
    try:
        read_measurement(tree)
    except CorruptFileError as error:
        place = place_of(tree, ("measurement",))
        yield Problem(place, f"{error.where} {error.message}", error.hint)


def device_problems(_target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Yield a problem for an unknown device, or a file that is not a profile."""
    place = place_of(tree, ("device",))
    try:
        read_device(tree)
    except InvalidRecipeError as error:
        yield from error.problems
    except UsageError as error:
        hint = f"{error.hint}; or name a file of your own, such as devices/ours.yaml"
        yield Problem(place, error.message, hint)
    except CorruptFileError as error:
        yield Problem(place, f"{error.where} {error.message}", error.hint)


@lru_cache(maxsize=1)
def _device_schema() -> Schema:
    schema: Schema = json.loads(DEVICE_SCHEMA.read_text(encoding="utf-8"))
    return schema

"""Records made again from the JSON that holds them."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mobileprep.building.plan.spec import Upstream
from mobileprep.core.files import NONSENSE
from mobileprep.errors import CorruptFileError

RecordType = TypeVar("RecordType")


class CacheEntryError(CorruptFileError):
    """A cached output that is missing, damaged, or not an output of its stage."""

    tasks: tuple[str, ...] = ()
    """The stages whose cache entries have to go."""


def cache_entry_error(problem: str, *upstream: Upstream) -> CacheEntryError:
    """The error for cached outputs of which a reader finds that they have a problem."""
    hint = "build again: the stage that makes it runs again"
    first = upstream[0]
    error = CacheEntryError(f"the stored {first.output} {problem}", hint, first.task)
    error.tasks = tuple(up.task for up in upstream)
    return error


def misfit(*upstream: Upstream) -> CacheEntryError:
    """The error for outputs that make no sense."""
    return cache_entry_error("makes no sense", *upstream)


def read_record(kind: type[RecordType], data: bytes, upstream: Upstream) -> RecordType:
    """A record from its JSON, which may have come from anywhere."""
    try:
        return record_from(kind, json.loads(data))
    except NONSENSE as error:
        raise misfit(upstream) from error


def record_from(kind: type[RecordType], data: Mapping[str, Any]) -> RecordType:
    """A record from what its JSON holds; raises one of ``NONSENSE`` for anything else."""
    hints = _hints(cast("Hashable", kind))
    return kind(**{name: _value(hints[name], value) for name, value in data.items()})


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    """A JSON value as the field's type has it: records and tuples are made anew."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        (kind,) = (one for one in arguments if one is not type(None))
        return None if value is None else _value(kind, value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record_from(hint, value)
    if origin is tuple:
        return tuple(_value(arguments[0], item) for item in _of(list, value))
    if origin is Mapping:
        return {key: _value(arguments[1], item) for key, item in _of(dict, value).items()}
    if origin is Literal:
        return arguments[arguments.index(value)]
    return _number(value) if hint is float else _of(hint, value)


def _of(kind: type[RecordType], value: object) -> RecordType:
    """A value of a type, and of none below it: a bool is no number here."""
    if type(value) is not kind:
        message = f"{kind.__name__} is expected"
        raise TypeError(message)
    if isinstance(value, int):
        float(value)  # JSON has integers beyond all floats, which reports could not tell
    return value


def _number(value: object) -> float:
    if type(value) not in (int, float):
        message = "a number is expected"
        raise TypeError(message)
    number = cast("float", value)
    float(number)
    return number

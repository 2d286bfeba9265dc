"""Reports read again from the JSON that a build has left, which may have come from anywhere."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from mobileprep.report.collect import Report

RecordType = TypeVar("RecordType")

_PLAIN: Final = (str, int, bool)


def report_from(data: object) -> Report:
    """The report that ``report_data`` has made JSON of.

    Keys that are not known are passed over, as a later version may have added them.

    Raises:
        ValueError: it is none; the message says which part, and why.
    """
    if isinstance(data, Mapping):
        return _record(Report, data, "the report")
    message = "it is no object"
    raise ValueError(message)


def _record(kind: type[RecordType], data: Mapping[str, Any], where: str) -> RecordType:
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in data:
            found[field.name] = _value(hints[field.name], data[field.name], field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            message = f"{where} has no {field.name!r}"
            raise ValueError(message)
    return kind(**found)


def _value(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - JSON
    """A JSON value as a field's type has it."""
    if hint is Any:
        return value
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    if hint is float:
        return _number(value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return _record(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(get_args(hint)[0], item, where) for item in value)
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {key: _value(get_args(hint)[1], item, where) for key, item in value.items()}
    if hint in _PLAIN and type(value) is hint:
        return _bounded(value, where) if hint is int else value
    if get_origin(hint) is Literal and value in get_args(hint):
        return value
    message = f"{where!r} has a value of another type than reports have"
    raise ValueError(message)


def _number(value: object, where: str) -> float:
    """A number; null is what JSON has for one that is not finite."""
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounded(value, where)
    message = f"{where!r} is no number"
    raise ValueError(message)


def _bounded(value: float, where: str) -> float:
    """A number that arithmetic takes: JSON has integers beyond all floats too."""
    try:
        float(value)
    except OverflowError as error:
        message = f"{where!r} is larger than any number of a report"
        raise ValueError(message) from error
    return value

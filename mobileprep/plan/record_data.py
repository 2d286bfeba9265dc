"""Records made again from the JSON that holds them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

RecordType = TypeVar("RecordType")


def record_from(kind: type[RecordType], data: Mapping[str, Any]) -> RecordType:
    """A record from what its JSON holds."""
    hints = _hints(cast("Hashable", kind))
    return kind(**{name: _value(hints[name], value) for name, value in data.items()})


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    """A JSON value as the field's type has it: records and tuples are made anew."""
    if value is None:
        return None
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record_from(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], item) for item in value)
    return value

"""Reads serialized ``tf.train.Example`` messages: named lists of texts or numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.formats.cursor import Cursor
from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import BYTES, FIXED32, VARINT, skip_field
from mobileprep.frozen import dataclass

_FILE: Final = "serialized example"
_FIRST_BYTES: Final = 1 << 3 | BYTES
_SECOND_BYTES: Final = 2 << 3 | BYTES
_KINDS: Final = {
    1 << 3 | BYTES: DType.STRING,
    2 << 3 | BYTES: DType.FLOAT,
    3 << 3 | BYTES: DType.INT64,
}
_SINGLE: Final = {DType.FLOAT: 1 << 3 | FIXED32, DType.INT64: 1 << 3 | VARINT}
_FLOAT: Final = np.dtype("<f4")
_LONGEST: Final = 10


@dataclass(frozen=True, slots=True)
class Feature:
    """The values of one feature.

    Args:
        dtype: STRING, FLOAT or INT64.
        values: a list of bytes, or a vector of numbers of that type.
    """

    dtype: DType
    values: list[bytes] | NDArray[Any]


def read_example(data: bytes) -> Mapping[bytes, memoryview]:
    """The features of an example by name, each still serialized; of two of a name the last counts.

    Raises:
        CorruptFileError: the bytes are no such message.
    """
    found: dict[bytes, memoryview] = {}
    example = Cursor(data, file=_FILE)
    while example:
        features = _submessage(example, _FIRST_BYTES)
        while features is not None and features:
            entry = _submessage(features, _FIRST_BYTES)
            if entry is not None:
                name, feature = _entry(entry)
                found[name] = feature
    return found


def read_feature(data: memoryview) -> Feature | None:
    """The values of a feature, or None where it says nothing, not even its type.

    Raises:
        CorruptFileError: the bytes are no such message.
    """
    cursor = Cursor(data, file=_FILE)
    if not cursor:
        return None
    kind = _KINDS.get(cursor.varint())
    if kind is None:
        message = "a feature is no list of texts, of float32 or of int64"
        raise cursor.corrupt(message)
    values = _sub(cursor)
    return Feature(kind, _texts(values) if kind is DType.STRING else _numbers(values, kind))


def _submessage(cursor: Cursor, wanted: int) -> Cursor | None:
    """The next field where it is the wanted one; others are passed over."""
    tag = cursor.varint()
    if tag == wanted:
        return _sub(cursor)
    skip_field(cursor, tag)
    return None


def _sub(cursor: Cursor) -> Cursor:
    """A cursor over the length-delimited body that comes next."""
    length = cursor.varint()
    start = cursor.position
    cursor.skip(length)
    return Cursor(cursor.data, start, cursor.position, file=cursor.file, base=cursor.base)


def _entry(cursor: Cursor) -> tuple[bytes, memoryview]:
    """The name and the serialized values of one feature."""
    name, feature = b"", memoryview(b"")
    while cursor:
        tag = cursor.varint()
        if tag == _FIRST_BYTES:
            name = bytes(cursor.take(cursor.varint()))
        elif tag == _SECOND_BYTES:
            feature = cursor.take(cursor.varint())
        else:
            skip_field(cursor, tag)
    return name, feature


def _texts(cursor: Cursor) -> list[bytes]:
    found = []
    while cursor:
        if cursor.varint() != _FIRST_BYTES:
            raise _stranger(cursor)
        found.append(bytes(cursor.take(cursor.varint())))
    return found


def _numbers(cursor: Cursor, kind: DType) -> NDArray[Any]:
    """Numbers one by one, or packed."""
    parts: list[memoryview] = []
    while cursor:
        tag = cursor.varint()
        if tag == _FIRST_BYTES:
            parts.append(cursor.take(cursor.varint()))
        elif tag == _SINGLE[kind]:
            start = cursor.position
            skip_field(cursor, tag)
            parts.append(memoryview(cursor.data)[start : cursor.position])
        else:
            raise _stranger(cursor)
    packed = parts[0] if len(parts) == 1 else b"".join(parts)
    return _floats(packed, cursor) if kind is DType.FLOAT else _varints(packed, cursor)


def _floats(packed: bytes | memoryview, cursor: Cursor) -> NDArray[Any]:
    if len(packed) % _FLOAT.itemsize:
        message = f"{len(packed)} bytes are no whole number of float32"
        raise cursor.corrupt(message)
    return np.frombuffer(packed, _FLOAT)


def _varints(packed: bytes | memoryview, cursor: Cursor) -> NDArray[Any]:
    """Signed 64-bit numbers out of base-128 groups, low group first, all at once."""
    raw = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) == len(raw):
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if not len(ends) or ends[-1] + 1 != len(raw) or lengths.max() > _LONGEST:
        message = "a variable-length integer does not end"
        raise cursor.corrupt(message)
    place = np.arange(len(raw)) - np.repeat(starts, lengths)
    groups = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.bitwise_or.reduceat(groups, starts).view(np.int64)


def _stranger(cursor: Cursor) -> Exception:
    return cursor.corrupt("a list of a feature has a field that no example has")

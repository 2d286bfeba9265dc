"""Options of custom operators in FlexBuffers.

Source: the FlexBuffers documentation ("FlexBuffer internals").
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_WIDTH: Final = 4
_WIDTH_BITS: Final = 2
_INT, _FLOAT, _KEY, _STRING, _MAP, _VECTOR, _KEY_VECTOR, _BOOL = 1, 3, 4, 5, 9, 10, 14, 26
_INLINE: Final = frozenset({_INT, _FLOAT, _BOOL})
_FORMATS: Final = {_FLOAT: {2: "<f", 3: "<d"}}


class _Value(NamedTuple):
    """A number, or the offset of a written value.

    Args:
        value: the number or offset.
        kind: type of the value.
        width: base-2 logarithm of its size in bytes, or of the size of a vector's elements.
    """

    value: int | float
    kind: int
    width: int


def number_map(numbers: Mapping[str, int | bool | float]) -> bytes:
    """Encode a map of numbers by name, in the order of the names.

    Like the library's own writer, use the smallest width for names and values.
    """
    buffer = bytearray()
    keys: list[_Value] = []
    values: list[_Value] = []
    for name, number in sorted(numbers.items()):
        keys.append(_Value(len(buffer), _KEY, 0))
        buffer += name.encode() + b"\0"
        values.append(_number(number))
    listed = _vector(buffer, keys, _KEY_VECTOR, None)
    mapped = _vector(buffer, values, _MAP, listed)
    width = _width(mapped, len(buffer), 0)
    _align(buffer, width)
    _write(buffer, mapped, width)
    return bytes(buffer) + bytes((_MAP << 2 | mapped.width, 1 << width))


def string_pair(first: str, second: bytes) -> bytes:
    """Encode a vector of two strings, the second of arbitrary bytes; all sizes have 32 bits."""
    buffer = bytearray()
    places = []
    for content in (first.encode(), second):
        buffer += struct.pack("<I", len(content))
        places.append(len(buffer))
        buffer += content + b"\0"
        buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(places))
    vector = len(buffer)
    for place in places:
        # Offsets count backwards from their own position.
        buffer += struct.pack("<I", len(buffer) - place)
    kind = _STRING << 2 | _WIDTH_BITS
    buffer += bytes((kind, kind))
    buffer += bytes(-len(buffer) % _WIDTH)
    buffer += struct.pack("<I", len(buffer) - vector)
    return bytes(buffer) + bytes((_VECTOR << 2 | _WIDTH_BITS, _WIDTH))


def _number(number: int | bool | float) -> _Value:
    if isinstance(number, bool):
        return _Value(int(number), _BOOL, 0)
    if isinstance(number, int):
        return _Value(number, _INT, _unsigned_width(2 * number if number >= 0 else ~(2 * number)))
    fits = struct.unpack("<f", struct.pack("<f", number))[0] == number
    return _Value(number, _FLOAT, 2 if fits else 3)


def _vector(
    buffer: bytearray, elements: Sequence[_Value], kind: int, keys: _Value | None
) -> _Value:
    """Write a vector, or the values of a map, which refer to the vector of its keys."""
    before = 1 if keys is None else 3
    widths = [_width(e, len(buffer), before + i) for i, e in enumerate(elements)]
    if keys is not None:
        widths.append(_width(keys, len(buffer), 0))
    width = max([_unsigned_width(len(elements)), *widths])
    _align(buffer, width)
    if keys is not None:
        _write(buffer, keys, width)
        buffer += (1 << keys.width).to_bytes(1 << width, "little")
    buffer += len(elements).to_bytes(1 << width, "little")
    start = len(buffer)
    for element in elements:
        _write(buffer, element, width)
    if keys is not None:
        stored = ((e.kind, max(e.width, width) if e.kind in _INLINE else e.width) for e in elements)
        buffer += bytes(kind << 2 | bits for kind, bits in stored)
    return _Value(start, kind, width)


def _width(value: _Value, size: int, index: int) -> int:
    """Return the width of an element's offset, given the bytes and elements before it."""
    if value.kind in _INLINE:
        return value.width
    for bits in range(4):
        place = size + -size % (1 << bits) + (index << bits)
        if _unsigned_width(place - int(value.value)) <= bits:
            return bits
    raise AssertionError


def _unsigned_width(number: int) -> int:
    return next(bits for bits in range(4) if number < 1 << (8 << bits))


def _align(buffer: bytearray, width: int) -> None:
    buffer += bytes(-len(buffer) % (1 << width))


def _write(buffer: bytearray, value: _Value, width: int) -> None:
    if value.kind == _FLOAT:
        buffer += struct.pack(_FORMATS[_FLOAT][width], value.value)
    elif value.kind in _INLINE:
        buffer += int(value.value).to_bytes(1 << width, "little", signed=value.kind == _INT)
    else:
        buffer += (len(buffer) - int(value.value)).to_bytes(1 << width, "little")

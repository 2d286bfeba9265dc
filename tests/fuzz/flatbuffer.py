"""Damage fields of .tflite files: offsets, lengths, enumerations, indices."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from mobileprep.formats.tflite.layout import layout

_INTEGERS = (0, 1, 2, 3, 4, 7, 63, 64, 127, 128, 255, 2**15, 2**20, 2**31 - 1, 2**31, 2**32 - 1)
_LONGS = (*_INTEGERS, 2**40, 2**62, 2**63)
_FLOATS = (0.0, -1.0, 1e-45, 3.4e38, float("inf"), float("nan"), 1.0)
_FLOATING = {"float": "<f", "double": "<d"}
_OFFSET = "offset"
_LENGTH = "length"
_SLOT = "slot"


class Place(Struct, frozen=True):
    """A number in a file.

    Args:
        at: its offset.
        width: its size in bytes.
        kind: a plain type, an enumeration, or a structural part of the format.
    """

    at: int
    width: int
    kind: str


@lru_cache(maxsize=8)
def places(data: bytes) -> tuple[Place, ...]:
    """Every number that the format defines in a valid file."""
    return tuple(_Walk(data).root())


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._seen: set[int] = set()

    def root(self) -> Iterator[Place]:
        yield Place(0, 4, _OFFSET)
        yield from self._table(self._number("<I", 0), "Model")

    def _number(self, form: str, at: int) -> int:
        number: int = struct.unpack_from(form, self._data, at)[0]
        return number

    def _table(self, at: int, kind: str) -> Iterator[Place]:
        if at in self._seen:
            return
        self._seen.add(at)
        vtable = at - self._number("<i", at)
        yield Place(at, 4, _OFFSET)
        yield Place(vtable, 2, _SLOT)
        yield Place(vtable + 2, 2, _SLOT)
        fields = layout().tables[kind]
        slots = (self._number("<H", vtable) - 4) // 2
        for number, field in enumerate(fields[:slots]):
            yield Place(vtable + 4 + 2 * number, 2, _SLOT)
            distance = self._number("<H", vtable + 4 + 2 * number)
            if not distance or field is None:
                continue
            tag = self._number("<H", vtable + 2 + 2 * number) if number else 0
            yield from self._field(at + distance, field[1], at + tag)

    def _field(self, at: int, kind: str, tag: int) -> Iterator[Place]:
        width = layout().width(kind)
        if width is not None:
            yield Place(at, width, kind)
            return
        yield Place(at, 4, _OFFSET)
        target = at + self._number("<I", at)
        if kind in layout().unions:
            names = {n: name for name, n in layout().unions[kind].items()}
            yield from self._table(target, names[self._data[tag]])
        elif kind == "string":
            yield from self._vector(target, "byte")
        elif kind.startswith("["):
            yield from self._vector(target, kind[1:-1])
        else:
            yield from self._table(target, kind)

    def _vector(self, at: int, kind: str) -> Iterator[Place]:
        yield Place(at, 4, _LENGTH)
        width = layout().width(kind)
        for index in range(min(self._number("<I", at), 64)):
            if width is not None:
                yield Place(at + 4 + index * width, width, kind)
            else:
                yield from self._field(at + 4 + 4 * index, kind, 0)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Change one to four numbers."""
    out, numbers = bytearray(data), places(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.choice(sorted({p.kind for p in numbers}))
        place = rng.choice([p for p in numbers if p.kind == kind])
        out[place.at : place.at + place.width] = _value(bytes(out), place, numbers, rng)
    return bytes(out)


def _value(data: bytes, place: Place, numbers: Sequence[Place], rng: random.Random) -> bytes:
    """Choose another value, usually a plausible one."""
    held = int.from_bytes(data[place.at : place.at + place.width], "little")
    if place.kind in _FLOATING:
        return struct.pack(_FLOATING[place.kind], rng.choice(_FLOATS))
    if place.kind in layout().enums:
        number = rng.choice([*layout().enums[place.kind].values(), 200])
    elif rng.random() < 0.4:
        number = held + rng.choice((-1, 1, 4, -4))
    elif place.kind == _OFFSET and rng.random() < 0.8:
        number = rng.choice([p.at for p in numbers if p.kind in (_OFFSET, _LENGTH)]) - place.at
    elif rng.random() < 0.4:
        number = int.from_bytes(data[(p := rng.choice(numbers)).at : p.at + p.width], "little")
    else:
        number = rng.choice(_LONGS)
    return (number % (1 << 8 * place.width)).to_bytes(place.width, "little")

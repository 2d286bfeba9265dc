"""Damage to protocol buffers by what their fields mean."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from tests.fuzz.damage import damaged_bytes

_SIZES = (0, 1, 2, 3, 4, 8, 63, 64, 65, 255, 1000, 65536, 2**20, 2**31 - 1, 2**31, 2**40, 2**62)
_INTEGERS = (*_SIZES, -1, -2, -(2**31), -(2**63), 2**63 - 1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.5)
_TEXTS = ("", "x", "^x", "x:1", "x:-1", ":", "/", "a/b", "..", "\x1b[31m", "ü\u202e", "n" * 3000)
_LABELS = (
    "SAME",
    "VALID",
    "EXPLICIT",
    "NHWC",
    "NCHW",
    "NHWC_VECT_W",
    "REFLECT",
    "loc:@x",
    "(a*)*b",
)
_BITS = {
    Field.CPPTYPE_INT32: 32, Field.CPPTYPE_INT64: 64,
    Field.CPPTYPE_UINT32: 32, Field.CPPTYPE_UINT64: 64,
}  # fmt: skip
_UNSIGNED = (Field.CPPTYPE_UINT32, Field.CPPTYPE_UINT64)
_FEW = 6


class Damage:
    """What is done to messages of one graph.

    Args:
        rng: the state.
        texts: names that have a meaning: of ops, attributes, nodes.
    """

    def __init__(self, rng: random.Random, texts: Sequence[str] = ()) -> None:
        self._rng = rng
        self._texts = texts

    def damaged(self, message: Message) -> bytes:
        """The bytes of a message with one to a few faults; it is changed in place."""
        rng = self._rng
        for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
            found = list(messages_within(message))
            self._damage(rng.choice(found), found)
        data = message.SerializePartialToString(deterministic=True)
        return damaged_bytes(data, rng, 2) if rng.random() < 0.08 else data

    def _damage(self, message: Message, all_found: list[Message]) -> None:
        fields = list(message.DESCRIPTOR.fields)
        if not fields:
            return
        present = [f for f, _ in message.ListFields()]
        field = self._rng.choice(present if present and self._rng.random() < 0.8 else fields)
        if self._is_map(field):
            self._damage_map(message, field)
        elif is_list(message, field):
            self._damage_list(message, field, all_found)
        elif field.message_type is not None:
            self._damage_part(message, field, all_found)
        elif self._rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, self._value(field, getattr(message, field.name)))

    @staticmethod
    def _is_map(field: Field) -> bool:
        return field.message_type is not None and field.message_type.GetOptions().map_entry

    def _damage_map(self, message: Message, field: Field) -> None:
        held = getattr(message, field.name)
        keys = sorted(held)
        if not keys:
            return
        key = self._rng.choice(keys)
        kind = self._rng.random()
        if kind < 0.4:
            del held[key]
        elif field.message_type.fields_by_name["value"].message_type is not None:
            other = held[self._rng.choice(keys)].SerializePartialToString()
            name = key if kind < 0.8 else self._text("")
            held[name].MergeFromString(other)
        else:
            held[key] = self._text("")

    def _damage_list(self, message: Message, field: Field, all_found: list[Message]) -> None:
        held, rng = getattr(message, field.name), self._rng
        kind = rng.randrange(5)
        at = rng.randrange(len(held)) if held else 0
        if field.message_type is not None:
            if kind == 0 and held:
                del held[at]
            elif kind in (1, 2) and held:
                held.add().CopyFrom(held[at])
            else:
                self._fill(held.add(), all_found)
        elif kind == 0 and held:
            del held[at]
        elif kind == 1 and held:
            held.insert(rng.randrange(len(held)), held[at])
        elif held and kind != 2:
            held[at] = self._value(field, held[at])
        else:
            held.append(self._value(field, None))
        if rng.random() < 0.02 and held:
            held.extend(list(held) * rng.choice((1, 70, 300)))

    def _damage_part(self, message: Message, field: Field, all_found: list[Message]) -> None:
        if self._rng.random() < 0.4:
            message.ClearField(field.name)
            return
        part = getattr(message, field.name)
        part.SetInParent()
        self._fill(part, all_found)

    def _fill(self, message: Message, all_found: list[Message]) -> None:
        """Make a message a copy of another of its kind, where there is one."""
        same = [m for m in all_found if m.DESCRIPTOR is message.DESCRIPTOR]
        if same:
            # A copy first: a message cannot hold itself.
            message.MergeFromString(self._rng.choice(same).SerializePartialToString())

    def _value(self, field: Field, old: Any) -> Any:
        rng, kind = self._rng, field.cpp_type
        if kind in _BITS:
            number = old + rng.choice((-1, 1)) if old and rng.random() < 0.2 else None
            bits = _BITS[kind]
            number = (rng.choice(_INTEGERS) if number is None else number) % (1 << bits)
            return (
                number if kind in _UNSIGNED or number >> (bits - 1) == 0 else number - (1 << bits)
            )
        if kind == Field.CPPTYPE_ENUM:
            known = [v.number for v in field.enum_type.values]
            return rng.choice([*known, 101, 103, 200] if rng.random() < 0.2 else known)
        if kind in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
            return rng.choice(_FLOATS)
        if kind == Field.CPPTYPE_BOOL:
            return not old
        if field.type == Field.TYPE_BYTES:
            if old and rng.random() < 0.6:
                return damaged_bytes(old, rng)
            return rng.choice((*_TEXTS, *_LABELS)).encode()
        return self._text(old)

    def _text(self, old: str | None) -> str:
        rng = self._rng
        if old and rng.random() < 0.15:
            return rng.choice(("^" + old, old + ":1", old + ":9", old[:-1], old + old))
        return rng.choice(
            self._texts if self._texts and rng.random() < 0.8 else (*_TEXTS, *_LABELS)
        )


def messages_within(message: Message) -> Iterator[Message]:
    """A message and all within."""
    yield message
    for field, held in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(held):
                    yield from messages_within(held[key])
        elif is_list(message, field):
            for each in held:
                yield from messages_within(each)
        else:
            yield from messages_within(held)


def is_list(message: Message, field: Field) -> bool:
    # What the descriptor calls it differs among releases of protobuf.
    return hasattr(getattr(message, field.name), "extend")


def texts_of(message: Message) -> list[str]:
    """The short texts of a message: names of nodes, ops and attributes."""
    found: set[str] = set()
    for part in messages_within(message):
        for field, held in part.ListFields():
            if field.type == Field.TYPE_STRING:
                found.update(held if is_list(part, field) else [held])
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                found.update(held)
    return sorted(x for x in found if len(x) < 1 << _FEW)

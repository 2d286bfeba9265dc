"""Damage fields of protocol buffers."""

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
_STRINGS = ("", "x", "^x", "x:1", "x:-1", ":", "/", "a/b", "..", "\x1b[31m", "ü\u202e", "n" * 3000)
_LABELS = (
    *("SAME", "VALID", "EXPLICIT", "NHWC", "NCHW", "NHWC_VECT_W", "REFLECT"),
    *("loc:@x", "(a*)*b"),
)
_BITS = {
    Field.CPPTYPE_INT32: 32, Field.CPPTYPE_INT64: 64,
    Field.CPPTYPE_UINT32: 32, Field.CPPTYPE_UINT64: 64,
}  # fmt: skip
_UNSIGNED = (Field.CPPTYPE_UINT32, Field.CPPTYPE_UINT64)
_MAX_BITS = 6


class Damage:
    """Damages the messages of one graph.

    Args:
        rng: the random state.
        strings: names of ops, attributes, and nodes.
    """

    def __init__(self, rng: random.Random, strings: Sequence[str] = ()) -> None:
        self._rng = rng
        self._strings = strings

    def damaged(self, message: Message) -> bytes:
        """Change a few fields of a message in place, and serialize it."""
        rng = self._rng
        for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
            messages = list(messages_within(message))
            self._damage(rng.choice(messages), messages)
        data = message.SerializePartialToString(deterministic=True)
        return damaged_bytes(data, rng, 2) if rng.random() < 0.08 else data

    def _damage(self, message: Message, messages: list[Message]) -> None:
        fields = list(message.DESCRIPTOR.fields)
        if not fields:
            return
        present = [f for f, _ in message.ListFields()]
        field = self._rng.choice(present if present and self._rng.random() < 0.8 else fields)
        if self._is_map(field):
            self._damage_map(message, field)
        elif is_list(message, field):
            self._damage_list(message, field, messages)
        elif field.message_type is not None:
            self._damage_part(message, field, messages)
        elif self._rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, self._value(field, getattr(message, field.name)))

    @staticmethod
    def _is_map(field: Field) -> bool:
        return field.message_type is not None and field.message_type.GetOptions().map_entry

    def _damage_map(self, message: Message, field: Field) -> None:
        value = getattr(message, field.name)
        keys = sorted(value)
        if not keys:
            return
        key = self._rng.choice(keys)
        kind = self._rng.random()
        if kind < 0.4:
            del value[key]
        elif field.message_type.fields_by_name["value"].message_type is not None:
            other = value[self._rng.choice(keys)].SerializePartialToString()
            name = key if kind < 0.8 else self._text("")
            value[name].MergeFromString(other)
        else:
            value[key] = self._text("")

    def _damage_list(self, message: Message, field: Field, messages: list[Message]) -> None:
        value, rng = getattr(message, field.name), self._rng
        kind = rng.randrange(5)
        at = rng.randrange(len(value)) if value else 0
        if field.message_type is not None:
            if kind == 0 and value:
                del value[at]
            elif kind in (1, 2) and value:
                value.add().CopyFrom(value[at])
            else:
                self._fill(value.add(), messages)
        elif kind == 0 and value:
            del value[at]
        elif kind == 1 and value:
            value.insert(rng.randrange(len(value)), value[at])
        elif value and kind != 2:
            value[at] = self._value(field, value[at])
        else:
            value.append(self._value(field, None))
        if rng.random() < 0.02 and value:
            value.extend(list(value) * rng.choice((1, 70, 300)))

    def _damage_part(self, message: Message, field: Field, messages: list[Message]) -> None:
        if self._rng.random() < 0.4:
            message.ClearField(field.name)
            return
        part = getattr(message, field.name)
        part.SetInParent()
        self._fill(part, messages)

    def _fill(self, message: Message, messages: list[Message]) -> None:
        """Copy another message of the same type, if there is one."""
        same = [m for m in messages if m.DESCRIPTOR is message.DESCRIPTOR]
        if same:
            # Serialized, since a message cannot contain itself.
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
            numbers = [v.number for v in field.enum_type.values]
            return rng.choice([*numbers, 101, 103, 200] if rng.random() < 0.2 else numbers)
        if kind in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
            return rng.choice(_FLOATS)
        if kind == Field.CPPTYPE_BOOL:
            return not old
        if field.type == Field.TYPE_BYTES:
            if old and rng.random() < 0.6:
                return damaged_bytes(old, rng)
            return rng.choice((*_STRINGS, *_LABELS)).encode()
        return self._text(old)

    def _text(self, old: str | None) -> str:
        rng = self._rng
        if old and rng.random() < 0.15:
            return rng.choice(("^" + old, old + ":1", old + ":9", old[:-1], old + old))
        return rng.choice(
            self._strings if self._strings and rng.random() < 0.8 else (*_STRINGS, *_LABELS)
        )


def messages_within(message: Message) -> Iterator[Message]:
    """A message and all nested messages."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    yield from messages_within(value[key])
        elif is_list(message, field):
            for item in value:
                yield from messages_within(item)
        else:
            yield from messages_within(value)


def is_list(message: Message, field: Field) -> bool:
    # Releases of protobuf have different properties for this.
    return hasattr(getattr(message, field.name), "extend")


def strings_in(message: Message) -> list[str]:
    """The short strings of a message: names of nodes, ops, and attributes."""
    strings: set[str] = set()
    for part in messages_within(message):
        for field, value in part.ListFields():
            if field.type == Field.TYPE_STRING:
                strings.update(value if is_list(part, field) else [value])
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                strings.update(value)
    return sorted(x for x in strings if len(x) < 1 << _MAX_BITS)

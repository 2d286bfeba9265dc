"""Shrink a case without losing its problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from google.protobuf.message import DecodeError, Message
from msgspec.structs import replace

from mobileprep.formats.protos import graph_pb2, saved_model_pb2
from tests.fuzz.case import Case
from tests.fuzz.messages import is_list, messages_within

_MOST_TRIES = 600
_KINDS: tuple[type[Message], ...] = (
    graph_pb2.GraphDef,
    saved_model_pb2.MetaGraphDef,
    saved_model_pb2.SavedModel,
)


class _Tries:
    """Counts tries, which change or remove a file of a case."""

    def __init__(self, case: Case, fails: Callable[[Case], bool]) -> None:
        self.case = case
        self._fails = fails
        self._remaining = _MOST_TRIES

    def replace_file(self, name: str, data: bytes) -> bool:
        """Replace a file if the problem persists."""
        if self._remaining <= 0 or len(data) >= len(self.case.files[name]):
            return False
        return self._try({**self.case.files, name: data})

    def remove_file(self, name: str) -> bool:
        """Remove a file if the problem persists."""
        return self._try({n: data for n, data in self.case.files.items() if n != name})

    def _try(self, files: Mapping[str, bytes]) -> bool:
        self._remaining -= 1
        tried = replace(self.case, files=files)
        if not self._fails(tried):
            return False
        self.case = tried
        return True


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Remove unneeded files, and shorten the damaged ones.

    Remove nodes, attributes, and fields of messages, then runs of bytes of all files.
    """
    tries = _Tries(case, fails)
    for name in case.files:
        if name not in case.damaged:
            tries.remove_file(name)
    for name in case.damaged:
        _shrink_message(tries, name)
        _shrink_bytes(tries, name)
    return tries.case


def _shrink_message(tries: _Tries, name: str) -> None:
    kind = next((k for k in _KINDS if _parsed(k, tries.case.files[name]) is not None), None)
    if kind is None:
        return
    at = 0
    while True:
        message = _parsed(kind, tries.case.files[name])
        cuts = list(_cuts(message)) if message is not None else []
        if at >= len(cuts):
            return
        cuts[at]()
        assert message is not None
        if not tries.replace_file(name, message.SerializePartialToString(deterministic=True)):
            at += 1


def _parsed(kind: type[Message], data: bytes) -> Message | None:
    """Parse a message; None if the data has unknown fields, as messages of another type do."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return None
    known_part = kind.FromString(data)
    known_part.DiscardUnknownFields()  # type: ignore[attr-defined] # all messages have it
    is_same = known_part.ByteSize() == message.ByteSize() and message.ListFields()
    return message if is_same else None


def _cuts(message: Message) -> Iterator[Callable[[], object]]:
    """Removals from a message, the largest first: halves of lists, elements, fields."""
    for part in messages_within(message):
        for field, value in part.ListFields():
            if is_list(part, field):
                yield from _list_cuts(value)
            else:
                yield lambda part=part, name=field.name: part.ClearField(name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                for key in sorted(value):
                    yield lambda value=value, key=key: value.pop(key)


def _list_cuts(value: list[object]) -> Iterator[Callable[[], object]]:
    size = len(value)
    while size:
        for at in range(0, len(value), size):
            yield lambda at=at, size=size: value.__delitem__(slice(at, at + size))
        size //= 2


def _shrink_bytes(tries: _Tries, name: str) -> None:
    """Remove halves, then quarters, and so on, as long as the problem persists.

    Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002).
    """
    size = max(len(tries.case.files[name]) // 2, 1)
    while size:
        at = 0
        while at < len(tries.case.files[name]):
            data = tries.case.files[name]
            if not tries.replace_file(name, data[:at] + data[at + size :]):
                at += size
        size //= 2

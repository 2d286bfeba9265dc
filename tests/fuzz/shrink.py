"""A smaller case with the same fault."""

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
    """Counts tries, each of other bytes in place of one file of a case."""

    def __init__(self, case: Case, fails: Callable[[Case], bool]) -> None:
        self.case = case
        self._fails = fails
        self._left = _MOST_TRIES

    def keeps(self, name: str, data: bytes) -> bool:
        """Whether the fault stays; the case then has these bytes."""
        if self._left <= 0 or len(data) >= len(self.case.files[name]):
            return False
        return self._stays({**self.case.files, name: data})

    def leaves_out(self, name: str) -> bool:
        """Whether the fault stays without a file; the case then has it no longer."""
        return self._stays({n: data for n, data in self.case.files.items() if n != name})

    def _stays(self, files: Mapping[str, bytes]) -> bool:
        self._left -= 1
        tried = replace(self.case, files=files)
        if not self._fails(tried):
            return False
        self.case = tried
        return True


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case whose damaged files are as short as some tries make them, without files of no use.

    Of messages nodes, attributes and fields are left out; of all files then runs of bytes.
    """
    tries = _Tries(case, fails)
    for name in case.files:
        if name not in case.damaged:
            tries.leaves_out(name)
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
        if not tries.keeps(name, message.SerializePartialToString(deterministic=True)):
            at += 1


def _parsed(kind: type[Message], data: bytes) -> Message | None:
    """A message whose own bytes the data are: one of another kind has fields that are not known."""
    try:
        found = kind.FromString(data)
    except DecodeError:
        return None
    known = kind.FromString(data)
    known.DiscardUnknownFields()  # type: ignore[attr-defined] # all messages have it
    return found if known.ByteSize() == found.ByteSize() and found.ListFields() else None


def _cuts(message: Message) -> Iterator[Callable[[], object]]:
    """What can be left out of a message, the largest first: halves of lists, elements, fields."""
    for part in messages_within(message):
        for field, held in part.ListFields():
            if is_list(part, field):
                yield from _list_cuts(held)
            else:
                yield lambda part=part, name=field.name: part.ClearField(name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                for key in sorted(held):
                    yield lambda held=held, key=key: held.pop(key)


def _list_cuts(held: list[object]) -> Iterator[Callable[[], object]]:
    size = len(held)
    while size:
        for at in range(0, len(held), size):
            yield lambda at=at, size=size: held.__delitem__(slice(at, at + size))
        size //= 2


def _shrink_bytes(tries: _Tries, name: str) -> None:
    """Leave out runs of bytes.

    Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002): halves,
    then quarters and so on are left out as long as the fault stays.
    """
    size = max(len(tries.case.files[name]) // 2, 1)
    while size:
        at = 0
        while at < len(tries.case.files[name]):
            data = tries.case.files[name]
            if not tries.keeps(name, data[:at] + data[at + size :]):
                at += size
        size //= 2

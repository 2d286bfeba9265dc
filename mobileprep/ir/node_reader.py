"""NodeDefs to nodes: many short ones quickly, any one by way of its message."""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from mobileprep.errors import CorruptFileError
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import BYTES, Cursor, Payload, short_records, skip_field
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import Attrs, AttrValue
from mobileprep.ir.node import Node
from mobileprep.ir.node_writer import NodeWriter
from mobileprep.ir.refs import Ref, new_ref, parse_ref
from mobileprep.ir.serde_attrs import attr_from_proto
from mobileprep.ir.tensor import Tensor

_NAME, _OP, _INPUT = (number << 3 | BYTES for number in (1, 2, 3))
_BEHIND_INPUTS: Final = frozenset(number << 3 | BYTES for number in (4, 5, 6, 7))
_NONE: Final = (b"", b"")
_ONE_BYTE: Final = 0x7F
# Nodes of a kind often end alike; of those that do not, no more than this is kept.
_MOST_TAILS: Final = 1 << 12
_LONGEST_TAIL: Final = 1 << 9
_MOST_FORMS: Final = 8

_Tail = tuple[str, Attrs, tuple[bytes, bytes]]
"""What stands behind a node's inputs: its device, attributes and debugging records."""

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], data: bytes, file: str) -> M:
    """A message of the bytes of a GraphDef.

    Raises:
        CorruptFileError: they are none.
    """
    proto = kind()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        message = "is no binary GraphDef"
        hint = "a text graph ends in .pbtxt; a SavedModel is named by its folder"
        raise CorruptFileError(message, hint, file) from error
    return proto


def node_from_proto(proto: pb.NodeDef, payloads: list[Payload], file: str) -> Node:
    """A node of a graph, its large contents possibly among ``payloads``."""
    where = f"{file}, node {proto.name!r}"
    return read_node(proto, tuple([parse_ref(text) for text in proto.input]), payloads, where)


def read_node(
    proto: pb.NodeDef, inputs: tuple[Ref, ...], payloads: list[Payload], where: str
) -> Node:
    """A node of a graph or of a function's body, whose inputs are spelt differently."""
    return Node(proto.name, intern(proto.op), inputs, *_read_tail(proto, payloads, where))


def _read_tail(proto: pb.NodeDef, payloads: list[Payload], where: str) -> _Tail:
    # Ops, devices and attributes have few names: held once, they halve what a graph takes.
    values = proto.attr
    attrs = {intern(k): attr_from_proto(values[k], payloads, where) for k in sorted(values)}
    debug = (proto.experimental_debug_info, proto.experimental_type)
    return intern(proto.device), attrs, debug if any(debug) else _NONE


class NodeReader:
    """Reads the short nodes of one graph.

    Where a node's fields stand as every writer leaves them, they are taken from the bytes one by
    one, and what was read before is not read again: ops, inputs, and all that stands behind the
    inputs, which nodes of a kind mostly have in common. Any other node goes through its message.

    Args:
        file: the graph's name, for messages.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        # By the whole field, tag and length included.
        self._ops: dict[bytes, str] = {}
        self._refs: dict[bytes, Ref] = {}
        self._tails: dict[bytes, _Tail] = {}
        # By the length of the tail.
        self._forms: dict[int, list[_Form]] = {}

    def nodes(self, run: bytes) -> Iterator[Node]:
        """The nodes of a run of short records; see ``wire.short_records``.

        Raises:
            CorruptFileError: one is no NodeDef, or an attribute's content does not fit.
            InvalidGraphError: a constant has an impossible shape.
        """
        for record in short_records(run):
            yield self._scanned(record) or self._parsed(record)

    def _parsed(self, record: bytes) -> Node:
        return node_from_proto(parsed(pb.NodeDef, record, self._file), [], self._file)

    def _scanned(self, record: bytes) -> Node | None:
        """The node: a name, an op, inputs, then the rest; None where it is not of that form.

        Past its end a record has no bytes, and slices of it are cut short, so a length that leads
        there is seen in the end.
        """
        size = len(record)
        try:
            end_of_name = record[1] + 2
            at = end_of_name + 2 + record[end_of_name + 1]
            op_field = record[end_of_name:at]
            op = self._ops.get(op_field) or self._op(op_field)
            inputs = []
            while at < size and record[at] == _INPUT:
                stop = at + 2 + record[at + 1]
                field = record[at:stop]
                inputs.append(self._refs.get(field) or self._ref(field))
                at = stop
            if at > size or record[0] != _NAME or end_of_name > _ONE_BYTE + 2:
                return None
            name = record[2:end_of_name].decode()
        except (IndexError, UnicodeDecodeError, _OtherFormError):
            return None
        tail = record[at:]
        found = self._tails.get(tail) or self._tail(tail, name)
        return None if found is None else Node(name, op, tuple(inputs), *found)

    def _op(self, field: bytes) -> str:
        op = self._ops[field] = intern(_text(field, _OP))
        return op

    def _ref(self, field: bytes) -> Ref:
        ref = self._refs[field] = new_ref(_text(field, _INPUT))
        return ref

    def _tail(self, tail: bytes, name: str) -> _Tail | None:
        """What stands behind the inputs; None where inputs or names are among it."""
        forms = self._forms.setdefault(len(tail), [])
        for form in forms:
            if tail.startswith(form.head):
                return form.filled(tail)
        if not _is_behind_inputs(tail):
            return None
        proto = parsed(pb.NodeDef, tail, self._file)
        found = _read_tail(proto, [], f"{self._file}, node {name!r}")
        new = _form_of(tail, *found) if len(forms) < _MOST_FORMS else None
        if new is not None:
            forms.append(new)
        elif len(self._tails) < _MOST_TAILS and len(tail) < _LONGEST_TAIL:
            self._tails[tail] = found
        return found


class _OtherFormError(Exception):
    """A field is written in a way that has to be left to protobuf."""


def _is_behind_inputs(tail: bytes) -> bool:
    """Whether no field of it could change what was read before it."""
    cursor = Cursor(tail)
    try:
        while cursor:
            tag = cursor.varint()
            if tag not in _BEHIND_INPUTS:
                return False
            skip_field(cursor, tag)
    except CorruptFileError:
        return False  # protobuf tells what is wrong with it
    return True


def _text(field: bytes, tag: int) -> str:
    """The text of a field whose length takes one byte."""
    if len(field) < 2 or field[0] != tag or field[1] > _ONE_BYTE or len(field) != field[1] + 2:
        raise _OtherFormError
    return field[2:].decode()


@dataclass(frozen=True)
class _Form:
    """The tails that differ in nothing but the content of one tensor, which comes last.

    Args:
        head: all that comes before the content.
        device: the device of each.
        attrs: the attributes of one of them.
        name: the name of the tensor's attribute.
        tensor: the one's tensor.
    """

    head: bytes
    device: str
    attrs: Attrs
    name: str
    tensor: Tensor

    def filled(self, tail: bytes) -> _Tail:
        """What a tail that starts with the head, and is as long as the one, stands for."""
        one = self.tensor
        tensor = Tensor(one.dtype, one.shape, content=tail[len(self.head) :])
        return self.device, {**self.attrs, self.name: AttrValue("tensor", tensor)}, _NONE


def _form_of(tail: bytes, device: str, attrs: Attrs, debug: tuple[bytes, bytes]) -> _Form | None:
    """The form of a tail; None where it has none.

    It has one where our own writer makes that tail of its parts, and with another content the
    same tail with that content at the end: so content is all that stands behind the head, and
    lengths and fields before it are those of every such tail.
    """
    tensors = [k for k, v in attrs.items() if v.kind == "tensor" and v.value.content]
    if len(tensors) != 1 or debug != _NONE:
        return None
    name = tensors[0]
    tensor: Tensor = attrs[name].value
    if tensor.content is None or tensor.dtype.numpy is None:
        return None
    head = tail[: len(tail) - len(tensor.content)]
    writer = NodeWriter(1)
    for content in (bytes(tensor.content), bytes(byte ^ 0xFF for byte in tensor.content)):
        other = Tensor(tensor.dtype, tensor.shape, content=content)
        of_other = {**attrs, name: AttrValue("tensor", other)}
        if writer.tail(Node("", "", (), device, of_other)) != head + content:
            return None
    return _Form(head, device, attrs, name, tensor)

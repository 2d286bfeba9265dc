"""Read and write NodeDefs, with a fast path for many short nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from sys import intern
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    BYTES,
    CONTENT_FIELD,
    Cursor,
    Payload,
    delimited,
    field_header,
    short_records,
    skip_field,
)
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import REPEATED_KINDS, Attrs, AttrValue, FuncRef, TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, new_ref, parse_ref
from mobileprep.graph.tensor import (
    Tensor,
    is_large,
    is_written_raw,
    tensor_from_proto,
    tensor_to_proto,
)

_NAME, _OP, _INPUT = (number << 3 | BYTES for number in (1, 2, 3))
_BEHIND_INPUTS: Final = frozenset(number << 3 | BYTES for number in (4, 5, 6, 7))
_NONE: Final = (b"", b"")
_ONE_BYTE: Final = 0x7F
# Similar nodes often have equal tails; the number and length of cached tails are limited.
_MOST_TAILS: Final = 1 << 12
_LONGEST_TAIL: Final = 1 << 9
_MOST_FORMS: Final = 8

_Tail = tuple[str, Attrs, tuple[bytes, bytes]]
"""Everything after the inputs of a node: device, attributes, and debugging records."""

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], data: bytes, file: str) -> M:
    """Parse a message from the bytes of a GraphDef."""
    proto = kind()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        message = "is not a binary GraphDef"
        hint = "a text graph ends in .pbtxt; a SavedModel is named by its folder"
        raise CorruptFileError(message, hint, file) from error
    return proto


def node_from_proto(proto: pb.NodeDef, payloads: list[Payload], file: str) -> Node:
    """Convert a NodeDef of a graph, whose large contents can be in ``payloads``."""
    where = f"{file}, node {proto.name!r}"
    return read_node(proto, tuple([parse_ref(text) for text in proto.input]), payloads, where)


def read_node(
    proto: pb.NodeDef, inputs: tuple[Ref, ...], payloads: list[Payload], where: str
) -> Node:
    """Convert a NodeDef of a graph or of a function body, with parsed inputs."""
    return Node(proto.name, intern(proto.op), inputs, *_read_tail(proto, payloads, where))


def _read_tail(proto: pb.NodeDef, payloads: list[Payload], where: str) -> _Tail:
    # Names of ops, devices, and attributes repeat: interning them halves the memory of a graph.
    values = proto.attr
    attrs = {intern(k): attr_from_proto(values[k], payloads, where) for k in sorted(values)}
    debug = (proto.experimental_debug_info, proto.experimental_type)
    return intern(proto.device), attrs, debug if any(debug) else _NONE


class NodeReader:
    """A reader of the short nodes of one graph.

    If a node's fields have the usual order, they are parsed from the bytes directly. Ops, inputs,
    and the fields after the inputs, which similar nodes share, are cached. Other nodes are parsed
    as messages.

    Args:
        file: name of the graph, for messages.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        # By the bytes of the whole field, including tag and length.
        self._ops: dict[bytes, str] = {}
        self._refs: dict[bytes, Ref] = {}
        self._tails: dict[bytes, _Tail] = {}
        # By the length of the tail.
        self._forms: dict[int, list[_Form]] = {}

    def nodes(self, run: bytes) -> Iterator[Node]:
        """Yield the nodes of a run of short records; see ``wire.short_records``."""
        for record in short_records(run):
            yield self._scanned(record) or self._parsed(record)

    def _parsed(self, record: bytes) -> Node:
        return node_from_proto(parsed(pb.NodeDef, record, self._file), [], self._file)

    def _scanned(self, record: bytes) -> Node | None:
        """Parse a name, an op, inputs, and the rest; return None for another form.

        Indexing and slicing stop at the end of the record, so a length beyond the end is detected
        by the final check.
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
        fields = self._tails.get(tail) or self._tail(tail, name)
        return None if fields is None else Node(name, op, tuple(inputs), *fields)

    def _op(self, field: bytes) -> str:
        op = self._ops[field] = intern(_text(field, _OP))
        return op

    def _ref(self, field: bytes) -> Ref:
        ref = self._refs[field] = new_ref(_text(field, _INPUT))
        return ref

    def _tail(self, tail: bytes, name: str) -> _Tail | None:
        """Parse the fields after the inputs; return None if they include inputs or names."""
        forms = self._forms.setdefault(len(tail), [])
        for form in forms:
            if tail.startswith(form.head):
                return form.filled(tail)
        if not _is_behind_inputs(tail):
            return None
        proto = parsed(pb.NodeDef, tail, self._file)
        fields = _read_tail(proto, [], f"{self._file}, node {name!r}")
        new = _form_of(tail, *fields) if len(forms) < _MOST_FORMS else None
        if new is not None:
            forms.append(new)
        elif len(self._tails) < _MOST_TAILS and len(tail) < _LONGEST_TAIL:
            self._tails[tail] = fields
        return fields


class _OtherFormError(Exception):
    """A field has a form that only protobuf can parse."""


def _is_behind_inputs(tail: bytes) -> bool:
    """Return whether the tail contains only fields that may follow the inputs."""
    cursor = Cursor(tail)
    try:
        while cursor:
            tag = cursor.varint()
            if tag not in _BEHIND_INPUTS:
                return False
            skip_field(cursor, tag)
    except CorruptFileError:
        return False  # Protobuf reports the error.
    return True


def _text(field: bytes, tag: int) -> str:
    """Return the string of a field whose length takes one byte."""
    if len(field) < 2 or field[0] != tag or field[1] > _ONE_BYTE or len(field) != field[1] + 2:
        raise _OtherFormError
    return field[2:].decode()


class _Form(Struct, frozen=True):
    """Tails that only differ in the content of one tensor at the end.

    Args:
        head: all bytes before the content.
        device: device of each tail.
        attrs: attributes of one of the tails.
        name: name of the attribute with the tensor.
        tensor: the tensor of that tail.
    """

    head: bytes
    device: str
    attrs: Attrs
    name: str
    tensor: Tensor

    def filled(self, tail: bytes) -> _Tail:
        """Convert a tail with this head and the same length."""
        one = self.tensor
        tensor = Tensor(one.dtype, one.shape, content=tail[len(self.head) :])
        return self.device, {**self.attrs, self.name: AttrValue("tensor", tensor)}, _NONE


def _form_of(tail: bytes, device: str, attrs: Attrs, debug: tuple[bytes, bytes]) -> _Form | None:
    """Return the form of a tail; None if it has no such form.

    A tail has one if this package serializes its parts to the same bytes, and other content to the
    same bytes with that content at the end. Then only content follows the head, and all lengths and
    fields in the head are the same for each such tail.
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


_NODE_WRITER_NAME, _NODE_WRITER_OP, _NODE_WRITER_INPUT, _DEVICE, _ATTR, _DEBUG_INFO, _TYPE = range(
    1, 8
)
_TENSOR: Final = 8

# Maximum number of cached values that differ between nodes.
_MOST: Final = 1 << 12


class NodeWriter:
    """A writer of the nodes of one graph.

    The bytes of ops and attributes, which repeat often, are cached.

    Args:
        number: number of the field with the nodes.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._headers: dict[int, bytes] = {}
        self._ops: dict[str, bytes] = {}
        # By identity, because similar nodes often share attributes; kept so that ids stay unique.
        self._attrs: dict[int, tuple[Attrs, bytes]] = {}
        self._values: dict[Hashable, bytes] = {}
        self._heads: dict[Hashable, bytes] = {}
        self._orders: dict[tuple[str, ...], list[str]] = {}

    def record(self, node: Node) -> bytes | None:
        """Return a node's whole field; None if a tensor is large enough for a view."""
        tail = self.tail(node)
        if tail is None:
            return None
        op = self._ops.get(node.op)
        if op is None:
            op = self._ops[node.op] = (
                _node_writer_text(_NODE_WRITER_OP, node.op) if node.op else b""
            )
        pieces = [_node_writer_text(_NODE_WRITER_NAME, node.name) if node.name else b"", op]
        for ref in node.inputs:
            plain = ref.index == 0 and not ref.explicit and not ref.output
            pieces.append(_node_writer_text(_NODE_WRITER_INPUT, ref.node if plain else str(ref)))
        pieces.append(tail)
        body = b"".join(pieces)
        size = len(body)
        header = self._headers.get(size)
        if header is None:
            header = self._headers[size] = field_header(self._number, size)
        return header + body

    def tail(self, node: Node) -> bytes | None:
        """Return the fields after a node's inputs; None if a tensor is large enough for a view."""
        entry = self._attrs.get(id(node.attrs))
        attrs = self._attrs_bytes(node.attrs) if entry is None else entry[1]
        if attrs is None or not (node.device or any(node.debug_info)):
            return attrs
        pieces = [_node_writer_text(_DEVICE, node.device) if node.device else b"", attrs]
        for number, debug in zip((_DEBUG_INFO, _TYPE), node.debug_info, strict=True):
            pieces.append(delimited(number, debug) if debug else b"")
        return b"".join(pieces)

    def _attrs_bytes(self, attrs: Attrs) -> bytes | None:
        pieces = []
        repeated = True
        for name in self._in_order(tuple(attrs)):
            value = attrs[name]
            if value.kind != "tensor":
                pieces.append(self._entry(name, value))
            elif is_large(value.value):
                return None
            else:
                pieces.append(self._tensor_entry(name, value))
                repeated = False
        written = b"".join(pieces)
        if repeated and len(self._attrs) < _MOST:
            self._attrs[id(attrs)] = attrs, written
        return written

    def _in_order(self, names: tuple[str, ...]) -> list[str]:
        """Sort attributes in protobuf's deterministic order: a name precedes its own prefixes."""
        order = self._orders.get(names)
        if order is None:
            # UTF-8 does not contain this byte, the highest one.
            order = sorted(names, key=lambda name: name.encode() + b"\xff")
            if len(self._orders) < _MOST:
                self._orders[names] = order
        return order

    def _entry(self, name: str, value: AttrValue) -> bytes:
        if value.kind not in REPEATED_KINDS:
            return _entry(name, value)
        key = name, value.kind, value.value
        data = self._values.get(key)
        if data is None:
            data = _entry(name, value)
            if len(self._values) < _MOST:
                self._values[key] = data
        return data

    def _tensor_entry(self, name: str, value: AttrValue) -> bytes:
        tensor: Tensor = value.value
        if not is_written_raw(tensor):
            return _entry(name, value)
        content = tensor.raw()
        if not content:
            return _entry(name, value)
        key = name, tensor.dtype, tensor.shape, len(content)
        head = self._heads.get(key)
        if head is None:
            head = content_attr(name, tensor)[0]
            if len(self._heads) < _MOST:
                self._heads[key] = head
        return b"".join((head, content))


def content_attr(name: str, tensor: Tensor) -> tuple[bytes, memoryview]:
    """Return the field of a tensor attribute in two pieces: everything before the content, and it.

    The first piece follows from the name, the type, the shape, and the length of the content.
    """
    proto = pb.TensorProto()
    tensor_to_proto(tensor, proto, with_content=False)
    content = memoryview(tensor.raw()).cast("B")
    head = proto.SerializeToString(deterministic=True) + field_header(CONTENT_FIELD, len(content))
    for number in (_TENSOR, 2):
        head = field_header(number, len(head) + len(content)) + head
    key = delimited(1, name.encode())
    return field_header(_ATTR, len(key) + len(head) + len(content)) + key + head, content


def _entry(name: str, value: AttrValue) -> bytes:
    proto = pb.NodeDef()
    attr_to_proto(value, proto.attr[name])
    return proto.SerializeToString(deterministic=True)


def _node_writer_text(number: int, text: str) -> bytes:
    data = text.encode()
    if len(data) > _ONE_BYTE:
        return delimited(number, data)
    return b"%c%c%b" % (number << 3 | 2, len(data), data)


_KINDS = {
    "s": "string",
    "i": "int",
    "f": "float",
    "b": "bool",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
_LIST_KINDS = {field: f"list({kind})" for field, kind in _KINDS.items()}
_FIELDS = {kind: field for field, kind in _KINDS.items()}
_PLAIN = frozenset({"s", "i", "f", "b"})


def attr_from_proto(proto: pb.AttrValue, payloads: list[Payload], where: str) -> AttrValue:
    """Read one attribute."""
    field = proto.WhichOneof("value")
    if field is None:
        return AttrValue("", None)
    if field in _PLAIN:
        return AttrValue(_KINDS[field], getattr(proto, field))
    if field == "type":
        return attr.dtype(DType(proto.type))
    if field == "list":
        return _list_from_proto(proto.list, payloads, where)
    if field == "placeholder":
        return AttrValue("placeholder", proto.placeholder)
    return AttrValue(_KINDS[field], _reader(field, payloads, where)(getattr(proto, field)))


def attr_to_proto(value: AttrValue, proto: pb.AttrValue) -> None:
    """Fill an empty AttrValue message."""
    kind = value.kind
    if not kind:
        return
    if kind.startswith("list"):
        proto.list.SetInParent()
        _list_to_proto(value, proto.list)
    elif kind == "placeholder":
        proto.placeholder = value.value
    elif kind == "type":
        proto.type = value.value.value
    elif kind == "shape":
        proto.shape.SetInParent()
        shape_to_proto(value.value, proto.shape)
    elif kind == "tensor":
        tensor_to_proto(value.value, proto.tensor)
    elif kind == "func":
        proto.func.SetInParent()
        _func_to_proto(value.value, proto.func)
    else:
        setattr(proto, _FIELDS[kind], value.value)


def shape_from_proto(proto: pb.TensorShapeProto) -> TensorShape:
    """Read a shape; all negative sizes mean unknown."""
    if proto.unknown_rank:
        return None
    return tuple(max(d.size, -1) for d in proto.dim)


def shape_to_proto(shape: TensorShape, proto: pb.TensorShapeProto) -> None:
    """Fill an empty shape message."""
    if shape is None:
        proto.unknown_rank = True
        return
    for size in shape:
        proto.dim.add().size = size


def _reader(field: str, payloads: list[Payload], where: str) -> Callable[[Any], Any]:
    if field == "tensor":
        return lambda proto: tensor_from_proto(proto, payloads, where)
    if field == "shape":
        return shape_from_proto
    if field == "type":
        return DType
    if field == "func":
        return lambda proto: FuncRef(
            proto.name,
            {k: attr_from_proto(proto.attr[k], payloads, where) for k in sorted(proto.attr)},
        )
    return lambda plain: plain


def _list_from_proto(
    proto: pb.AttrValue.ListValue, payloads: list[Payload], where: str
) -> AttrValue:
    filled = [descriptor.name for descriptor, _ in proto.ListFields()]
    if not filled:
        return AttrValue("list", ())
    if len(filled) > 1:
        message = f"a list attribute mixes {' and '.join(filled)}"
        raise CorruptFileError(message, "the file is damaged", where)
    field = filled[0]
    read = _reader(field, payloads, where)
    return AttrValue(_LIST_KINDS[field], tuple(read(x) for x in getattr(proto, field)))


def _list_to_proto(value: AttrValue, proto: pb.AttrValue.ListValue) -> None:
    if value.kind == "list":
        return
    field = _FIELDS[value.kind[len("list(") : -1]]
    target = getattr(proto, field)
    if field in _PLAIN:
        target.extend(value.value)
        return
    for item in value.value:
        if field == "type":
            target.append(item.value)
        elif field == "shape":
            shape_to_proto(item, target.add())
        elif field == "tensor":
            tensor_to_proto(item, target.add())
        else:
            _func_to_proto(item, target.add())


def _func_to_proto(func: FuncRef, proto: pb.NameAttrList) -> None:
    proto.name = func.name
    for name in sorted(func.attrs):
        attr_to_proto(func.attrs[name], proto.attr[name])

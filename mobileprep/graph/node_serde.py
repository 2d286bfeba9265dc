"""Read and write NodeDefs and their attributes."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    CONTENT_FIELD,
    Payload,
    delimited,
    field_header,
)
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef, TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import (
    Tensor,
    tensor_from_proto,
    tensor_to_proto,
)

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
    # Names of ops, devices, and attributes repeat: interning them halves the memory of a graph.
    values = proto.attr
    attrs = {intern(k): attr_from_proto(values[k], payloads, where) for k in sorted(values)}
    debug = (proto.experimental_debug_info, proto.experimental_type)
    return Node(proto.name, intern(proto.op), inputs, intern(proto.device), attrs, debug)


_ATTR, _TENSOR = 5, 8


def attr_head(name: str, tensor: Tensor) -> bytes:
    """Return the field of a tensor attribute up to the content of the tensor."""
    proto = pb.TensorProto()
    tensor_to_proto(tensor, proto, with_content=False)
    size = memoryview(tensor.raw()).nbytes
    head = proto.SerializeToString(deterministic=True) + field_header(CONTENT_FIELD, size)
    for number in (_TENSOR, 2):
        head = field_header(number, len(head) + size) + head
    key = delimited(1, name.encode())
    return field_header(_ATTR, len(key) + len(head) + size) + key + head


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

"""AttrValue messages to attribute records and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import Payload
from mobileprep.ir import attrs as attr
from mobileprep.ir.attrs import AttrValue, FuncRef, TensorShape
from mobileprep.ir.serde_tensor import tensor_from_proto, tensor_to_proto

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
    """Read one attribute.

    Raises:
        CorruptFileError: a tensor's content does not fit, or a list mixes kinds.
        InvalidGraphError: a tensor's shape is impossible.
    """
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
    """Read a shape; sizes below zero all mean unknown."""
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

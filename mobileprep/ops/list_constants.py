"""Constants that are TensorLists: how files write them, and the lists that kernels work on.

Source: ``TensorList::Encode`` and ``Decode`` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import Cursor, encode_varint
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import shape_from_proto, shape_to_proto
from mobileprep.graph.tensor import Array, Tensor

_NAME: Final = "tensorflow::TensorList"
_ALL_BITS: Final = (1 << 64) - 1
_Message = TypeVar("_Message", pb.TensorProto, pb.TensorShapeProto)


def list_constant(node: Node, handle: Array) -> Tensor:
    """The constant of a list none of whose elements is set."""
    from mobileprep.ops.data_flow.tensor_list import TensorList

    held = handle.item() if handle.dtype == object and handle.size == 1 else None
    if (
        not isinstance(held, TensorList)
        or any(x is not None for x in held.items)
        or "element_dtype" not in node.attrs
    ):
        message = "only lists without values are written as constants"
        raise UnsupportedError(message)
    shape = pb.TensorShapeProto()
    shape_to_proto(held.shape, shape)
    count, element = len(held.items), node.attr_dtype("element_dtype").value
    numbers = (count, *range(count), element, held.limit & _ALL_BITS)
    proto = pb.TensorProto(dtype=DType.VARIANT.value)  # type: ignore[arg-type]
    proto.tensor_shape.SetInParent()
    written = proto.variant_val.add(type_name=_NAME)
    written.metadata = b"".join(map(encode_varint, numbers)) + shape.SerializeToString()
    return Tensor(DType.VARIANT, (), opaque=proto.SerializeToString(deterministic=True))


def constant_array(tensor: Tensor) -> Array:
    """A constant's elements; those of a variant are the handle of the list that it holds."""
    if tensor.dtype is not DType.VARIANT:
        return tensor.array()
    return _list_handle(tensor)


def _list_handle(tensor: Tensor) -> Array:
    from mobileprep.ops.data_flow.tensor_array import handle_of
    from mobileprep.ops.data_flow.tensor_list import MOST_ELEMENTS, TensorList

    values = _parsed(pb.TensorProto, tensor.opaque).variant_val
    if len(values) != 1 or values[0].type_name != _NAME or values[0].tensors:
        message = "of variants only TensorLists without values can be read"
        raise UnsupportedError(message)
    cursor = Cursor(values[0].metadata, file="a TensorList")
    unset = cursor.varint()
    if unset > min(MOST_ELEMENTS, cursor.end):
        message = f"a TensorList of {unset} elements in {cursor.end} bytes"
        raise UnsupportedError(message)
    for _ in range(unset):
        cursor.varint()
    element, limit = DType(cursor.varint()), cursor.varint()
    shape = _parsed(pb.TensorShapeProto, bytes(cursor.take(cursor.end - cursor.position)))
    limit -= (limit >> 63) << 64
    kind = np.dtype(element.numpy or object)
    return handle_of(TensorList((None,) * unset, kind, shape_from_proto(shape), limit))


def _parsed(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        message = "the bytes of a TensorList are no protobuf message"
        raise CorruptFileError(message, "the file is damaged") from error

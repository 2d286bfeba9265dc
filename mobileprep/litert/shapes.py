"""Layout helpers: shapes and weights in the order that LiteRT expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import OptionValue
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import NAMES

CHANNELS_FIRST: Final = ("NCHW", "NCDHW")


def permuted(shape: TensorShape, order: Sequence[int]) -> TensorShape:
    """Return the shape after a transposition."""
    return None if shape is None else tuple(shape[i] for i in order)


def transposed(scope: Scope, value: Value, order: Sequence[int]) -> Value:
    """Transpose a value; constants are transposed at conversion time."""
    if value.data is not None:
        return scope.constant(np.transpose(value.data, order), value.name, value.dtype)
    shape = permuted(value.shape, order)
    inputs = [value, scope.integers_constant(order, "permutation")]
    return scope.emit("TRANSPOSE", inputs, shape)


def reshaped(scope: Scope, value: Value, shape: Sequence[int]) -> Value:
    """Reshape a value; one size may be -1."""
    if value.data is not None:
        return scope.constant(value.data.reshape(shape), value.name, value.dtype)
    sizes = tuple(shape)
    inputs = [value, scope.integers_constant(sizes, "shape")]
    return scope.emit("RESHAPE", inputs, sizes, new_shape=sizes)


def known_shape(value: Value) -> tuple[int, ...]:
    """Return the shape, or raise ``CannotExpressError`` if even the rank is unknown."""
    if value.shape is None:
        message = "the rank of its input is not known"
        raise CannotExpressError(message, GIVE_SHAPES)
    return value.shape


def known_size(value: Value, axis: int) -> int:
    """Return the size of a dimension, or raise ``CannotExpressError`` if it is unknown."""
    size = -1 if value.shape is None else value.shape[axis]
    if size < 0:
        message = "the sizes that it works along are not known"
        raise CannotExpressError(message, GIVE_SHAPES)
    return size


def as_int32(scope: Scope, node: Node, index: int, value: Value) -> Value:
    """Cast an input of sizes or indices to int32, at conversion time if its elements are known."""
    if value.dtype is DType.INT32:
        return value
    constant = scope.known_value(node, index)
    if constant is not None:
        return scope.integers_constant(constant, value.name)
    return cast(scope, value, DType.INT32)


def cast(scope: Scope, value: Value, dtype: DType) -> Value:
    """Emit a CAST."""
    kinds = {"in_data_type": NAMES[value.dtype], "out_data_type": NAMES[dtype]}
    return scope.emit("CAST", [value], value.shape, dtype, **kinds)


def gather(scope: Scope, value: Value, indices: Value, axis: int = 0) -> Value:
    """Emit a GATHER of elements along an axis of a tensor of known rank."""
    sizes = value.shape or ()
    shape = (*sizes[:axis], *(indices.shape or ()), *sizes[axis + 1 :])
    return scope.emit("GATHER", [value, indices], shape, axis=axis, batch_dims=0)


def sizes_of(scope: Scope, value: Value) -> Value:
    """Emit a SHAPE, with sizes in int32."""
    rank = -1 if value.rank is None else value.rank
    return scope.emit("SHAPE", [value], (rank,), DType.INT32, out_type="INT32")


def is_channels_first(node: Node) -> bool:
    """Return whether a node's tensors have their channels before height and width."""
    return node.attr_str("data_format", "NHWC") in CHANNELS_FIRST


def to_last(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves channels from the second axis to the last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves channels from the last axis to the second."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(scope: Scope, node: Node, value: Value, rank: int = 4) -> Value:
    """Transpose a node's input to channels last."""
    return transposed(scope, value, to_last(rank)) if is_channels_first(node) else value


def last_shape(node: Node, shape: TensorShape, rank: int = 4) -> TensorShape:
    """Return the shape of a node's output with its channels last."""
    return permuted(shape, to_last(rank)) if is_channels_first(node) else shape


def as_given(scope: Scope, node: Node, value: Value, rank: int = 4) -> Value:
    """Transpose a channels-last result to the layout that the node's consumers expect."""
    return transposed(scope, value, to_first(rank)) if is_channels_first(node) else value


def emit_as_given(
    scope: Scope,
    node: Node,
    code: str,
    inputs: Sequence[Value | None],
    dtype: DType,
    rank: int = 4,
    /,
    **options: OptionValue,
) -> Value:
    """Emit an operator on channels-last inputs, and transpose its output for the consumers."""
    shape = last_shape(node, scope.output_shape(node), rank)
    return as_given(scope, node, scope.emit(code, inputs, shape, dtype, **options), rank)


def spatial(node: Node, name: str, rank: int = 4) -> tuple[int, ...]:
    """Return an attribute's values along height and width, or depth, height, and width."""
    values = node.attr_ints(name, (1,) * rank)
    if len(values) != rank:
        reason = f"its {name} are {list(values)}"
        raise CannotExpressError(reason, f"give {rank} numbers")
    first = is_channels_first(node)
    inner, outer = (values[2:], values[:2]) if first else (values[1:-1], (values[0], values[-1]))
    if any(value != 1 for value in outer):
        reason = f"its {name} {list(values)} are not 1 along batch and channels"
        raise CannotExpressError(reason, "LiteRT moves along height and width alone")
    return inner


def padded(scope: Scope, node: Node, value: Value, fill: float | None = None) -> tuple[Value, str]:
    """Apply explicit padding to a channels-last input; return it and the remaining padding."""
    padding = node.attr_str("padding")
    if padding != "EXPLICIT":
        return value, padding
    amounts = np.array(node.attr_ints("explicit_paddings", ()), np.int64)
    rank = value.rank or amounts.size // 2
    if amounts.size != 2 * rank:
        reason = f"it has {amounts.size} explicit paddings for {rank} dimensions"
        raise CannotExpressError(reason, "give two for each dimension")
    pairs = amounts.reshape(rank, 2)
    if is_channels_first(node):
        pairs = pairs[list(to_last(rank))]
    return pad(scope, value, pairs, fill), "VALID"


def pad(scope: Scope, value: Value, pairs: np.ndarray, fill: float | None = None) -> Value:
    """Pad a value, unless all amounts are 0."""
    if not pairs.any():
        return value
    shape = value.shape
    if shape is not None:
        sums = zip(shape, pairs, strict=True)
        shape = tuple(-1 if d < 0 else d + int(p.sum()) for d, p in sums)
    amounts = scope.integers_constant(pairs, "paddings")
    if fill is None:
        return scope.emit("PAD", [value, amounts], shape)
    filler = scope.constant(np.array(fill, value.dtype.numpy), "padding_value")
    return scope.emit("PADV2", [value, amounts, filler], shape)

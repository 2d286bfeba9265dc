"""Pooling and normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.ops.crops import windows
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import (
    as_given,
    channels_last,
    gather,
    known_size,
    last_shape,
    padded,
    reshaped,
    spatial,
)
from mobileprep.litert.types import need_float

_CODES = {"MaxPool": "MAX_POOL_2D", "AvgPool": "AVERAGE_POOL_2D"}
# Rank of 3D inputs: batch, depth, height, width, and channels.
_RANK: Final = 5


@lowering("MaxPool", "AvgPool")
def pool(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit MAX_POOL_2D or AVERAGE_POOL_2D; for integers, MAXIMUM of each window's elements."""
    if node.op == "MaxPool" and inputs[0].dtype in (DType.INT32, DType.INT64):
        return _pooled_integers(scope, node, inputs[0])
    need_float(inputs)
    lowest = float(np.finfo(np.float32).min)
    image, padding = padded(scope, node, channels_last(scope, node, inputs[0]), lowest)
    shape = last_shape(node, scope.output_shape(node))
    window = _Window(spatial(node, "ksize"), spatial(node, "strides"), padding)
    return as_given(scope, node, _pooled(scope, _CODES[node.op], image, shape, window))


def _pooled_integers(scope: Scope, node: Node, value: Value) -> Value:
    lowest = int(np.iinfo(np.int32 if value.dtype is DType.INT32 else np.int64).min)
    image, padding = padded(scope, node, channels_last(scope, node, value), lowest)
    shape, steps = last_shape(node, scope.output_shape(node)), (1, 1)
    sizes, strides = spatial(node, "ksize"), spatial(node, "strides")
    parts, _ = windows(scope, image, shape, (sizes, strides, steps), padding, lowest)
    largest, work = parts[0], Arithmetic(scope, value.dtype)
    for part in parts[1:]:
        largest = work.maximum(largest, part)
    return as_given(scope, node, largest)


@lowering("MaxPoolWithArgmax")
def pool_with_places(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit MAX_POOL_2D, and ARG_MAX of the elements of each window."""
    need_float(inputs)
    (image,), shape = inputs, scope.output_shape(node)
    sizes, strides, padding = (
        spatial(node, "ksize"),
        spatial(node, "strides"),
        node.attr_str("padding"),
    )
    lowest = float(np.finfo(np.float32).min)
    steps = (sizes, strides, (1, 1))
    parts, before = windows(scope, image, shape, steps, padding, lowest)
    assert shape is not None
    pooled = _pooled(scope, _CODES["MaxPool"], image, shape, _Window(sizes, strides, padding))
    count, work, whole = len(parts), IndexArithmetic(scope), (*shape, len(parts))
    packed = scope.emit("PACK", parts, whole, values_count=count, axis=len(shape))
    operands = [packed, work.number(len(shape))]
    largest = scope.emit("ARG_MAX", operands, shape, DType.INT32, output_type="INT32")
    batch, height, width, depth = work.sizes(image)
    wide = known_size(image, 2)
    rows, columns = (np.arange(shape[1 + axis]) * strides[axis] - before[axis] for axis in (0, 1))
    corners = work.number((rows[:, None] * wide + columns)[..., None])
    inside = work.number(np.add.outer(np.arange(sizes[0]) * wide, np.arange(sizes[1])).reshape(-1))
    place = work.add(gather(scope, inside, largest), corners)
    place = work.add(work.mul(place, depth), work.range(depth))
    if node.attr_bool("include_batch_in_index", False):
        elements = work.mul(work.mul(height, width), depth)
        start = work.mul(work.reshaped(work.range(batch), (-1, 1, 1, 1)), elements)
        place = work.add(place, start)
    return pooled, Arithmetic(scope).cast(place, node.attr_dtype("Targmax", DType.INT64))


@lowering("MaxPool3D", "AvgPool3D")
def pool_of_cubes(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Pool along height and width, then along depth; means exclude padding."""
    need_float(inputs)
    cubes = channels_last(scope, node, inputs[0], _RANK)
    depth, height, width, channels = (known_size(cubes, axis) for axis in range(1, _RANK))
    shape = last_shape(node, scope.output_shape(node), _RANK)
    assert shape is not None
    batch, deep, high, wide, _ = shape
    sizes, strides = spatial(node, "ksize", _RANK), spatial(node, "strides", _RANK)
    padding, code = node.attr_str("padding"), _CODES[node.op.removesuffix("3D")]
    image = reshaped(scope, cubes, (_times(batch, depth), height, width, channels))
    flat = _Window(sizes[1:], strides[1:], padding)
    image = _pooled(scope, code, image, (_times(batch, depth), high, wide, channels), flat)
    image = reshaped(scope, image, (batch, depth, high * wide, channels))
    along = _Window((sizes[0], 1), (strides[0], 1), padding)
    image = _pooled(scope, code, image, (batch, deep, high * wide, channels), along)
    return as_given(scope, node, reshaped(scope, image, shape), _RANK)


class _Window(NamedTuple):
    """The window of a pool along height and width."""

    sizes: Sequence[int]
    strides: Sequence[int]
    padding: str


def _pooled(scope: Scope, code: str, image: Value, shape: TensorShape, window: _Window) -> Value:
    return scope.emit(
        code,
        [image],
        shape,
        padding=window.padding,
        stride_h=window.strides[0],
        stride_w=window.strides[1],
        filter_height=window.sizes[0],
        filter_width=window.sizes[1],
    )


def _times(open_size: int, size: int) -> int:
    return -1 if open_size < 0 else open_size * size


@lowering("LRN")
def local_response_normalization(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need_float(inputs)
    return scope.emit(
        "LOCAL_RESPONSE_NORMALIZATION",
        inputs,
        scope.output_shape(node),
        radius=node.attr_int("depth_radius", 5),
        bias=node.attr_float("bias", 1.0),
        alpha=node.attr_float("alpha", 1.0),
        beta=node.attr_float("beta", 0.5),
    )


_EPSILON: Final = 1e-4
_MOMENTS: Final = [0, 1, 2]


@lowering("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit MUL and ADD; in training mode, compute the batch's moments with MEAN."""
    need_float(inputs)
    readers = scope.graph.consumers.get(node.name, ())
    if any(r.node == node.name and r.index > 0 for n in readers for r in n.inputs):
        reason = "its moments are read"
        raise CannotExpressError(reason, "cut the graph before the normalization")
    image, scale, offset, mean, variance = inputs[:5]
    image = channels_last(scope, node, image)
    shape = last_shape(node, scope.output_shape(node))
    if node.attr_bool("is_training", True):
        axes = scope.integers_constant(_MOMENTS, "axes")
        mean = _reduced(scope, image, axes)
        spread = scope.emit("SQUARED_DIFFERENCE", [image, mean], shape)
        variance = _reduced(scope, spread, axes)
    epsilon = max(node.attr_float("epsilon", _EPSILON), 0.0)
    factor = _factor(scope, scale, variance, epsilon)
    scaled = _binary(scope, "MUL", image, factor, image)
    shift = _binary(scope, "SUB", offset, _binary(scope, "MUL", mean, factor, scale), scale)
    return as_given(scope, node, _binary(scope, "ADD", scaled, shift, image))


def _reduced(scope: Scope, value: Value, axes: Value) -> Value:
    shape = None if value.shape is None else value.shape[-1:]
    return scope.emit("MEAN", [value, axes], shape, keep_dims=False)


def _factor(scope: Scope, scale: Value, variance: Value, epsilon: float) -> Value:
    """Return the multiplier of each channel."""
    if variance.data is not None:
        factors = 1 / np.sqrt(variance.data + np.float32(epsilon))
        return _binary(scope, "MUL", scope.constant(factors.astype(np.float32)), scale, scale)
    total = _binary(scope, "ADD", variance, Arithmetic(scope).number(epsilon), variance)
    return _binary(scope, "MUL", Arithmetic(scope).one("RSQRT", total), scale, scale)


_FUNCTIONS: Final = {"MUL": np.multiply, "SUB": np.subtract, "ADD": np.add}


def _binary(scope: Scope, code: str, a: Value, b: Value, like: Value) -> Value:
    """Emit ADD, SUB, or MUL; constants are folded."""
    if a.data is not None and b.data is not None:
        return scope.constant(_FUNCTIONS[code](a.data, b.data))
    return scope.emit(code, [a, b], like.shape, like.dtype)

"""Shapes of tensors: querying, changing, broadcasting, and transposing them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    dimensions,
    integers,
    numpy_attr,
    scalar,
)
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    MAX_RANK,
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    ShapeConflictError,
    axis_index,
    divide_dim,
    element_count,
    input_with_rank,
    scalars_only,
    shape_fn,
    shape_in,
    two_vectors,
    unknown_dims,
    with_rank,
)


def _out_type(node: Node) -> np.dtype[Any]:
    return numpy_attr(node, "out_type", DType.INT32)


@kernel("Shape", flops=free)
def shape(node: Node, x: Array) -> Array:
    """Return the dimensions of x as a vector."""
    return np.array(x.shape, dtype=_out_type(node))


@shape_fn("Shape")
def shape_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector with an element for each dimension."""
    return [_rank_vector(args.shapes[0])]


def _rank_vector(of: TensorShape) -> TensorShape:
    return (UNKNOWN if of is None else len(of),)


@kernel("ShapeN", flops=free)
def shape_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """Return the dimensions of each input."""
    return tuple(np.array(x.shape, dtype=_out_type(node)) for x in inputs)


@shape_fn("ShapeN")
def shape_n_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector for each input."""
    return [_rank_vector(s) for s in args.shapes]


@kernel("Size", shape=scalars_only, flops=free)
def size(node: Node, x: Array) -> Array:
    """Return the number of elements."""
    return np.array(x.size, dtype=_out_type(node))


@kernel("Rank", shape=scalars_only, flops=free)
def rank(node: Node, x: Array) -> Array:
    """Return the number of axes."""
    return np.array(x.ndim, dtype=np.int32)


@kernel("Reshape", flops=free)
def reshape(node: Node, x: Array, dims: Array) -> Array:
    """Reshape x; one dimension may be -1."""
    target = list(integers(dims))
    if min(target, default=0) < UNKNOWN:
        message = f"{target} is not a shape"
        raise ValueError(message)
    if target.count(UNKNOWN) == 1:
        target[target.index(UNKNOWN)] = _inferred_dim(x.shape, [d for d in target if d != UNKNOWN])
    return x.reshape(target)


def _inferred_dim(source: tuple[int, ...], others: list[int]) -> int:
    """Return the dimension for -1; next to a 0, from the nonzero lengths, like TensorFlow."""
    count = math.prod(d for d in source if d or 0 not in others)
    return count // math.prod(d for d in others if d)


@shape_fn("Reshape")
def reshape_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape in the second input; the element count determines one missing size."""
    source, target = args.shapes[0], args.as_shape(1)
    if source is None or target is None:
        return [target]
    known_count = math.prod(d for d in target if d >= 0)
    missing = target.count(UNKNOWN)
    count = element_count(source)
    if count < 0 or missing > 1:
        return [target]
    if not missing:
        if known_count != count:
            message = f"{count} elements cannot take the shape {list(target)}"
            raise ShapeConflictError(message)
        return [target]
    if not known_count:
        return [target]
    inferred = divide_dim(count, known_count)
    return [tuple(inferred if d == UNKNOWN else d for d in target)]


@kernel("Squeeze", flops=free)
def squeeze(node: Node, x: Array) -> Array:
    """Remove axes of length 1: the named ones, or all."""
    axes = tuple(axis_of(a, x.ndim) for a in _squeezed(node))
    return x.squeeze(axes or None)


@shape_fn("Squeeze")
def squeeze_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without dimensions of size 1: the named ones, or all."""
    source = args.shapes[0]
    named = args.node.attr_ints("squeeze_dims", ())
    if source is None:
        return [None]
    if not named:
        # Any unknown size might be 1.
        return [None if UNKNOWN in source else tuple(d for d in source if d != 1)]
    axes = {axis_index(a, len(source)) for a in named}
    if any(source[a] not in (1, UNKNOWN) for a in axes):
        message = f"axes {sorted(axes)} of {list(source)} are not all of size 1"
        raise ShapeConflictError(message)
    return [tuple(d for i, d in enumerate(source) if i not in axes)]


def _squeezed(node: Node) -> tuple[int, ...]:
    name = "axis" if "axis" in node.attrs else "squeeze_dims"
    return node.attr_ints(name, ())


@kernel("ExpandDims", flops=free)
def expand_dims(node: Node, x: Array, axis: Array) -> Array:
    """Add an axis of length 1 to x."""
    return np.expand_dims(x, axis_of(scalar(axis), x.ndim + 1))


@shape_fn("ExpandDims")
def expand_dims_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with an additional dimension of size 1."""
    source, axis = args.shapes[0], args.scalar(1)
    if source is None:
        return [None]
    if axis is None:
        return [unknown_dims(len(source) + 1)]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], 1, *source[axis:])]


@kernel("InvertPermutation", shape=input_with_rank(1), flops=free)
def invert_permutation(node: Node, order: Array) -> Array:
    """Return the inverse of a permutation."""
    out = np.full_like(order, -1)
    values = integers(order)
    if sorted(values) != list(range(len(values))):
        message = f"{list(values)} is not a permutation"
        raise ValueError(message)
    out[order] = np.arange(len(values), dtype=order.dtype)
    return out


@kernel("BroadcastTo", shape=shape_in(1), flops=free)
def broadcast_to(node: Node, x: Array, dims: Array) -> Array:
    """Repeat x along axes of length 1."""
    return np.broadcast_to(x, dimensions(dims, x.dtype))


@kernel("BroadcastArgs", flops=free)
def broadcast_args(node: Node, x: Array, y: Array) -> Array:
    """Return the shape that two shapes broadcast to."""
    return np.array(np.broadcast_shapes(integers(x), integers(y)), dtype=x.dtype)


@shape_fn("BroadcastArgs")
def broadcast_args_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector of the larger rank."""
    x, y = with_rank(args.shapes[0], 1)[0], with_rank(args.shapes[1], 1)[0]
    return [(UNKNOWN if min(x, y) < 0 else max(x, y),)]


shape_fn("BroadcastGradientArgs")(two_vectors)


@kernel("Transpose", "ConjugateTranspose", flops=free)
def transpose(node: Node, x: Array, order: Array) -> Array:
    """Permute the axes of x."""
    moved: Array = x.transpose(integers(order))
    # numpy would convert booleans to integers.
    if node.op == "ConjugateTranspose" and x.dtype.kind == "c":
        moved = np.asarray(np.conj(moved))
    return moved


@shape_fn("Transpose", "ConjugateTranspose")
def transpose_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape with permuted dimensions."""
    source, order = args.shapes[0], args.integers(1)
    if order is not None:
        source = with_rank(source, len(order))
        if sorted(axis_index(a, len(order)) for a in order) != list(range(len(order))):
            message = f"{list(order)} is not a permutation of {len(order)} axes"
            raise ShapeConflictError(message)
        return [tuple(source[a] for a in order)]
    if source is None:
        axes = with_rank(args.shapes[1], 1)[0]
        return [unknown_dims(axes) if 0 <= axes <= MAX_RANK else None]
    # Permuting a single dimension, or equal ones, does not change the shape.
    return [source if len(set(source)) <= 1 else unknown_dims(len(source))]

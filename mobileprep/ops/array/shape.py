"""Ops on shapes, and of ops that give the same elements another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_allocation,
    dimensions,
    integers,
    same_type,
    scalar,
)
from mobileprep.ops.common_costs import free, per_output
from mobileprep.ops.common_shapes import declared_shape
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    axis_index,
    divide_dim,
    element_count,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_MAX_RANK = 255


_INT32 = np.dtype(np.int32)


def _out_type(node: Node) -> np.dtype[Any]:
    found = node.attrs.get("out_type")
    kind: np.dtype[Any] | None = found.value.numpy if found is not None else None
    return kind if kind is not None else _INT32


@kernel("Shape")
def shape(node: Node, x: Array) -> Array:
    """The dimensions of x, a vector."""
    return np.array(x.shape, dtype=_out_type(node))


@shape_fn("Shape")
def shape_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector with an element for each dimension."""
    return [_rank_vector(args.shapes[0])]


flop_rule("Shape")(free)


def _rank_vector(of: TensorShape) -> TensorShape:
    return (UNKNOWN if of is None else len(of),)


@kernel("ShapeN")
def shape_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """The dimensions of each input."""
    return tuple(np.array(x.shape, dtype=_out_type(node)) for x in inputs)


@shape_fn("ShapeN")
def shape_n_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector for each input."""
    return [_rank_vector(s) for s in args.shapes]


flop_rule("ShapeN")(free)


@kernel("Size")
def size(node: Node, x: Array) -> Array:
    """The number of elements."""
    return np.array(x.size, dtype=_out_type(node))


@shape_fn("Size")
def rank_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


flop_rule("Size")(free)


@kernel("Rank")
def rank(node: Node, x: Array) -> Array:
    """The number of axes."""
    return np.array(x.ndim, dtype=_INT32)


shape_fn("Rank")(rank_shape)


flop_rule("Rank")(free)


@kernel("Reshape")
def reshape(node: Node, x: Array, dims: Array) -> Array:
    """The same elements under another shape, of which one dimension may be -1."""
    wanted = list(integers(dims))
    if wanted.count(-1) == 1:
        rest = math.prod(d for d in wanted if d != -1)
        wanted[wanted.index(-1)] = x.size // rest if rest else 0
    return x.reshape(wanted)


@shape_fn("Reshape")
def reshape_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds; one missing size follows from the element count."""
    source, target = args.shapes[0], args.as_shape(1)
    if source is None or target is None:
        return [target]
    known = math.prod(d for d in target if d >= 0)
    missing = target.count(UNKNOWN)
    count = element_count(source)
    if count < 0 or missing > 1:
        return [target]
    if not missing:
        if known != count:
            message = f"{count} elements cannot take the shape {list(target)}"
            raise ShapeConflictError(message)
        return [target]
    if not known:
        return [target]
    inferred = divide_dim(count, known)
    return [tuple(inferred if d == UNKNOWN else d for d in target)]


flop_rule("Reshape")(free)


@kernel("Squeeze")
def squeeze(node: Node, x: Array) -> Array:
    """x without axes of length 1: the named ones, or all."""
    axes = tuple(axis_of(a, x.ndim) for a in _squeezed(node))
    return x.squeeze(axes or None)


@shape_fn("Squeeze")
def squeeze_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input without dimensions of size 1: those named, or all."""
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


flop_rule("Squeeze")(free)


def _squeezed(node: Node) -> tuple[int, ...]:
    name = "axis" if "axis" in node.attrs else "squeeze_dims"
    return node.attr_ints(name, ())


@kernel("ExpandDims")
def expand_dims(node: Node, x: Array, axis: Array) -> Array:
    """x with a new axis of length 1."""
    return np.expand_dims(x, axis_of(scalar(axis), x.ndim + 1))


@shape_fn("ExpandDims")
def expand_dims_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input with one more dimension of size 1."""
    source, axis = args.shapes[0], args.scalar(1)
    if source is None:
        return [None]
    if axis is None:
        return [unknown_dims(len(source) + 1)]
    axis = axis_index(axis, len(source) + 1)
    return [(*source[:axis], 1, *source[axis:])]


flop_rule("ExpandDims")(free)


@kernel("Transpose", "ConjugateTranspose")
def transpose(node: Node, x: Array, order: Array) -> Array:
    """x with its axes in another order."""
    moved: Array = x.transpose(integers(order))
    if node.op == "ConjugateTranspose":
        moved = np.asarray(np.conj(moved))
    return moved


@shape_fn("Transpose", "ConjugateTranspose")
def transpose_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's dimensions in another order."""
    source, order = args.shapes[0], args.integers(1)
    if order is not None:
        source = with_rank(source, len(order))
        if sorted(a % len(order) for a in order) != list(range(len(order))):
            message = f"{list(order)} is no order of {len(order)} axes"
            raise ShapeConflictError(message)
        return [tuple(source[a] for a in order)]
    if source is None:
        axes = with_rank(args.shapes[1], 1)[0]
        return [unknown_dims(axes) if 0 <= axes < _MAX_RANK else None]
    # One dimension has only one order; of equal ones any order is the same.
    return [source if len(set(source)) <= 1 else unknown_dims(len(source))]


flop_rule("ConjugateTranspose", "Transpose")(free)


@kernel("InvertPermutation")
def invert_permutation(node: Node, order: Array) -> Array:
    """The permutation that undoes another."""
    out = np.full_like(order, -1)
    values = integers(order)
    if sorted(values) != list(range(len(values))):
        message = f"{list(values)} is no permutation"
        raise ValueError(message)
    out[order] = np.arange(len(values), dtype=order.dtype)
    return out


@shape_fn("InvertPermutation")
def invert_permutation_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the input's size."""
    return [with_rank(args.shapes[0], 1)]


flop_rule("InvertPermutation")(free)


@kernel("BroadcastTo")
def broadcast_to(node: Node, x: Array, dims: Array) -> Array:
    """x repeated along axes of length 1."""
    return np.broadcast_to(x, dimensions(dims, x.dtype))


@shape_fn("BroadcastTo")
def fill_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that an input holds."""
    return [args.as_shape(1 if args.node.op == "BroadcastTo" else 0)]


flop_rule("BroadcastTo")(free)


@kernel("BroadcastArgs")
def broadcast_args(node: Node, x: Array, y: Array) -> Array:
    """The shape that two shapes broadcast to."""
    return np.array(np.broadcast_shapes(integers(x), integers(y)), dtype=x.dtype)


@shape_fn("BroadcastArgs")
def broadcast_args_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the larger rank."""
    x, y = with_rank(args.shapes[0], 1)[0], with_rank(args.shapes[1], 1)[0]
    return [(UNKNOWN if min(x, y) < 0 else max(x, y),)]


flop_rule("BroadcastArgs")(free)


@kernel("Fill")
def fill(node: Node, dims: Array, value: Array) -> Array:
    """One value under a shape."""
    return np.full(dimensions(dims, value.dtype), value, dtype=value.dtype)


shape_fn("Fill")(fill_shape)


flop_rule("Fill")(free)


@kernel("Empty")
def empty(node: Node, dims: Array) -> Array:
    """Zeros under a shape: the op leaves open what its tensor holds."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    return np.zeros(dimensions(dims, kind), dtype=kind)


shape_fn("Empty")(fill_shape)


flop_rule("Empty")(free)


@kernel("FakeParam")
def fake_param(node: Node) -> Array:
    """In place of a tensor that the other branch of a conditional gives: nothing reads it."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    shape = tuple(max(d, 0) for d in node.attr_shape("shape") or ())
    check_allocation(shape, kind)
    return np.zeros(shape, dtype=kind)


shape_fn("FakeParam")(declared_shape)


flop_rule("FakeParam")(free)


@kernel("Range")
def arange(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    """Numbers from a start up to a limit, exclusive."""
    same_type(node, start, limit, delta)
    first, last, step = (x.reshape(()).item() for x in (start, limit, delta))
    if step == 0:
        message = "the step of a range cannot be 0"
        raise ValueError(message)
    count = max(math.ceil((last - first) / step), 0) if start.dtype.kind == "f" else 0
    if start.dtype.kind != "f":
        count = len(range(first, last, step))
    check_allocation((count,), start.dtype)
    out: Array = start + np.arange(count, dtype=start.dtype) * delta
    return out


@shape_fn("Range")
def range__shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector whose size follows from start, limit and step."""
    values = [args.value(i) for i in range(3)]
    if any(v is None or v.size != 1 for v in values):
        return [(UNKNOWN,)]
    start, limit, step = (v.reshape(()).item() for v in values if v is not None)
    if step == 0 or (limit - start) * step < 0:
        message = f"there is no range from {start} to {limit} by {step}"
        raise ShapeConflictError(message)
    if all(isinstance(x, int) for x in (start, limit, step)):
        return [(-(-(limit - start) // step),)]
    return [(math.ceil(abs((limit - start) / step)),)]


flop_rule("Range")(per_output(1))


@kernel("LinSpace")
def lin_space(node: Node, start: Array, stop: Array, count: Array) -> Array:
    """Numbers at equal distances, both ends included."""
    number = scalar(count)
    check_allocation((number,), start.dtype)
    if number < 1:
        message = f"a space of {number} numbers does not exist"
        raise ValueError(message)
    if number == 1:
        return start.reshape(1)
    step = (stop - start) / start.dtype.type(number - 1)
    out: Array = start + np.arange(number, dtype=start.dtype) * step
    out[-1] = stop
    return out


@shape_fn("LinSpace")
def lin_space_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the given size."""
    count = args.scalar(2)
    return [(UNKNOWN if count is None else count,)]


flop_rule("LinSpace")(per_output(1))


@shape_fn("BroadcastGradientArgs")
def broadcast_gradient_args_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two vectors of axes."""
    return [(UNKNOWN,), (UNKNOWN,)]

"""Reductions, cumulative sums, and indices of extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import as_array, axes_of, axis_of, numpy_attr, scalar
from mobileprep.ops.kernel import Sizes, flop_rule, free, kernel, per_input, per_output
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    axis_index,
    scalars_only,
    shape_fn,
    unchanged,
    unknown_dims,
)

Reduction = Callable[[Array, tuple[int, ...], bool], Any]


def _extreme(function: np.ufunc, *, lowest: bool) -> Reduction:
    def reduce(x: Array, axes: tuple[int, ...], keep: bool) -> Any:  # noqa: ANN401 - or a scalar
        initial = bound(x.dtype, lowest=lowest)
        return function.reduce(x, axis=axes, keepdims=keep, initial=initial)

    return reduce


def bound(kind: np.dtype[Any], *, lowest: bool) -> Any:  # noqa: ANN401
    """Return the lowest or the highest value of a type, which is infinite for floats."""
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return info.min if lowest else info.max
    return kind.type(-np.inf if lowest else np.inf)


def _sum(x: Array, axes: tuple[int, ...], keep: bool) -> Any:  # noqa: ANN401
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _prod(x: Array, axes: tuple[int, ...], keep: bool) -> Any:  # noqa: ANN401
    return np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _cut_off(total: Any, count: int) -> Any:  # noqa: ANN401
    """Divide integers toward zero; floats would lose digits of 64-bit integers."""
    below = np.floor_divide(total, total.dtype.type(count))
    inexact = below * total.dtype.type(count) != total
    return below + ((total < 0) & inexact).astype(total.dtype)


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Any:  # noqa: ANN401
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if x.dtype.kind in "iu":
        wide_kind = np.uint64 if x.dtype.kind == "u" else np.int64
        total = np.sum(x, axis=axes, keepdims=keep, dtype=wide_kind)
        # The mean of no integers is 0, like in TensorFlow.
        return _cut_off(total, max(count, 1)).astype(x.dtype)
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    total = _sum(wide, axes, keep)
    return np.divide(total, total.dtype.type(count)).astype(x.dtype)


def _norm(x: Array, axes: tuple[int, ...], keep: bool) -> Any:  # noqa: ANN401
    return np.sqrt(_sum(np.square(np.abs(x)), axes, keep)).astype(x.dtype)


_REDUCTIONS: dict[str, Reduction] = {
    "All": lambda x, axes, keep: np.all(x, axis=axes, keepdims=keep),
    "Any": lambda x, axes, keep: np.any(x, axis=axes, keepdims=keep),
    "EuclideanNorm": _norm,
    "Max": _extreme(np.maximum, lowest=True),
    "Mean": _mean,
    "Min": _extreme(np.minimum, lowest=False),
    "Prod": _prod,
    "Sum": _sum,
}


def _as_kernel(function: Reduction) -> Callable[[Node, Array, Array], Array]:
    def run(node: Node, x: Array, indices: Array) -> Array:
        keep = node.attr_bool("keep_dims", False)
        # Newer TensorFlow releases reject duplicate axes; in 1.15, they count once.
        return as_array(function(x, axes_of(indices, x.ndim), keep), x)

    return run


for _op, _function in _REDUCTIONS.items():
    kernel(_op)(_as_kernel(_function))


@shape_fn(*_REDUCTIONS)
def reduction_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without the reduced axes, or with size 1 for them."""
    shape, axes = args.shapes[0], args.integers(1)
    keep = args.node.attr_bool("keep_dims", False)
    if shape is None:
        return [None]
    if axes is None:
        return [unknown_dims(len(shape)) if keep else _unknown_axes(args.shapes[1], len(shape))]
    return [without_axes(args.node, shape, axes)]


def without_axes(node: Node, shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without some axes, or with size 1 for them if the node keeps axes."""
    reduced = {axis_index(a, len(shape)) for a in axes}
    if node.attr_bool("keep_dims", False):
        return tuple(1 if i in reduced else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in reduced)


flop_rule("All", "Any")(free)


# Sums, and a quotient for each output.
flop_rule("Mean")(per_input(1))


# Squares and their sum.
flop_rule("EuclideanNorm")(per_input(2))


@flop_rule("Sum", "Max", "Min", "Prod")
def reduction_flops(sizes: Sizes) -> float:
    """Count one operation fewer than there are elements, for each output."""
    return sizes.input_elements() - sizes.output_elements()


def _unknown_axes(axes: TensorShape, rank: int) -> TensorShape:
    """Return a shape with the number of axes subtracted, since axes must be distinct."""
    if axes == ():
        return unknown_dims(rank - 1) if rank else None
    if axes is not None and len(axes) == 1 and 0 <= axes[0] <= rank:
        return unknown_dims(rank - axes[0])
    return None


@kernel("ArgMax", "ArgMin", flops=reduction_flops)
def arg_extreme(node: Node, x: Array, dimension: Array) -> Array:
    """Return the index of the first largest (smallest) element along an axis."""
    lowest = node.op == "ArgMax"
    find = np.argmax if lowest else np.argmin
    axis = axis_of(scalar(dimension), x.ndim)
    if x.shape[axis] == 0:
        message = f"axis {axis} has no elements"
        raise ValueError(message)
    kind = numpy_attr(node, "output_type", DType.INT64)
    return np.asarray(find(_without_nan(x, lowest=lowest), axis=axis), dtype=kind)


def _without_nan(x: Array, *, lowest: bool) -> Array:
    """Replace NaN by a value that is never found: TensorFlow ignores NaN, numpy does not."""
    if x.dtype.kind in "iub":
        return x
    missing = np.isnan(x)
    return np.where(missing, bound(x.dtype, lowest=lowest), x) if missing.any() else x


@shape_fn("ArgMax", "ArgMin")
def arg_extreme_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape without one axis."""
    shape, axis = args.shapes[0], args.scalar(1)
    if shape is None:
        return [None]
    if len(shape) <= 1:
        return [()]
    if axis is None:
        return [unknown_dims(len(shape) - 1)]
    axis = axis_index(axis, len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


@kernel("Cumsum", "Cumprod", shape=unchanged, flops=per_output(1))
def cumulative(node: Node, x: Array, axis: Array) -> Array:
    """Compute running sums or products along an axis, optionally reversed or exclusive."""
    function = np.add if node.op == "Cumsum" else np.multiply
    along = axis_of(scalar(axis), x.ndim)
    exclusive, reverse = node.attr_bool("exclusive", False), node.attr_bool("reverse", False)
    source = np.flip(x, along) if reverse else x
    out = function.accumulate(source, axis=along, dtype=x.dtype)
    if exclusive and x.shape[along]:
        start = np.full_like(out.take([0], along), function.identity)
        head = out.take(range(x.shape[along] - 1), along)
        out = np.concatenate([start, head], axis=along)
    return np.flip(out, along) if reverse else out


@kernel("L2Loss", shape=scalars_only)
def l2_loss(node: Node, x: Array) -> Array:
    """Return half the sum of squares, a scalar."""
    return np.asarray(np.add.reduce(np.square(x), axis=None) / x.dtype.type(2), dtype=x.dtype)


@flop_rule("L2Loss")
def l2_loss_flops(sizes: Sizes) -> float:
    """Count squares, halves, and their sum, as computed by TensorFlow."""
    return 3 * sizes.input_elements() - 1

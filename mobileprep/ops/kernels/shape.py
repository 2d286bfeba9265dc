"""Kernels of ops on shapes, and of ops that give the same elements another shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import (
    axis_of,
    check_allocation,
    dimensions,
    integers,
    same_type,
    scalar,
)

_INT32 = np.dtype(np.int32)


def _out_type(node: Node) -> np.dtype[Any]:
    found = node.attrs.get("out_type")
    kind: np.dtype[Any] | None = found.value.numpy if found is not None else None
    return kind if kind is not None else _INT32


@kernel("Shape")
def shape(node: Node, x: Array) -> Array:
    """The dimensions of x, a vector."""
    return np.array(x.shape, dtype=_out_type(node))


@kernel("ShapeN")
def shape_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """The dimensions of each input."""
    return tuple(np.array(x.shape, dtype=_out_type(node)) for x in inputs)


@kernel("Size")
def size(node: Node, x: Array) -> Array:
    """The number of elements."""
    return np.array(x.size, dtype=_out_type(node))


@kernel("Rank")
def rank(node: Node, x: Array) -> Array:
    """The number of axes."""
    return np.array(x.ndim, dtype=_INT32)


@kernel("Reshape")
def reshape(node: Node, x: Array, dims: Array) -> Array:
    """The same elements under another shape, of which one dimension may be -1."""
    wanted = list(integers(dims))
    if wanted.count(-1) == 1:
        rest = math.prod(d for d in wanted if d != -1)
        wanted[wanted.index(-1)] = x.size // rest if rest else 0
    return x.reshape(wanted)


@kernel("Squeeze")
def squeeze(node: Node, x: Array) -> Array:
    """x without axes of length 1: the named ones, or all."""
    axes = tuple(axis_of(a, x.ndim) for a in _squeezed(node))
    return x.squeeze(axes or None)


def _squeezed(node: Node) -> tuple[int, ...]:
    name = "axis" if "axis" in node.attrs else "squeeze_dims"
    return node.attr_ints(name, ())


@kernel("ExpandDims")
def expand_dims(node: Node, x: Array, axis: Array) -> Array:
    """x with a new axis of length 1."""
    return np.expand_dims(x, axis_of(scalar(axis), x.ndim + 1))


@kernel("Transpose", "ConjugateTranspose")
def transpose(node: Node, x: Array, order: Array) -> Array:
    """x with its axes in another order."""
    moved: Array = x.transpose(integers(order))
    if node.op == "ConjugateTranspose":
        moved = np.asarray(np.conj(moved))
    return moved


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


@kernel("BroadcastTo")
def broadcast_to(node: Node, x: Array, dims: Array) -> Array:
    """x repeated along axes of length 1."""
    return np.broadcast_to(x, dimensions(dims, x.dtype))


@kernel("BroadcastArgs")
def broadcast_args(node: Node, x: Array, y: Array) -> Array:
    """The shape that two shapes broadcast to."""
    return np.array(np.broadcast_shapes(integers(x), integers(y)), dtype=x.dtype)


@kernel("Fill")
def fill(node: Node, dims: Array, value: Array) -> Array:
    """One value under a shape."""
    return np.full(dimensions(dims, value.dtype), value, dtype=value.dtype)


@kernel("Empty")
def empty(node: Node, dims: Array) -> Array:
    """Zeros under a shape: the op leaves open what its tensor holds."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    return np.zeros(dimensions(dims, kind), dtype=kind)


@kernel("FakeParam")
def fake_param(node: Node) -> Array:
    """In place of a tensor that the other branch of a conditional gives: nothing reads it."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    shape = tuple(max(d, 0) for d in node.attr_shape("shape") or ())
    check_allocation(shape, kind)
    return np.zeros(shape, dtype=kind)


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

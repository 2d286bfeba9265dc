"""Ops that make tensors: of one value, or of numbers in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    check_allocation,
    dimensions,
    same_type,
    scalar,
)
from mobileprep.ops.common_costs import free, per_output
from mobileprep.ops.common_shapes import (
    declared_shape,
    length_in,
    shape_in,
)
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Fill")
def fill(node: Node, dims: Array, value: Array) -> Array:
    """One value under a shape."""
    return np.full(dimensions(dims, value.dtype), value, dtype=value.dtype)


shape_fn("Fill")(shape_in(0))


flop_rule("Fill")(free)


@kernel("Empty")
def empty(node: Node, dims: Array) -> Array:
    """Zeros under a shape: the op leaves open what its tensor holds."""
    kind = node.attr_dtype("dtype").numpy or np.dtype(object)
    return np.zeros(dimensions(dims, kind), dtype=kind)


shape_fn("Empty")(shape_in(0))


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
    if (last - first) * step < 0:
        message = f"there is no range from {first} to {last} by {step}"
        raise ValueError(message)
    count = max(math.ceil((last - first) / step), 0) if start.dtype.kind == "f" else 0
    if start.dtype.kind != "f":
        count = len(range(first, last, step))
    check_allocation((count,), start.dtype)
    out: Array = start + np.arange(count, dtype=start.dtype) * delta
    return out


@shape_fn("Range")
def range_shape(args: ShapeArgs) -> Sequence[TensorShape]:
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


shape_fn("LinSpace")(length_in(2))


flop_rule("LinSpace")(per_output(1))

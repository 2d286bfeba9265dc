"""What quantized ops share: checks of types, ranges given by tensors and put out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.quantization import Kind, Limits, steps_of
from mobileprep.ops.shape_function import ShapeArgs

_SMALLEST_NORMAL = np.finfo(np.float32).tiny

Quantized = tuple[Array, Array, Array]
"""A tensor of integers, and the two ends of its range."""


def check_type(node: Node, attribute: str, array: Array, *known: DType) -> DType:
    """The element type that an attribute names, which the array must have."""
    dtype = node.attr_dtype(attribute, known[0])
    if dtype not in known:
        message = f"node {node.name!r}: no {node.op} of {dtype.short}"
        raise UnsupportedError(message, f"it takes {_listed(known)}")
    if array.dtype != dtype.numpy:
        message = f"node {node.name!r} ({node.op}) takes {dtype.short}, but has {array.dtype}"
        raise InvalidGraphError(message, f"make {attribute} the type of its input")
    return dtype


def check_output(node: Node, attribute: str, *known: DType) -> DType:
    """The element type of the result that an attribute names."""
    dtype = node.attr_dtype(attribute, known[0])
    if dtype not in known:
        message = f"node {node.name!r}: {node.op} does not put out {dtype.short}"
        raise UnsupportedError(message, f"it puts out {_listed(known)}")
    return dtype


def _listed(types: Collection[DType]) -> str:
    return " or ".join(t.short for t in types)


def number(array: Array) -> np.float32:
    """The one float of a tensor."""
    if array.size != 1:
        message = f"the end of a range is one number, and no tensor of shape {list(array.shape)}"
        raise ValueError(message)
    found: np.float32 = np.float32(array.item())
    return found


def limits_of(low: Array, high: Array) -> Limits:
    """The range between two scalars."""
    return Limits(_normal(number(low)), _normal(number(high)))


def _normal(end: np.float32) -> np.float32:
    """Zero for a denormal number, which TensorFlow has the processor take for one."""
    return end if not abs(end) < _SMALLEST_NORMAL else np.float32(math.copysign(0.0, end))


def proper_limits(node: Node, low: Array, high: Array) -> Limits:
    """The range between two scalars, which must not be empty nor reversed."""
    limits = limits_of(low, high)
    if not limits.low < limits.high:
        raise bad_limits(node, limits.low, limits.high)
    return limits


def bad_limits(node: Node, low: object, high: object) -> InvalidGraphError:
    """The error for a range whose end is not where it has to be."""
    message = f"node {node.name!r} ({node.op}) has a range from {low} to {high}"
    return InvalidGraphError(message, "a range ends above its beginning")


def product_limits(of_x: Limits, of_y: Limits, kind_x: Kind, kind_y: Kind) -> Limits:
    """The range of 32-bit sums of products: a step is the product of the factors' steps."""
    steps = steps_of(np.dtype(np.int32))
    step = _step(of_x, kind_x) * _step(of_y, kind_y)
    return Limits(step * np.float32(steps.lowest), step * np.float32(steps.highest))


def _step(limits: Limits, kind: Kind) -> np.float32:
    # Signed factors lie evenly around zero: their lowest number is left out.
    steps = steps_of(kind)
    width = steps.highest - max(steps.lowest, -steps.highest)
    step: np.float32 = limits.span / np.float32(width)
    return step


def same_range(low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of an input's range, put out as they are."""
    return np.asarray(number(low)), np.asarray(number(high))


def unchanged_with_range(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first input's shape, and two scalars."""
    return [args.shapes[0], (), ()]


def two_scalars(args: ShapeArgs) -> Sequence[TensorShape]:
    """The two ends of a range."""
    return [(), ()]

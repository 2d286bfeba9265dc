"""Helpers of quantized ops: type checks, and ranges as inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.quantization import Kind, Limits, steps_of
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, ShapeFn, unchanged

_SMALLEST_NORMAL = np.finfo(np.float32).tiny

Quantized = tuple[Array, Array, Array]
"""A tensor of integers, and the two ends of its range."""


def check_type(node: Node, attribute: str, array: Array, *dtypes: DType) -> DType:
    """Return the element type in an attribute, after a check that the array has it."""
    dtype = node.attr_dtype(attribute, dtypes[0])
    if dtype not in dtypes:
        message = f"node {node.name!r}: no {node.op} of {dtype.short}"
        raise UnsupportedError(message, f"it takes {_listed(dtypes)}")
    if array.dtype != dtype.numpy:
        message = f"node {node.name!r} ({node.op}) takes {dtype.short}, but has {array.dtype}"
        raise InvalidGraphError(message, f"make {attribute} the type of its input")
    return dtype


def check_output(node: Node, attribute: str, *dtypes: DType) -> DType:
    """Return the element type of the result in an attribute."""
    dtype = node.attr_dtype(attribute, dtypes[0])
    if dtype not in dtypes:
        message = f"node {node.name!r}: {node.op} does not put out {dtype.short}"
        raise UnsupportedError(message, f"it puts out {_listed(dtypes)}")
    return dtype


def _listed(types: Collection[DType]) -> str:
    return " or ".join(t.short for t in types)


def number(array: Array) -> np.float32:
    """Return the single float of a tensor."""
    if array.size != 1:
        message = f"the end of a range is one number, and no tensor of shape {list(array.shape)}"
        raise ValueError(message)
    value: np.float32 = np.float32(array.item())
    return value


def limits_of(low: Array, high: Array) -> Limits:
    """Return the range between two scalars."""
    return Limits(_normal(number(low)), _normal(number(high)))


def _normal(end: np.float32) -> np.float32:
    """Replace a denormal number by zero, like TensorFlow's processor mode."""
    return end if not abs(end) < _SMALLEST_NORMAL else np.float32(math.copysign(0.0, end))


def proper_limits(node: Node, low: Array, high: Array) -> Limits:
    """Return the range between two scalars, which must be neither empty nor reversed."""
    limits = limits_of(low, high)
    if not limits.low < limits.high:
        raise bad_limits(node, limits.low, limits.high)
    return limits


def bad_limits(node: Node, low: object, high: object) -> InvalidGraphError:
    """Create the error for a range with invalid ends."""
    message = f"node {node.name!r} ({node.op}) has a range from {low} to {high}"
    return InvalidGraphError(message, "a range ends above its beginning")


def product_limits(of_x: Limits, of_y: Limits, kind_x: Kind, kind_y: Kind) -> Limits:
    """Return the range of 32-bit sums of products: a step is the product of the factors' steps."""
    steps = steps_of(np.dtype(np.int32))
    step = _step(of_x, kind_x) * _step(of_y, kind_y)
    return Limits(step * np.float32(steps.lowest), step * np.float32(steps.highest))


def _step(limits: Limits, kind: Kind) -> np.float32:
    # Signed factors are symmetric around zero, without their lowest number.
    steps = steps_of(kind)
    width = steps.highest - max(steps.lowest, -steps.highest)
    step: np.float32 = limits.span / np.float32(width)
    return step


def same_range(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of an input's range unchanged."""
    return np.asarray(number(low)), np.asarray(number(high))


def with_range(rule: ShapeFn) -> ShapeFn:
    """Create the rule of ops that return the two ends of a range after a tensor."""

    def quantized_rule(args: ShapeArgs) -> OutputShapes:
        return [*rule(args), (), ()]

    return quantized_rule


unchanged_with_range = with_range(unchanged)

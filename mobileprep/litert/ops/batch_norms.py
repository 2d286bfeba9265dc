"""Batch normalizations that follow no layer, and those that train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import ACTIVATION, Scope
from mobileprep.litert.shapes import as_given, channels_last, last_shape
from mobileprep.litert.types import need_float

_EPSILON: Final = 1e-4
_MOMENTS: Final = [0, 1, 2]


@lowering("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MUL and ADD; the moments of the batch by MEAN where it is in training."""
    need_float(node, inputs)
    readers = scope.graph.consumers.get(node.name, ())
    if any(r.node == node.name and r.index > 0 for n in readers for r in n.inputs):
        reason = "its moments are read"
        raise CannotExpressError(reason, "cut the graph at what is normalized")
    image, scale, offset, mean, variance = inputs[:5]
    image = channels_last(scope, node, image)
    shape = last_shape(node, scope.output_shape(node))
    if node.attr_bool("is_training", True):
        axes = scope.integers_constant(_MOMENTS, "axes")
        mean = _reduced(scope, image, axes)
        table = "SquaredDifferenceOptions"
        spread = scope.emit("SQUARED_DIFFERENCE", [image, mean], shape, image.dtype, table)
        variance = _reduced(scope, spread, axes)
    epsilon = max(node.attr_float("epsilon", _EPSILON), 0.0)
    factor = _factor(scope, scale, variance, epsilon)
    scaled = _binary(scope, "MUL", image, factor, image)
    shift = _binary(scope, "SUB", offset, _binary(scope, "MUL", mean, factor, scale), scale)
    return as_given(scope, node, _binary(scope, "ADD", scaled, shift, image))


def _reduced(scope: Scope, value: Value, axes: Value) -> Value:
    shape = None if value.shape is None else value.shape[-1:]
    return scope.emit("MEAN", [value, axes], shape, value.dtype, "ReducerOptions", keep_dims=False)


def _factor(scope: Scope, scale: Value, variance: Value, epsilon: float) -> Value:
    """What every channel is multiplied with."""
    if variance.data is not None:
        inverse = 1 / np.sqrt(variance.data + np.float32(epsilon))
        return _binary(scope, "MUL", scope.constant(inverse.astype(np.float32)), scale, scale)
    floor = scope.constant(np.array(epsilon, np.float32))
    total = _binary(scope, "ADD", variance, floor, variance)
    inverse = scope.emit("RSQRT", [total], variance.shape, variance.dtype)
    return _binary(scope, "MUL", inverse, scale, scale)


_FUNCTIONS: Final = {"MUL": np.multiply, "SUB": np.subtract, "ADD": np.add}
_TABLES: Final = {"MUL": "MulOptions", "SUB": "SubOptions", "ADD": "AddOptions"}


def _binary(scope: Scope, code: str, a: Value, b: Value, like: Value) -> Value:
    """A sum, difference or product, at once where both sides are constants."""
    if a.data is not None and b.data is not None:
        return scope.constant(_FUNCTIONS[code](a.data, b.data))
    options = {ACTIVATION: "NONE"}
    return scope.emit(code, [a, b], like.shape, like.dtype, _TABLES[code], **options)

"""Pooling, and normalization over neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_given, channels_last, last_shape, padded, spatial
from mobileprep.litert.types import need_float

_CODES = {"MaxPool": "MAX_POOL_2D", "AvgPool": "AVERAGE_POOL_2D"}


@lowering("MaxPool", "AvgPool")
def pool(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """MAX_POOL_2D or AVERAGE_POOL_2D."""
    need_float(node, inputs)
    lowest = float(np.finfo(np.float32).min)
    image, padding = padded(scope, node, channels_last(scope, node, inputs[0]), lowest)
    sizes, strides = spatial(node, "ksize"), spatial(node, "strides")
    done = scope.emit(
        _CODES[node.op],
        [image],
        last_shape(node, scope.output_shape(node)),
        image.dtype,
        "Pool2DOptions",
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        filter_height=sizes[0],
        filter_width=sizes[1],
    )
    return as_given(scope, node, done)


@lowering("LRN")
def local_response_normalization(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """LOCAL_RESPONSE_NORMALIZATION."""
    need_float(node, inputs)
    return scope.emit(
        "LOCAL_RESPONSE_NORMALIZATION",
        inputs,
        scope.output_shape(node),
        inputs[0].dtype,
        "LocalResponseNormalizationOptions",
        radius=node.attr_int("depth_radius", 5),
        bias=node.attr_float("bias", 1.0),
        alpha=node.attr_float("alpha", 1.0),
        beta=node.attr_float("beta", 0.5),
    )

"""Quantized pooling, which keeps the range of their input."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.pooling import average, maximum
from mobileprep.numerics.windows import NHWC, Window, make_window, spatial
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.pooling import pool_flops
from mobileprep.ops.nn.window_shapes import pooled_shape
from mobileprep.ops.quantized.ranges import Quantized, check_type, same_range
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Up to here, means of eight-bit numbers in single precision are cut to the right integer: they are
# whole numbers, or at least one in so many away from one.
_FEW_TAPS = 1 << 10


@kernel("QuantizedMaxPool")
def quantized_max_pool(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """The largest number of each window."""
    return maximum(x, _window(node, x)), *same_range(low, high)


@kernel("QuantizedAvgPool")
def quantized_avg_pool(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """The mean of each window's numbers, padding left out, cut towards zero."""
    window = _window(node, x)
    kind = np.float32 if math.prod(window.size) <= _FEW_TAPS else np.float64
    # Cutting to integers is what the cast does.
    return average(x.astype(kind), window).astype(x.dtype), *same_range(low, high)


@shape_fn("QuantizedMaxPool", "QuantizedAvgPool")
def quantized_pool_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window, and its range."""
    return [pooled_shape(args), (), ()]


flop_rule("QuantizedMaxPool", "QuantizedAvgPool")(pool_flops)


def _window(node: Node, x: Array) -> Window:
    check_type(node, "T", x, DType.QUINT8, DType.QINT8)
    size, strides = node.attr_ints("ksize"), node.attr_ints("strides")
    if not x.ndim == len(size) == len(strides) == 4:
        message = f"a window over {len(size)} axes on a tensor of {x.ndim}"
        raise ValueError(message)
    return make_window(node, x.shape[1:3], spatial(size, NHWC), spatial(strides, NHWC), (1, 1))

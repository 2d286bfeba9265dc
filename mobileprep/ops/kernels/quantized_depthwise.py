"""Kernel of the quantized convolution of each channel with its own filters."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._quantized import Quantized, check_output, check_type
from mobileprep.ops.kernels._scaled_products import scaled_depthwise_conv


@kernel("QuantizedDepthwiseConv2D")
def quantized_depthwise_conv(
    node: Node, x: Array, filters: Array, low_x: Array, high_x: Array, low_f: Array, high_f: Array
) -> Quantized:
    """A convolution of unsigned x with signed filters, both with their zero at 0.

    Raises:
        InvalidGraphError: strides, dilations, padding or ranges cannot be.
        ValueError: the filters do not fit x.
    """
    check_type(node, "Tinput", x, DType.QUINT8)
    check_type(node, "Tfilter", filters, DType.QINT8)
    check_output(node, "out_type", DType.QINT32)
    if x.ndim != 4 or filters.ndim != 4:
        message = "input and filters need 4 axes"
        raise ValueError(message)
    return scaled_depthwise_conv(node, x, filters, (low_x, high_x), (low_f, high_f))

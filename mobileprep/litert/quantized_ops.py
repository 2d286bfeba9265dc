"""Which float ops TensorFlow's quantized ops stand for, and where these have their ranges.

Source: the op definitions of TensorFlow 1.15 and 2.21.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.frozen import dataclass


@dataclass(frozen=True)
class FloatOp:
    """The float op that a quantized op stands for.

    Args:
        op: its name.
        count: the number of quantized tensors that the quantized op takes.
        attrs: the attributes that both have.
        plain: the position of the input that is not quantized, such as a shape.
        is_paired: whether each minimum is followed by its maximum.
    """

    op: str
    count: int = 1
    attrs: tuple[str, ...] = ()
    plain: int | None = None
    is_paired: bool = True


_POOL: Final = ("ksize", "strides", "padding")
_WINDOW: Final = ("strides", "padding", "dilations")
FLOAT_OPS: Final[Mapping[str, FloatOp]] = {
    "QuantizeDownAndShrinkRange": FloatOp("Identity"),
    "QuantizedAdd": FloatOp("AddV2", 2),
    "QuantizedAvgPool": FloatOp("AvgPool", attrs=_POOL),
    "QuantizedBiasAdd": FloatOp("BiasAdd", 2),
    "QuantizedConcat": FloatOp("Concat", 0, ("N",), plain=0, is_paired=False),
    "QuantizedConcatV2": FloatOp("ConcatV2", 0, ("N", "Tidx"), plain=-1, is_paired=False),
    "QuantizedConv2D": FloatOp("Conv2D", 2, _WINDOW),
    "QuantizedDepthwiseConv2D": FloatOp("DepthwiseConv2dNative", 2, _WINDOW),
    "QuantizedMatMul": FloatOp("MatMul", 2, ("transpose_a", "transpose_b")),
    "QuantizedMaxPool": FloatOp("MaxPool", attrs=_POOL),
    "QuantizedMul": FloatOp("Mul", 2),
    "QuantizedRelu": FloatOp("Relu"),
    "QuantizedRelu6": FloatOp("Relu6"),
    "QuantizedReshape": FloatOp("Reshape", attrs=("Tshape",), plain=1),
    "QuantizedResizeBilinear": FloatOp(
        "ResizeBilinear", attrs=("align_corners", "half_pixel_centers"), plain=1
    ),
}
"""The float ops by their quantized ones."""

ROUNDING: Final = frozenset({"QuantizeV2", "Requantize"})
"""Ops that round to the integers of a range, which are their last two inputs."""
ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})
"""Float ops whose quantized ones keep a range that their results do not take up."""
KEEPING_RANGES: Final = (
    *("QuantizedAvgPool", "QuantizedMaxPool", "QuantizedRelu", "QuantizedRelu6"),
    *("QuantizedReshape", "QuantizedResizeBilinear"),
)
"""Ops that pass on the range of their input, which is their last two inputs."""

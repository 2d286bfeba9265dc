"""Requirements of LiteRT's integer kernels, by operator.

Source: LiteRT's quantization specification
(https://ai.google.dev/edge/litert/models/quantization_spec), and the behavior of its interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from msgspec import Struct, field

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import OptionValue, Quantization
from mobileprep.graph.tensor import Array

Rule = Literal["own", "same", "fixed"]

_BOTH: Final = frozenset({DType.INT8, DType.INT16})
_EIGHT: Final = frozenset({DType.INT8})


class Kernel(Struct, frozen=True):
    """How an operator computes in integers.

    Args:
        types: the supported activation types.
        rule: the range of its output: its ``own``, the ``same`` as its inputs, or ``fixed``.
        fixed: scale and zero point of a fixed output, by type.
        clips: whether a constant beyond the range of the other inputs has the effect of its limit.
        least: a factor and a power: the runtime aborts if the output scale is below the factor
            times that power of the largest input scale.
        options: additional options of the integer form, by type.
    """

    types: frozenset[DType]
    rule: Rule = "own"
    fixed: Mapping[DType, tuple[float, int]] = field(default_factory=dict)
    clips: bool = False
    least: tuple[float, int] = (0.0, 1)
    options: Mapping[DType, Mapping[str, OptionValue]] = field(default_factory=dict)


class LayerInputs(Struct, frozen=True):
    """The indices of a layer's inputs: activations, weights, and bias."""

    image: int
    weights: int
    bias: int


def _fixed(eight: tuple[float, int], sixteen: tuple[float, int] | None = None) -> Kernel:
    scales = {DType.INT8: eight}
    if sixteen is not None:
        scales[DType.INT16] = sixteen
    return Kernel(frozenset(scales), "fixed", scales)


LAYERS: Final[Mapping[str, LayerInputs]] = {
    "CONV_2D": LayerInputs(0, 1, 2),
    "DEPTHWISE_CONV_2D": LayerInputs(0, 1, 2),
    "FULLY_CONNECTED": LayerInputs(0, 1, 2),
    "TRANSPOSE_CONV": LayerInputs(2, 1, 3),
}
"""Operators with int8 weights and an int32 bias, or int64 with int16 activations."""

SIZES: Final = frozenset({"SHAPE"})
"""Operators that read only the shape of tensors, of any type."""

_ANY_SCALE: Final = {DType.INT16: {"pot_scale_int16": False}}
_UNIT: Final = 1 / 32768
_OWN: Final = Kernel(_BOTH)
_OWN_EIGHT: Final = Kernel(_EIGHT)
_SAME: Final = Kernel(_BOTH, "same")
_SAME_EIGHT: Final = Kernel(_EIGHT, "same")
_CLIPPED: Final = Kernel(_BOTH, "same", clips=True)

# Excluded: int16 RSQRT and RESIZE_BILINEAR, which are off by hundreds of steps; int16 EXP, whose
# table is off by up to 0.2 % of the range near its end; SCATTER_ND, which fills with the integer 0
# instead of the zero point; comparisons, which abort or are wrong for scales of 1 and more.
KERNELS: Final[Mapping[str, Kernel]] = {
    **dict.fromkeys(LAYERS, _OWN),
    **dict.fromkeys(("ADD", "SUB"), Kernel(_BOTH, options=_ANY_SCALE, least=(2**-12, 1))),
    "SQUARED_DIFFERENCE": Kernel(_EIGHT, least=(2**-11, 2)),
    **dict.fromkeys(("MUL", "BATCH_MATMUL", "MEAN", "ABS", "LEAKY_RELU"), _OWN),
    **dict.fromkeys(("RELU", "RELU6"), _OWN),
    **dict.fromkeys(("SUM", "PRELU", "ELU", "EXP", "LOG", "GELU"), _OWN_EIGHT),
    **dict.fromkeys(("HARD_SWISH", "RELU_N1_TO_1", "SQRT", "RSQRT", "REDUCE_PROD"), _OWN_EIGHT),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _OWN_EIGHT),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _SAME),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), _SAME),
    **dict.fromkeys(("MINIMUM", "MAXIMUM", "PADV2"), _CLIPPED),
    **dict.fromkeys(("TOPK_V2", "RESIZE_BILINEAR"), _SAME_EIGHT),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE"), _SAME),
    **dict.fromkeys(("CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V"), _SAME),
    **dict.fromkeys(("PAD", "MIRROR_PAD", "SLICE", "STRIDED_SLICE"), _SAME),
    **dict.fromkeys(("GATHER", "GATHER_ND", "RESIZE_NEAREST_NEIGHBOR"), _SAME),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "BROADCAST_TO"), _SAME),
    **dict.fromkeys(("SELECT", "SELECT_V2"), _SAME),
    **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "TILE", "REVERSE_V2"), _SAME_EIGHT),
    "SOFTMAX": _fixed((1 / 256, -128), (_UNIT, 0)),
    "LOGISTIC": _fixed((1 / 256, -128), (_UNIT, 0)),
    "TANH": _fixed((1 / 128, 0), (_UNIT, 0)),
    "LOG_SOFTMAX": _fixed((16 / 256, 127)),
    "L2_NORMALIZATION": _fixed((1 / 128, 0)),
}
"""Operators that compute in integers, by name; all others stay float."""


Range = tuple[float, float]

_LARGEST: Final = {DType.INT8: 127, DType.INT16: 32767}
_LOWEST_BYTE: Final = -128
# Number of steps in a range.
_COUNTS: Final = {DType.INT8: 255, DType.INT16: 2 * 32767}
# Upper end for a tensor of zeros. A larger one would make sums with the tensor coarser, because the
# runtime limits the ratio of the two scales.
_STEPS_UNIT: Final = 1.0
# Minimum scale; smaller ones exceed the range of the kernels' multipliers.
_LEAST_SCALE: Final = 1e-10
# Half of the range of a layer's accumulators.
_MOST_BIAS: Final = {DType.INT32: 2.0**30, DType.INT64: 2.0**39}


IntegerMode: TypeAlias = Literal["int8", "int16x8"]
MODES: Final[Mapping[IntegerMode, DType]] = {"int8": DType.INT8, "int16x8": DType.INT16}
"""The activation type of each integer mode, of a program or of a rule."""


class IntegerSteps(Struct, frozen=True):
    """The quantization of a tensor: a value is ``scale * (integer - zero)``.

    Args:
        kind: int8 or int16.
        scale: positive, a float32.
        zero: the zero point.
    """

    kind: DType
    scale: float
    zero: int

    @property
    def quantization(self) -> Quantization:
        """The scale and zero point as records of the file."""
        return Quantization(np.array([self.scale], np.float32), np.array([self.zero], np.int64))

    @property
    def span(self) -> Range:
        """The smallest and largest representable value."""
        most = _LARGEST[self.kind]
        least = _LOWEST_BYTE if self.kind is DType.INT8 else -most
        return (least - self.zero) * self.scale, (most - self.zero) * self.scale

    def integers(self, values: Array) -> Array:
        """Quantize finite floats, clipping to the range."""
        limits = np.iinfo(self.kind.numpy)
        rounded = np.rint(values.astype(np.float64) / self.scale) + self.zero
        clipped: Array = np.clip(rounded, limits.min, limits.max).astype(self.kind.numpy)
        return clipped


def steps_of(span: Range, kind: DType, least: float = 0.0) -> IntegerSteps:
    """Return the quantization for a range, extended to include zero; int16 is symmetric.

    Args:
        span: the range.
        kind: int8 or int16.
        least: the minimum scale; narrower ranges are widened.
    """
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    if kind is DType.INT16:
        low, high = -max(-low, high), max(-low, high)
    size = (high - low) / _COUNTS[kind]
    if size == 0:
        low, high, size = 0.0, _STEPS_UNIT, _STEPS_UNIT / _COUNTS[kind]
    wider = max(max(least, _LEAST_SCALE) / size, 1.0)
    scale = float(np.float32(size * wider))
    if kind is DType.INT16:
        return IntegerSteps(kind, scale, 0)
    zero = _LOWEST_BYTE - round(low * wider / scale)
    return IntegerSteps(kind, scale, min(max(zero, _LOWEST_BYTE), _LARGEST[kind]))


def span_of(values: Array) -> Range | None:
    """Return the minimum and maximum, or None if either is not finite."""
    if not values.size:
        return 0.0, 0.0
    low, high = float(values.min()), float(values.max())
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def union(one: Range | None, other: Range | None) -> Range | None:
    """Return the smallest range that contains both; None counts as empty."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def quantized_bias(
    values: Array, scale: float, weights: Quantization, kind: DType
) -> tuple[Array, Quantization]:
    """Quantize a bias with the scale of a layer's sums: the input scale times the weight scales.

    Args:
        values: float32, one per output channel.
        scale: the input scale.
        weights: the quantization of the weights.
        kind: int32 or int64.
    """
    scales = (np.float64(scale) * weights.scales.astype(np.float64)).astype(np.float32)
    rounded = np.rint(values.astype(np.float64) / scales.astype(np.float64)).astype(kind.numpy)
    return rounded, Quantization(scales, np.zeros(scales.shape, np.int64), 0)


def least_scales(values: Array, scale: float, kind: DType) -> Array:
    """Return the minimum weight scale of each channel so that a layer's sums can hold the bias."""
    scales: Array = np.abs(values.astype(np.float64)) / (scale * _MOST_BIAS[kind])
    return scales


EndType: TypeAlias = Literal["float", "int8", "uint8", "int16"]
END_TYPES: Final[tuple[EndType, ...]] = get_args(EndType)

_END_TYPES_BY_KIND: Final[Mapping[DType, frozenset[EndType]]] = {
    DType.INT8: frozenset({"float", "int8", "uint8"}),
    DType.INT16: frozenset({"float", "int16"}),
}


class Integers(Struct, frozen=True):
    """Options for a program that computes in integers.

    Args:
        kind: the activation type: int8 or int16; rules can set the other for single operators.
        ranges: the ranges of tensors by name.
        sixteen: the ranges of tensors of single operators with 16-bit activations, where they
            differ: 16 bits need not leave out rare values.
        is_trained: whether ranges of fake quantization take precedence over ``ranges``.
        rules: exceptions for layers, in the syntax of ``quantize_nodes``; the last match wins.
        input_type: the type of the program's float inputs in the file.
        output_type: the type of the program's float outputs in the file.

    Raises:
        UsageError: the input or output type is incompatible with the activation type.
    """

    kind: DType = DType.INT8
    ranges: Mapping[str, Range] = field(default_factory=dict)
    sixteen: Mapping[str, Range] = field(default_factory=dict)
    is_trained: bool = True
    rules: tuple[str, ...] = ()
    input_type: EndType = "float"
    output_type: EndType = "float"

    def __post_init__(self) -> None:
        allowed = _END_TYPES_BY_KIND[self.kind]
        for name in ("input_type", "output_type"):
            end_type = getattr(self, name)
            if end_type not in allowed:
                message = f"inference_{name} is {end_type}, and activations are {self.kind.short}"
                raise UsageError(message, f"take one of {', '.join(sorted(allowed))}")

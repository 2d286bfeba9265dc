"""What LiteRT's kernels demand of integers, operator by operator.

Source: LiteRT's quantization specification
(https://ai.google.dev/edge/litert/models/quantization_spec), and what its interpreter takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import OptionValue
from mobileprep.frozen import dataclass

Rule = Literal["own", "same", "fixed"]

_BOTH: Final = frozenset({DType.INT8, DType.INT16})
_EIGHT: Final = frozenset({DType.INT8})


@dataclass(frozen=True)
class Kernel:
    """How an operator computes in integers.

    Args:
        types: of its activations.
        rule: what its output stands for: numbers of a range of its ``own``, of the ``same`` as
            its inputs, or of a ``fixed`` one.
        fixed: scale and zero point of a fixed output, by type.
        clips: whether a constant beyond the range of all else does what the range's end does.
        least: a factor, and the power of the inputs' largest scale that it is of: the runtime ends
            the app where the scale of its output is less.
        options: what its options say of integers, by type.
    """

    types: frozenset[DType]
    rule: Rule = "own"
    fixed: Mapping[DType, tuple[float, int]] = field(default_factory=dict)
    clips: bool = False
    least: tuple[float, int] = (0.0, 1)
    options: Mapping[DType, Mapping[str, OptionValue]] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerInputs:
    """The places of a layer's inputs: the activations, its weights, its bias."""

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
"""Operators with weights of int8, and a bias of int32 or, with activations of int16, of int64."""

SIZES: Final = frozenset({"SHAPE"})
"""Operators that look at sizes alone, and take tensors of any type."""

_ANY_SCALE: Final = {DType.INT16: {"pot_scale_int16": False}}
_UNIT: Final = 1 / 32768
_OWN: Final = Kernel(_BOTH)
_OWN_EIGHT: Final = Kernel(_EIGHT)
_SAME: Final = Kernel(_BOTH, "same")
_SAME_EIGHT: Final = Kernel(_EIGHT, "same")
_CLIPPED: Final = Kernel(_BOTH, "same", clips=True)

# Left out: RSQRT and RESIZE_BILINEAR of int16, which are off by hundreds of steps; EXP of int16,
# whose table is off by up to 0.2 % of the range near its end; SCATTER_ND, which fills with integers
# of 0; comparisons, which end the app or are wrong from a scale of 1 on.
KERNELS: Final[Mapping[str, Kernel]] = {
    **dict.fromkeys(LAYERS, _OWN),
    **dict.fromkeys(("ADD", "SUB"), Kernel(_BOTH, options=_ANY_SCALE, least=(2**-12, 1))),
    "SQUARED_DIFFERENCE": Kernel(_EIGHT, least=(2**-11, 2)),
    **dict.fromkeys(("MUL", "BATCH_MATMUL", "MEAN", "ABS", "LEAKY_RELU"), _OWN),
    **dict.fromkeys(("RELU", "RELU6"), _OWN),
    **dict.fromkeys(("SUM", "PRELU", "ELU", "EXP", "LOG", "GELU"), _OWN_EIGHT),
    **dict.fromkeys(("HARD_SWISH", "RELU_N1_TO_1", "SQRT", "RSQRT", "REDUCE_PROD"), _OWN_EIGHT),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _OWN_EIGHT),
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

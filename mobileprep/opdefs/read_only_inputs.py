"""Which ops only read a tensor, and which may put their result into its memory.

TensorFlow's CPU kernels let an output take the memory of an input that nobody else holds:
``forward_input`` of ``OpKernelContext``. Element-wise ops do, and so do those that scatter. Where
that memory is a mapped file, the process ends with a segmentation fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PASSED_ON: Final = frozenset(
    {
        *("Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics"),
        *("Reshape", "Squeeze", "ExpandDims", "Bitcast", "PlaceholderWithDefault"),
        *("Enter", "RefEnter", "Exit", "NextIteration", "LoopCond", "Switch", "Merge"),
    }
)
"""Ops whose outputs may be the very memory of their inputs, unchanged."""

_ALL: Final = frozenset(range(64))
_NOT_FIRST: Final = _ALL - {0}

_READ: Final[Mapping[str, frozenset[int]]] = {
    # What an activation comes through first is written to in these; the parameters are not.
    **dict.fromkeys(("BiasAdd", "BiasAddV1", "BatchNormWithGlobalNormalization"), _NOT_FIRST),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _NOT_FIRST),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative", "_FusedConv2D"), _ALL),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2", "Dilation2D"), _ALL),
    **dict.fromkeys(("DepthwiseConv2dNativeBackpropInput", "FusedPadConv2D"), _ALL),
    **dict.fromkeys(("FusedResizeAndPadConv2D", "MatMul", "BatchMatMul", "BatchMatMulV2"), _ALL),
    **dict.fromkeys(("SparseMatMul", "_FusedMatMul", "Einsum"), _ALL),
    **dict.fromkeys(("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", "GRUBlockCell"), _ALL),
    **dict.fromkeys(("Gather", "GatherV2", "GatherNd", "ArgMax", "ArgMin", "TopKV2"), _ALL),
    **dict.fromkeys(("Shape", "ShapeN", "Size", "Rank"), _ALL),
    **dict.fromkeys(("Dequantize", "QuantizedMatMul", "QuantizedConv2D", "QuantizedBiasAdd"), _ALL),
    **dict.fromkeys(("QuantizedDepthwiseConv2D", "QuantizedConv2DPerChannel"), _ALL),
    **dict.fromkeys(("QuantizedBatchNormWithGlobalNormalization", "QuantizedInstanceNorm"), _ALL),
}


def only_reads(op: str, index: int) -> bool:
    """Whether an op is known to leave the memory of an input as it is, and to pass it on nowhere.

    Args:
        op: the op's name.
        index: of the input.
    """
    return index in _READ.get(op, ())

"""Flops of ops that treat every element alike."""

from __future__ import annotations

from typing import Final

from mobileprep.ops.flops import FlopRule, Sizes, flop_rule

_PER_OUTPUT: Final[dict[float, str]] = {
    1: (
        "Abs Acos Acosh Add AddV2 Angle Asin Asinh Atan Atan2 Atanh BiasAdd BiasAddV1 Ceil "
        "Cos Cosh Cumprod Cumsum Digamma Div DivNoNan Equal Erf Erfc Erfinv Exp Expm1 Floor "
        "Greater GreaterEqual Inv IsFinite IsInf IsNan Less LessEqual Lgamma LinSpace Log "
        "Log1p Maximum Minimum Mul MulNoNan Ndtri Neg NotEqual Pow QuantizedAdd "
        "QuantizedBiasAdd QuantizedMul QuantizedRelu Range RealDiv Reciprocal Relu Rint Round "
        "Sign Sin Sinh Sqrt Square Sub Tan Tanh Xdivy"
    ),
    2: (
        "BatchNormWithGlobalNormalization ClipByValue Dequantize Elu FloorDiv LeakyRelu "
        "QuantizedBatchNormWithGlobalNormalization QuantizedRelu6 Relu6 Rsqrt Softplus "
        "SquaredDifference TruncateDiv Xlog1py Xlogy"
    ),
    3: ("ApproximateEqual FloorMod Mod Requantize RequantizePerChannel Selu Softsign TruncateMod"),
    # A sigmoid negates, takes a power, adds and divides.
    4: "AdjustContrastv2 ComplexAbs RGBToHSV Sigmoid",
    # Quantizing subtracts, multiplies, rounds and holds within two bounds.
    5: "HSVToRGB LogSoftmax QuantizeV2 Softmax",
    6: "QuantizedInstanceNorm",
    # Quantizing as above, and multiplying and adding to come back.
    7: (
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel "
        "QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 "
        "QuantizeAndDequantizeV4"
    ),
    10: "AdjustHue AdjustSaturation",
}


def _per_output(factor: float) -> FlopRule:
    def rule(sizes: Sizes) -> float:
        return factor * sizes.made()

    return rule


for _factor, _ops in _PER_OUTPUT.items():
    flop_rule(*_ops.split())(_per_output(_factor))


@flop_rule("AddN", "AccumulateNV2")
def add_n(sizes: Sizes) -> float:
    """One less addition than there are tensors."""
    return sizes.made() * (len(sizes.inputs) - 1)


@flop_rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx")
def batch_norm(sizes: Sizes) -> float:
    """A multiplication and an addition; with the statistics of the batch, those too."""
    training = sizes.node.attr_bool("is_training", True)
    return sizes.made() * (6 if training else 2)


@flop_rule("LRN")
def local_response_normalization(sizes: Sizes) -> float:
    """A square, a sum over neighbours, its scale and bias, a power, a quotient."""
    return sizes.made() * (2 * sizes.node.attr_int("depth_radius", 5) + 5)


@flop_rule("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(sizes: Sizes) -> float:
    """A softmax, its logarithms and products, and the gradient."""
    return 8 * sizes.taken()

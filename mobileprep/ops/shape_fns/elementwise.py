"""Shapes of ops that work on each element by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import at_least_rank, broadcast, dim, merge, merge_dim, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn(
    *("Abs", "Acos", "Acosh", "Angle", "AsString", "Asin", "Asinh", "Atan", "Atanh"),
    *("BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "Bucketize", "Cast", "Ceil", "ClipByValue"),
    *("CheckNumerics", "CheckNumericsV2", "ComplexAbs", "Conj", "Copy", "CopyHost", "Cos", "Cosh"),
    *("Cumprod", "Cumsum", "CumulativeLogsumexp", "DataFormatDimMap", "DeepCopy", "Digamma"),
    *("Elu", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "FFT", "Floor", "IFFT", "Imag", "Inv"),
    *("Invert", "IsFinite", "IsInf", "IsNan", "LeakyRelu", "Lgamma", "Log", "Log1p"),
    *("LogicalNot", "Ndtri", "Neg", "OnesLike", "PopulationCount", "Real", "Reciprocal"),
    *("RegexFullMatch", "RegexReplace", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Selu"),
    *("Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Square"),
    *("StaticRegexFullMatch", "StaticRegexReplace", "StringLength", "StringLower", "StringStrip"),
    *("StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"),
    *("StringToNumber", "StringUpper", "Tan", "Tanh", "UnicodeScript", "UnicodeTranscode"),
    *("FakeQuantWithMinMaxArgsGradient", "InvGrad", "ReciprocalGrad", "RsqrtGrad"),
    *("SigmoidGrad", "SqrtGrad", "TanhGrad"),
    *("FakeQuantWithMinMaxArgs", "RandomShuffle", "DecodeBase64", "EncodeBase64"),
    *("AdjustContrastv2", "AdjustHue", "AdjustSaturation", "ReverseV2", "Roll"),
    *("DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "GuaranteeConst", "Identity"),
    *("PreventGradient", "Print", "RefIdentity", "Snapshot", "StopGradient", "ZerosLike"),
    *("InplaceAdd", "InplaceSub", "InplaceUpdate"),
)
def unchanged(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first input's shape."""
    return args.shapes[:1]


@shape_fn(
    *("Add", "AddV2", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("Complex", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater", "GreaterEqual"),
    *("Igamma", "Igammac", "LeftShift", "Less", "LessEqual", "LogicalAnd", "LogicalOr"),
    *("Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "NextAfter", "NotEqual", "Polygamma", "Pow"),
    *("RealDiv", "RightShift", "SquaredDifference", "Sub", "TruncateDiv", "TruncateMod"),
    *("Xdivy", "Xlog1py", "Xlogy", "Zeta"),
)
def binary(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two inputs broadcast to each other."""
    return [broadcast(args.shapes[0], args.shapes[1])]


@shape_fn("QuantizedAdd", "QuantizedMul")
def quantized_binary(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two inputs broadcast to each other, and the range of the result."""
    return [broadcast(args.shapes[0], args.shapes[1]), (), ()]


@shape_fn("SelectV2")
def select_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """Three inputs broadcast to each other."""
    return [broadcast(broadcast(args.shapes[0], args.shapes[1]), args.shapes[2])]


@shape_fn("Betainc")
def betainc(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of the inputs that are no scalars."""
    larger = [s for s in args.shapes if s != ()]
    return [reduce(merge, larger) if larger else ()]


@shape_fn("AddN")
def add_n(args: ShapeArgs) -> Sequence[TensorShape]:
    """All inputs have one shape."""
    return [reduce(merge, args.shapes, None)]


@shape_fn("AccumulateNV2")
def accumulate_n(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared shape."""
    return [args.node.attr_shape("shape")]


@shape_fn("Select", "RefSelect")
def select(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of the branches, which the condition has too unless it is a scalar or a vector."""
    if args.node.op == "RefSelect":
        return [None]
    condition, data = args.shapes[0], merge(args.shapes[1], args.shapes[2])
    if condition is not None and data is not None and len(condition) > 1:
        return [merge(condition, data)]
    return [data]


@shape_fn("BiasAdd", "BiasAddV1")
def bias_add(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its channels merged with the bias's."""
    shape = at_least_rank(args.shapes[0], 2)
    channels = with_rank(args.shapes[1], 1)[0]
    if shape is None:
        return [None]
    channel_first = args.node.attr_str("data_format", "NHWC") == "NCHW"
    axis = 1 if channel_first else len(shape) - 1
    merged = merge_dim(shape[axis], channels)
    return [(*shape[:axis], merged, *shape[axis + 1 :])]


@shape_fn("L2Loss")
def scalar_result(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar for each output."""
    return [()] * args.count()


@shape_fn("IdentityN")
def unchanged_all(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each output has its input's shape."""
    return args.shapes


@shape_fn(
    *("ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"),
    *("ApproximateEqual", "LeakyReluGrad"),
)
def both(args: ShapeArgs) -> Sequence[TensorShape]:
    """Both inputs and the output have one shape."""
    return [merge(args.shapes[0], args.shapes[1])]


@shape_fn("BiasAddGrad")
def bias_add_grad(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of as many elements as there are channels."""
    shape = at_least_rank(args.shapes[0], 2)
    channel_first = args.node.attr_str("data_format", "NHWC") == "NCHW"
    return [(dim(shape, 1 if channel_first else -1),)]

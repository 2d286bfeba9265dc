"""Cases of unary and binary ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.reference.cases.base import BF16, F32, FLOATS, INTEGERS, SPECIAL, Case, Make, scalar

# Ops that accept all real numbers and the special values.
EVERYWHERE = """
    Abs Asinh Atan Ceil Elu Erf Erfc Exp Expm1 Floor Inv Neg OnesLike Reciprocal Relu Relu6 Rint
    Round Rsqrt Selu Sigmoid Sign Softplus Softsign Sqrt Square Tanh ZerosLike
""".split()  # noqa: SIM905 - a list of forty names is read in lines
PERIODIC = ("Cos", "Cosh", "Sin", "Sinh", "Tan")
DOMAINS = {
    "Acos": (-0.99, 0.99),
    "Acosh": (1.1, 9),
    "Asin": (-0.99, 0.99),
    "Atanh": (-0.9, 0.9),
    "Digamma": (0.1, 20),
    "Erfinv": (-0.95, 0.95),
    "Lgamma": (0.1, 20),
    "Log": (0.01, 9),
    "Log1p": (-0.9, 9),
    "Ndtri": (0.05, 0.95),
}
BROADCAST = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (5,)), ((0, 3), (3,)))


def reals() -> Iterator[Case]:
    make = Make(1)
    for op in (*EVERYWHERE, *PERIODIC):
        for kind in FLOATS:
            yield Case(op, (make.real(3, 5, kind=kind),))
        yield Case(op, (make.real(0, 3),), note="empty")
        yield Case(op, (make.real(),), note="scalar")
        yield Case(op, (make.real(4, 3, kind=BF16),), note="bfloat16")
    for op in (*EVERYWHERE, "Log", "LeakyRelu"):
        yield Case(op, (SPECIAL,), note="special")
    for op, (low, high) in DOMAINS.items():
        for kind in (np.float32, np.float64):
            yield Case(op, (make.real(40, kind=kind, low=low, high=high),))
    for op in ("IsNan", "IsInf", "IsFinite"):
        yield Case(op, (SPECIAL,))
        yield Case(op, (SPECIAL[:7].astype(np.float16),))
    yield Case("LeakyRelu", (make.real(9),), {"alpha": 0.3})
    yield Case("LeakyRelu", (make.real(9, kind=np.float64),))
    far = np.array([-100, -20, 20, 89, 1e4])
    for kind in (*FLOATS, BF16):
        yield Case("Softplus", (far.astype(kind),), note="far")


def other_types() -> Iterator[Case]:
    make = Make(41)
    for op in ("Abs", "Neg", "Sign", "Square", "Relu", "Relu6", "OnesLike", "ZerosLike"):
        for kind in (np.int32, np.int64):
            yield Case(op, (make.real(3, 4, kind=kind, low=-9, high=9),))
    yield Case("Abs", (np.array([-128, 127], np.int8),), note="overflow")
    yield Case("Neg", (np.array([-(2**31), 5], np.int32),), note="overflow")
    yield Case("LogicalNot", (make.bits(7),))
    for kind in INTEGERS:
        yield Case("Invert", (make.real(5, kind=kind),))
    z = (make.real(4) + 1j * make.real(4)).astype(np.complex64)
    for op in ("ComplexAbs", "Real", "Imag", "Angle", "Conj", "Square", "Neg"):
        yield Case(op, (z,))
    for kind in (F32, np.float64):
        yield Case("Complex", (make.real(3, 1, kind=kind), make.real(4, kind=kind)))


def softmaxes() -> Iterator[Case]:
    make = Make(42)
    for op in ("Softmax", "LogSoftmax"):
        for kind in FLOATS:
            yield Case(op, (make.real(3, 5, kind=kind),))
        yield Case(op, (make.real(2, 3, 4, low=-90, high=90),), note="wide")
        yield Case(op, (make.real(0, 4),), note="empty")


def arithmetic() -> Iterator[Case]:
    make = Make(2)
    for op in ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"):
        for kind in (*FLOATS, np.int32, np.int64):
            yield Case(op, (make.real(3, 4, kind=kind), make.real(4, kind=kind)))
        for a, b in BROADCAST:
            yield Case(op, (make.real(*a), make.real(*b)))
        yield Case(op, (make.real(4, kind=BF16), make.real(4, kind=BF16)), note="bfloat16")
    for op in ("Add", "Sub", "Mul", "Maximum", "Minimum"):
        left, right = np.meshgrid(SPECIAL, SPECIAL)
        yield Case(op, (left, right), note="special")
    for kind, big in ((np.int32, 2**31 - 1), (np.int8, 127)):
        for op in ("AddV2", "Sub", "Mul"):
            yield Case(op, (np.array([big, -big], kind), np.array([big, 7], kind)), note="overflow")


def quotients() -> Iterator[Case]:
    make = Make(43)
    safe = ("DivNoNan", "MulNoNan", "Xdivy", "Xlogy")
    for op in (*safe, "RealDiv", "Div", "Atan2", "Xlog1py", "Pow"):
        for a, b in BROADCAST[:3]:
            yield Case(op, (make.real(*a, low=0.1), make.real(*b, low=0.1)))
    for op in safe:
        yield Case(op, (make.real(4), np.array([0, 1, 2, 0], F32)), note="zeros")
        rough = np.array([0, np.nan, 2, np.inf], F32)
        yield Case(op, (np.array([0, 1, 2, 0], F32), rough), note="nan")
    sevens = np.array([7, -7, 7, -7, 0], np.int32), np.array([2, 2, -2, -2, 3], np.int32)
    for op in ("Div", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Mod"):
        yield Case(op, sevens)
    for op in ("FloorDiv", "FloorMod", "Mod", "TruncateDiv"):
        yield Case(op, tuple(x.astype(F32) + F32(0.25) for x in sevens))
    yield Case("Pow", (make.whole(0, 5, 4), make.whole(0, 4, 4)))


def comparisons() -> Iterator[Case]:
    make = Make(44)
    ordered = ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual")
    for op in (*ordered, "ApproximateEqual"):
        pair = (make.real(3, 4, low=0).round(), make.real(3, 4, low=0).round())
        yield Case(op, pair)
        yield Case(op, (SPECIAL, SPECIAL[::-1].copy()), note="special")
    for op in ordered:
        yield Case(op, (make.whole(0, 3, 2, 1), make.whole(0, 3, 4)))
    yield Case("Equal", (make.real(2), make.real(3)), {"incompatible_shape_error": False})
    for op in ("LogicalAnd", "LogicalOr"):
        yield Case(op, (make.bits(2, 3), make.bits(3)))


def bits() -> Iterator[Case]:
    make = Make(45)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"):
        for kind in (np.int32, np.uint8):
            yield Case(op, (make.whole(0, 99, 6, kind=kind), make.whole(0, 8, 6, kind=kind)))


def sums() -> Iterator[Case]:
    make = Make(46)
    yield Case("AddN", tuple(make.real(2, 3) for _ in range(4)))
    yield Case("AddN", (make.whole(0, 9, 3),))
    for layout, shape in (("NHWC", (2, 3, 4, 5)), ("NCHW", (2, 5, 3, 4))):
        yield Case("BiasAdd", (make.real(*shape), make.real(5)), {"data_format": layout})
    for op in ("BiasAdd", "BiasAddV1"):
        yield Case(op, (make.real(3, 5), make.real(5)))
    yield Case("ClipByValue", (make.real(9), scalar(-1, F32), scalar(1, F32)))
    yield Case("ClipByValue", (make.real(9), scalar(1, F32), scalar(-1, F32)), note="crossed")


def cases() -> Iterator[Case]:
    yield from reals()
    yield from other_types()
    yield from softmaxes()
    yield from arithmetic()
    yield from quotients()
    yield from comparisons()
    yield from bits()
    yield from sums()

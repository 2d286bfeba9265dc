"""Cases of unary and binary ops, reductions and products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.reference.cases.base import (
    BF16,
    F32,
    FLOATS,
    INTEGERS,
    SPECIAL,
    Case,
    Make,
    i32,
    scalar,
)


def unary() -> Iterator[Case]:
    make = Make(1)
    anywhere = (
        "Abs Ceil Cos Cosh Exp Expm1 Floor Neg Rint Round Rsqrt Sigmoid Sign Sin Sinh Softplus Softsign Sqrt "
        "Square Tan Tanh Elu Relu Relu6 Selu Erf Erfc Inv Reciprocal Atan Asinh OnesLike ZerosLike"
    ).split()
    for op in anywhere:
        for kind in FLOATS:
            yield Case(op, (make.real(3, 5, kind=kind),))
        yield Case(op, (make.real(0, 3),), note="empty")
        yield Case(op, (make.real(),), note="scalar")
        yield Case(op, (make.real(4, 3, kind=BF16),), note="bfloat16")
        if op not in ("Sin", "Cos", "Tan", "Sinh", "Cosh"):
            yield Case(op, (SPECIAL,), note="special")
    for op in ("IsNan", "IsInf", "IsFinite"):
        yield Case(op, (SPECIAL,))
        yield Case(op, (SPECIAL[:7].astype(np.float16),))
    for op, low, high in (
        ("Acos", -0.99, 0.99),
        ("Asin", -0.99, 0.99),
        ("Atanh", -0.9, 0.9),
        ("Acosh", 1.1, 9),
        ("Log", 0.01, 9),
        ("Log1p", -0.9, 9),
        ("Lgamma", 0.1, 20),
        ("Digamma", 0.1, 20),
        ("Erfinv", -0.95, 0.95),
        ("Ndtri", 0.05, 0.95),
    ):
        for kind in (np.float32, np.float64):
            yield Case(op, (make.real(40, kind=kind, low=low, high=high),))
    yield Case("Log", (SPECIAL,), note="special")
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
    yield Case("LeakyRelu", (make.real(9),), {"alpha": 0.3})
    yield Case("LeakyRelu", (SPECIAL,), note="special")
    for op in ("Softmax", "LogSoftmax"):
        for kind in (np.float32, np.float64, np.float16):
            yield Case(op, (make.real(3, 5, kind=kind),))
        yield Case(op, (make.real(2, 3, 4, low=-90, high=90),), note="wide")
        yield Case(op, (make.real(0, 4),), note="empty")


def binary() -> Iterator[Case]:
    make = Make(2)
    shapes = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (5,)), ((0, 3), (3,)))
    arithmetic = "Add AddV2 Sub Mul Maximum Minimum SquaredDifference".split()
    for op in arithmetic:
        for kind in (*FLOATS, np.int32, np.int64):
            yield Case(op, (make.real(3, 4, kind=kind), make.real(4, kind=kind)))
        for a, b in shapes:
            yield Case(op, (make.real(*a), make.real(*b)))
        yield Case(op, (make.real(4, kind=BF16), make.real(4, kind=BF16)), note="bfloat16")
    for op in ("Add", "Sub", "Mul", "Maximum", "Minimum"):
        left, right = np.meshgrid(SPECIAL, SPECIAL)
        yield Case(op, (left, right), note="special")
    for kind, big in ((np.int32, 2**31 - 1), (np.int8, 127)):
        for op in ("AddV2", "Sub", "Mul"):
            yield Case(op, (np.array([big, -big], kind), np.array([big, 7], kind)), note="overflow")
    for op in (
        "RealDiv",
        "Div",
        "DivNoNan",
        "Xdivy",
        "MulNoNan",
        "Atan2",
        "Xlogy",
        "Xlog1py",
        "Pow",
    ):
        for a, b in shapes[:3]:
            yield Case(op, (make.real(*a, low=0.1), make.real(*b, low=0.1)))
    for op in ("DivNoNan", "MulNoNan", "Xdivy", "Xlogy"):
        yield Case(op, (make.real(4), np.array([0, 1, 2, 0], F32)), note="zeros")
        yield Case(
            op, (np.array([0, 1, 2, 0], F32), np.array([0, np.nan, 2, np.inf], F32)), note="nan"
        )
    sevens = np.array([7, -7, 7, -7, 0], np.int32), np.array([2, 2, -2, -2, 3], np.int32)
    for op in ("Div", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Mod"):
        yield Case(op, sevens)
    for op in ("FloorDiv", "FloorMod", "Mod"):
        yield Case(op, tuple(x.astype(F32) + F32(0.25) for x in sevens))
    for op in (
        "Less",
        "LessEqual",
        "Greater",
        "GreaterEqual",
        "Equal",
        "NotEqual",
        "ApproximateEqual",
    ):
        yield Case(
            op, (make.real(3, 4, low=0, high=3).round(), make.real(3, 4, low=0, high=3).round())
        )
        yield Case(op, (SPECIAL, SPECIAL[::-1].copy()), note="special")
        if op != "ApproximateEqual":
            yield Case(op, (make.whole(0, 3, 2, 1), make.whole(0, 3, 4)))
    yield Case("Equal", (make.real(2), make.real(3)), {"incompatible_shape_error": False})
    for op in ("LogicalAnd", "LogicalOr"):
        yield Case(op, (make.bits(2, 3), make.bits(3)))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"):
        for kind in (np.int32, np.uint8):
            yield Case(op, (make.whole(0, 99, 6, kind=kind), make.whole(0, 8, 6, kind=kind)))
    yield Case("Pow", (make.whole(0, 5, 4), make.whole(0, 4, 4)))
    yield Case("AddN", tuple(make.real(2, 3) for _ in range(4)))
    yield Case("AddN", (make.whole(0, 9, 3),))
    for layout, shape in (("NHWC", (2, 3, 4, 5)), ("NCHW", (2, 5, 3, 4))):
        yield Case("BiasAdd", (make.real(*shape), make.real(5)), {"data_format": layout})
    yield Case("BiasAdd", (make.real(3, 5), make.real(5)))
    yield Case("BiasAddV1", (make.real(3, 5), make.real(5)))
    yield Case("ClipByValue", (make.real(9), scalar(-1, F32), scalar(1, F32)))


def reductions() -> Iterator[Case]:
    make = Make(3)
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"):
        for kind in (*FLOATS, np.int32, np.int64):
            if op == "EuclideanNorm" and np.dtype(kind).kind == "i":
                continue
            x = make.real(3, 4, 5, kind=kind, low=-2, high=2)
            for axes in (i32(0), i32(1, 2), i32(-1), i32(), i32(0, 1, 2)):
                for keep in (False, True):
                    yield Case(op, (x, axes), {"keep_dims": keep}, note=f"{axes.tolist()}{keep}")
        yield Case(op, (make.real(0, 3), i32(0)), note="empty")
        yield Case(op, (make.real(4), scalar(0)), note="scalar axis")
        yield Case(op, (make.real(64, 300), i32(0)), note="long")
    yield Case("Max", (np.array([[np.nan, 1], [2, 3]], F32), i32(1)), note="nan")
    for op in ("All", "Any"):
        for axes in (i32(0), i32(0, 1), i32()):
            yield Case(op, (make.bits(3, 4), axes))
        yield Case(op, (make.bits(0, 2), i32(0)), note="empty")
    for op in ("ArgMax", "ArgMin"):
        for kind in (np.float32, np.int32, np.uint8):
            yield Case(op, (make.real(3, 4, kind=kind, low=0, high=3), scalar(1)))
        yield Case(op, (make.real(3, 4), scalar(-2)), {"output_type": np.int32})
    for op in ("Cumsum", "Cumprod"):
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"exclusive": exclusive, "reverse": reverse}
                yield Case(op, (make.real(3, 4), scalar(1)), attrs, note=str(attrs))
        yield Case(op, (make.whole(1, 4, 5), scalar(0)))
        yield Case(op, (make.real(0, 2), scalar(0)), {"exclusive": True}, note="empty")
    yield Case("L2Loss", (make.real(7, 3),))
    yield Case("L2Loss", (make.real(0),), note="empty")


def products() -> Iterator[Case]:
    make = Make(4)
    for kind in (*FLOATS, np.int32):
        yield Case("MatMul", (make.real(3, 4, kind=kind), make.real(4, 5, kind=kind)))
    yield Case(
        "MatMul", (make.real(4, 3), make.real(5, 4)), {"transpose_a": True, "transpose_b": True}
    )
    yield Case("MatMul", (make.real(0, 4), make.real(4, 5)), note="empty")
    yield Case("MatMul", (make.real(3, 0), make.real(0, 5)), note="empty sum")
    yield Case("MatMul", (make.real(300, 400), make.real(400, 500)), note="large")
    for op in ("BatchMatMul", "BatchMatMulV2"):
        yield Case(op, (make.real(2, 3, 4), make.real(2, 4, 5)))
        yield Case(op, (make.real(2, 4, 3), make.real(2, 5, 4)), {"adj_x": True, "adj_y": True})
    yield Case("BatchMatMulV2", (make.real(2, 1, 3, 4), make.real(5, 4, 2)))
    yield Case("BatchMatMulV2", (make.real(8, 128, 64), make.real(8, 64, 128)), note="large")
    yield Case("BatchMatMulV3", (make.real(2, 3, 4), make.real(2, 4, 5)), {"Tout": np.float32})
    for equation, shapes in (
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))),
        ("ijk->k", ((2, 3, 4),)),
        ("...ij,jk->...ik", ((5, 2, 3), (3, 4))),
        ("abc,cde->abde", ((2, 3, 4), (4, 2, 3))),
        ("ii->i", ((3, 3),)),
    ):
        yield Case(
            "Einsum", tuple(make.real(*s) for s in shapes), {"equation": equation}, note=equation
        )


def cases() -> Iterator[Case]:
    yield from unary()
    yield from binary()
    yield from reductions()
    yield from products()

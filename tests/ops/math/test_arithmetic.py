"""Arithmetic: types, broadcasting, overflow, and division by zero."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run


def test_add_broadcasts_and_keeps_the_dtype() -> None:
    out = run("AddV2", f32([[1], [2]]), f32(10, 20))
    np.testing.assert_array_equal(out, [[11, 21], [12, 22]])
    assert out.dtype == np.float32


def test_sum_of_scalars_is_an_array() -> None:
    out = run("Add", f32(1), f32(2))
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype, float(out)) == ((), np.float32, 3.0)


def test_integers_wrap_around() -> None:
    assert run("Add", np.int8([127, -128]), np.int8([1, -1])).tolist() == [-128, 127]
    assert run("Mul", i32(2**31 - 1), i32(2)).tolist() == -2


def test_mixed_dtypes_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match=r"'y' \(Add\) mixes float32 with int32"):
        run("Add", f32(1, 2), i32(1, 2), T=np.float32)


def test_integer_division_rounding() -> None:
    x, y = i32(7, -7, 7, -7), i32(2, 2, -2, -2)
    assert run("Div", x, y).tolist() == [3, -3, -3, 3]
    assert run("FloorDiv", x, y).tolist() == [3, -4, -4, 3]
    assert run("FloorMod", x, y).tolist() == [1, 1, -1, -1]
    assert run("TruncateMod", x, y).tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_truncate_div_of_floats(kind: type) -> None:
    x, y = np.array([7.5, -7.5, 1, 1], kind), np.array([2, 2, -4, 0], kind)
    out = run("TruncateDiv", x, y)
    assert (out.dtype, out.tolist()) == (kind, [3, -3, 0, np.inf])


@pytest.mark.parametrize("op", ["Div", "FloorDiv", "FloorMod", "TruncateMod"])
def test_integer_division_by_zero_is_an_error(op: str) -> None:
    with pytest.raises(InvalidGraphError, match="division by zero"):
        run(op, i32(1, 2), i32(1, 0))


def test_division_of_floats_by_zero_is_infinite() -> None:
    out = run("RealDiv", f32(1, -1, 0), f32(0, 0, 0))
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan])


def test_no_nan_variants() -> None:
    assert run("DivNoNan", f32(1, 4), f32(0, 2)).tolist() == [0, 2]
    assert run("MulNoNan", f32(np.nan, 4), f32(0, 2)).tolist() == [0, 8]
    assert run("Xlogy", f32(0, 1), f32(0, np.e)).tolist() == pytest.approx([0, 1])


def test_equality_of_incompatible_shapes() -> None:
    assert run("Equal", f32(1, 2), f32(1, 2, 3), incompatible_shape_error=False).tolist() is False
    assert run("NotEqual", f32(1, 2), f32(1, 2, 3), incompatible_shape_error=False).tolist() is True
    with pytest.raises(InvalidGraphError, match="float32"):
        run("Equal", f32(1, 2), f32(1, 2, 3))


def test_bias_add() -> None:
    x = np.zeros((1, 2, 1, 3), np.float32)
    np.testing.assert_array_equal(run("BiasAdd", x, f32(1, 2, 3))[0, 1, 0], [1, 2, 3])
    first = run("BiasAdd", x, f32(1, 2), data_format="NCHW")
    np.testing.assert_array_equal(first[0, :, 0, 0], [1, 2])


def test_bias_of_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="a bias of 2 for 3 channels"):
        run("BiasAdd", np.zeros((4, 3), np.float32), f32(1, 2))


def test_add_n_needs_equal_shapes() -> None:
    assert run("AddN", f32(1, 2), f32(3, 4), f32(5, 6)).tolist() == [9, 12]
    with pytest.raises(InvalidGraphError, match="one shape"):
        run("AddN", f32(1, 2), f32(3))


def test_add_n_does_not_change_its_inputs() -> None:
    x = f32(1, 2)
    run("AddN", x, f32(3, 4), f32(5, 6))
    assert x.tolist() == [1, 2]


def test_negative_integer_powers_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="negative integer powers"):
        run("Pow", i32(2, 3), i32(1, -1))


def test_shifts_are_clamped_to_the_width() -> None:
    assert run("LeftShift", i32(1, 1), i32(31, 40)).tolist() == [-(2**31), -(2**31)]
    assert run("RightShift", i32(-8, 8), i32(1, -1)).tolist() == [-4, 8]


def test_add_concatenates_strings() -> None:
    words = np.array([b"a", b"b"], dtype=object)
    assert run("Add", words, words[::-1].copy()).tolist() == [b"ab", b"ba"]


LOGICAL = (
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "LogicalAnd", "LogicalOr"),
    "RightShift",
)
ONCE = (
    *("Add", "AddV2", "Atan2", "Div", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less"),
    *("LessEqual", "Maximum", "Minimum", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv", "Sub"),
    "Xdivy",
)
TWICE = ("FloorDiv", "SquaredDifference", "TruncateDiv", "Xlog1py", "Xlogy")
THRICE = ("FloorMod", "Mod", "TruncateMod")

OP_CASES = [
    *(case(op, [(2, 1), (3,)], [(2, 3)], 0) for op in LOGICAL),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 6) for op in ONCE),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 12) for op in TWICE),
    *(case(op, [(2, 1), (3,)], [(2, 3)], 18) for op in THRICE),
    case("Add", [(-1, 1), (2, 3)], [(2, 3)], 6),
    case("Add", [(-1, 4), (1, 4)], [(-1, 4)], None),
    case("Add", [None, (2, 3)], [None], None),
    refused("Add", [(2,), (3,)]),
    case("LogicalAnd", [(-1,), (1,)], [(-1,)], 0),
    unlike(case("ApproximateEqual", [(2, -1), (-1, 3)], [(2, 3)], 18)),
    case("ApproximateEqual", [(2, 3), (2, 3)], [(2, 3)], 18),
    refused("ApproximateEqual", [(2, 1), (2, 3)]),
    case("AddN", [(2, 3), (2, 3), (2, 3)], [(2, 3)], 12),
    case("AddN", [(2, -1), None], [(2, -1)], None),
    refused("AddN", [(2, 3), (2, 4)]),
    case("AccumulateNV2", [(2, 3), (2, 3)], [(2, 3)], 6, shape=(2, 3)),
    case("BiasAdd", [(2, 3, 4, 5), (5,)], [(2, 3, 4, 5)], 120),
    case("BiasAdd", [(2, -1, 4, 5), (3,)], [(2, 3, 4, 5)], 120, data_format="NCHW"),
    case("BiasAdd", [(2, -1), (-1,)], [(2, -1)], None),
    case("BiasAdd", [None, (5,)], [None], None),
    refused("BiasAdd", [(2, 3, 4, 5), (3,)]),
    refused("BiasAdd", [(2, 3, 4, 5), (5,)], data_format="NCHW"),
    refused("BiasAdd", [(5,), (5,)]),
    refused("BiasAdd", [(2, 5), (5, 1)]),
    case("BiasAddV1", [(2, 3), (3,)], [(2, 3)], 6),
    case("BiasAddGrad", [(2, 3, 4, 5)], [(5,)]),
    case("BiasAddGrad", [(2, 3, 4, 5)], [(3,)], data_format="NCHW"),
    case("BiasAddGrad", [None], [(-1,)]),
    refused("BiasAddGrad", [(5,)]),
    case("ClipByValue", [(2, 3), (), ()], [(2, 3)], 12),
    case("BiasAddGrad", [(2, 5)], [(5,)]),
]


def test_approximate_equal() -> None:
    x, y = f32(1, 1, 1, np.nan), f32(1.25, 0.5, 1.5, np.nan)
    result = run("ApproximateEqual", x, y, tolerance=0.5)
    # A difference equal to the tolerance is too large.
    assert result.tolist() == [True, False, False, False]
    close = run("ApproximateEqual", f32(0, 0), f32(0.9e-5, 1.1e-5))
    assert close.tolist() == [True, False]


def test_clip_by_value() -> None:
    x = f32([[-3, 1], [2, 9]])
    assert run("ClipByValue", x, f32(-1), f32(2)).tolist() == [[-1, 1], [2, 2]]
    low, high = f32([[0, 2], [0, 0]]), f32([[1, 3], [1, 1]])
    assert run("ClipByValue", x, low, high).tolist() == [[0, 2], [1, 1]]
    # If the bounds cross, the lower bound applies, as in TensorFlow.
    assert run("ClipByValue", x, f32(5), f32(4)).tolist() == [[5, 5], [5, 5]]
    assert run("ClipByValue", x, f32([[5, 5], [5, 0]]), f32(4)).tolist() == [[5, 5], [5, 4]]


_REAL = (
    ("Abs", abs),
    ("Atan", math.atan),
    ("Ceil", math.ceil),
    ("Cos", math.cos),
    ("Erf", math.erf),
    ("Erfc", math.erfc),
    ("Exp", math.exp),
    ("Expm1", math.expm1),
    ("Floor", math.floor),
    ("Neg", lambda x: -x),
    ("Relu", lambda x: max(x, 0)),
    ("Relu6", lambda x: min(max(x, 0), 6)),
    ("Rint", round),
    ("Sigmoid", lambda x: 1 / (1 + math.exp(-x))),
    ("Sin", math.sin),
    ("Sinh", math.sinh),
    ("Softplus", lambda x: math.log1p(math.exp(x))),
    ("Softsign", lambda x: x / (1 + abs(x))),
    ("Square", lambda x: x * x),
    ("Tanh", math.tanh),
    ("Elu", lambda x: x if x > 0 else math.expm1(x)),
    ("Selu", lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x))),
)
_POSITIVE = (
    ("Log", math.log),
    ("Log1p", math.log1p),
    ("Sqrt", math.sqrt),
    ("Rsqrt", lambda x: 1 / math.sqrt(x)),
    ("Reciprocal", lambda x: 1 / x),
    ("Lgamma", math.lgamma),
)


@pytest.mark.parametrize(("op", "function"), _REAL, ids=[op for op, _ in _REAL])
def test_function_of_reals(op: str, function) -> None:
    x = f32(-3.5, -2.5, -1, -0.25, 0, 0.25, 1, 2.5, 3.5, 7)
    out = run(op, x)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, [function(float(v)) for v in x], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("op", "function"), _POSITIVE, ids=[op for op, _ in _POSITIVE])
def test_function_of_positive_numbers(op: str, function) -> None:
    x = f32(0.01, 0.5, 1, 2, 30)
    np.testing.assert_allclose(run(op, x), [function(float(v)) for v in x], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op", ["Sigmoid", "Rsqrt", "Softplus", "Relu6", "Erf", "Elu"])
def test_dtype_and_shape_are_preserved(op: str, kind: type) -> None:
    for shape in ((3,), (), (0, 2)):
        out = run(op, np.full(shape, 0.5, dtype=kind))
        assert (out.dtype, out.shape) == (np.dtype(kind), shape)


def test_activations_propagate_nan() -> None:
    for op in ("Relu", "Relu6", "Elu", "Selu"):
        assert np.isnan(run(op, f32(np.nan, 1))[0])


def test_leaky_relu() -> None:
    assert run("LeakyRelu", f32(-2, 2), alpha=0.5).tolist() == [-1, 2]
    assert run("LeakyRelu", f32(-2)).tolist() == pytest.approx(-0.4)


def test_round_is_half_to_even() -> None:
    assert run("Round", f32(-1.5, -0.5, 0.5, 1.5, 2.5)).tolist() == [-2, 0, 0, 2, 2]
    assert run("Round", i32(3, -4)).tolist() == [3, -4]


def test_negation_of_lowest_integer_wraps() -> None:
    assert run("Neg", np.int8([-128])).tolist() == [-128]
    assert run("Abs", np.int8([-128])).tolist() == [-128]


def test_complex_parts() -> None:
    z = np.array([3 + 4j], np.complex64)
    assert run("ComplexAbs", z).tolist() == [5]
    assert (run("Real", z).tolist(), run("Imag", z).tolist()) == ([3], [4])
    assert run("ComplexAbs", z).dtype == np.float32


def test_complex_broadcasts() -> None:
    z = run("Complex", f32([1], [2]), f32(3, -4))
    assert z.dtype == np.complex64
    assert z.tolist() == [[1 + 3j, 1 - 4j], [2 + 3j, 2 - 4j]]
    assert run("Complex", np.float64([1]), np.float64([0.1])).dtype == np.complex128


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_large_numbers(op: str) -> None:
    out = run(op, f32([[1000, 1000], [0, np.log(3)]]))
    if op == "LogSoftmax":
        out = np.exp(out)
    np.testing.assert_allclose(out, [[0.5, 0.5], [0.25, 0.75]], rtol=1e-6)


def test_softmax_of_empty_tensor() -> None:
    assert run("Softmax", np.zeros((0, 3), np.float32)).shape == (0, 3)


FREE = ("Conj", "Imag", "Invert", "LogicalNot", "OnesLike", "Real", "ZerosLike")
ELEMENTWISE_ONCE = (
    *("Abs", "Acos", "Acosh", "Angle", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh"),
    *("Exp", "Expm1", "Floor", "Inv", "IsFinite", "IsInf", "IsNan", "Log", "Log1p", "Neg"),
    *("Reciprocal", "Rint", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Tan", "Tanh"),
)
GRADIENTS = ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")

OP_CASES += [
    *(case(op, [(2, 3)], [(2, 3)], 0) for op in FREE),
    *(case(op, [(2, 3)], [(2, 3)], 6) for op in ELEMENTWISE_ONCE),
    case("Rsqrt", [(2, 3)], [(2, 3)], 12),
    case("Sigmoid", [(2, 3)], [(2, 3)], 24),
    case("ComplexAbs", [(2, 3)], [(2, 3)], 24),
    case("Abs", [(2, -1)], [(2, -1)], None),
    case("Complex", [(2, 1), (3,)], [(2, 3)]),
    refused("Complex", [(2,), (3,)]),
    *(case(op, [(2, 3), (2, 3)], [(2, 3)]) for op in GRADIENTS),
    case("PopulationCount", [(2, 3)], [(2, 3)]),
]


def test_sign_of_complex_numbers() -> None:
    z = np.array([3 + 4j, 0, -2j], np.complex64)
    np.testing.assert_allclose(run("Sign", z), [0.6 + 0.8j, 0, -1j], rtol=1e-6)
    assert run("Sign", f32(-7, 0, 0.5)).tolist() == [-1, 0, 1]


def test_zeros_like_strings() -> None:
    assert run("ZerosLike", np.array([b"a", b"bc"], dtype=object)).tolist() == [b"", b""]
    assert run("ZerosLike", np.array(b"a", dtype=object)).tolist() == b""


COUNTED = ("Digamma", "Erf", "Erfc", "Erfinv", "Lgamma", "Ndtri")
PAIRS = ("Igamma", "Igammac", "NextAfter", "Polygamma", "Zeta")

OP_CASES += [
    *(case(op, [(2, 3)], [(2, 3)], 6) for op in COUNTED),
    *(case(op, [(2, 3)], [(2, 3)]) for op in ("BesselI0", "BesselI0e", "BesselI1", "BesselI1e")),
    case("CumulativeLogsumexp", [(2, 3), 0], [(2, 3)]),
    *(case(op, [(2, 1), (3,)], [(2, 3)]) for op in PAIRS),
    case("Betainc", [(2, 3), (), (-1, 3)], [(2, 3)]),
    case("Betainc", [(), (), ()], [()]),
    refused("Betainc", [(2, 3), (), (3,)]),
]


EULER = 0.5772156649015329


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        # psi(1) = -gamma, psi(1/2) = -gamma - 2 ln 2, psi(n + 1) = psi(n) + 1 / n, and
        # psi(1 - x) - psi(x) = pi cot(pi x); no value where the gamma function has a pole
        ("Digamma", 1, -EULER),
        ("Digamma", 0.5, -EULER - 2 * math.log(2)),
        ("Digamma", 3, 1.5 - EULER),
        ("Digamma", -0.5, 2 - EULER - 2 * math.log(2)),
        ("Digamma", 20, sum(1 / k for k in range(1, 20)) - EULER),
        ("Digamma", 0, math.nan),
        ("Digamma", -2, math.nan),
        ("Lgamma", 0.5, math.log(math.pi) / 2),
        ("Lgamma", 5, math.log(24)),
        ("Lgamma", -0.5, math.log(2 * math.sqrt(math.pi))),
        ("Lgamma", -1, math.inf),
        ("Lgamma", -math.inf, math.inf),
        ("Lgamma", math.inf, math.inf),
        *(("Erf", x, math.erf(x)) for x in (-3, -0.4, 0, 0.4, 0.5, 1, 2.5)),
        *(("Erfc", x, math.erfc(x)) for x in (-3, -0.4, 0, 0.4, 0.5, 1, 5)),
        *(("Erfinv", math.erf(x), x) for x in (-2.5, -0.3, 0, 0.3, 1, 2)),
        ("Erfinv", 1, math.inf),
        ("Erfinv", -1, -math.inf),
        ("Erfinv", 1.5, math.nan),
        ("Ndtri", 0.5, 0),
        # the probability that a normal variable is below one standard deviation
        ("Ndtri", (1 + math.erf(1 / math.sqrt(2))) / 2, 1),
    ],
)
def test_special_functions(op: str, x: float, expected: float) -> None:
    result = run(op, np.array([x], np.float64))
    np.testing.assert_allclose(result, [expected], rtol=1e-11, atol=1e-14)
    assert run(op, np.array([x], np.float32)).dtype == np.float32


test_shapes_and_costs = case_tests(OP_CASES)

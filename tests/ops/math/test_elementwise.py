"""Elementwise functions and activations."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import f32, i32, run

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
ONCE = (
    *("Abs", "Acos", "Acosh", "Angle", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh"),
    *("Exp", "Expm1", "Floor", "Inv", "IsFinite", "IsInf", "IsNan", "Log", "Log1p", "Neg"),
    *("Reciprocal", "Rint", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Square", "Tan", "Tanh"),
)
GRADIENTS = ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")

OP_CASES = [
    *(case(op, [(2, 3)], [(2, 3)], 0) for op in FREE),
    *(case(op, [(2, 3)], [(2, 3)], 6) for op in ONCE),
    case("Rsqrt", [(2, 3)], [(2, 3)], 12),
    case("Sigmoid", [(2, 3)], [(2, 3)], 24),
    case("ComplexAbs", [(2, 3)], [(2, 3)], 24),
    case("Abs", [(2, -1)], [(2, -1)], None),
    case("Complex", [(2, 1), (3,)], [(2, 3)]),
    refused("Complex", [(2,), (3,)]),
    *(case(op, [(2, 3), (2, 3)], [(2, 3)]) for op in GRADIENTS),
    case("PopulationCount", [(2, 3)], [(2, 3)]),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_sign_of_complex_numbers() -> None:
    z = np.array([3 + 4j, 0, -2j], np.complex64)
    np.testing.assert_allclose(run("Sign", z), [0.6 + 0.8j, 0, -1j], rtol=1e-6)
    assert run("Sign", f32(-7, 0, 0.5)).tolist() == [-1, 0, 1]


def test_zeros_like_strings() -> None:
    assert run("ZerosLike", np.array([b"a", b"bc"], dtype=object)).tolist() == [b"", b""]
    assert run("ZerosLike", np.array(b"a", dtype=object)).tolist() == b""

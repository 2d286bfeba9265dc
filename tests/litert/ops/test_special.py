"""Special functions, clipping, remainders, and shifts."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from tests.litert.one_op import check, integers, numbers

ODD = np.float32([[0.0, -1.5, np.inf], [-np.inf, np.nan, 3.0]])


@pytest.mark.parametrize("kind", ["Erf", "Erfc"])
def test_precision_of_error_functions(kind: str) -> None:
    x = np.linspace(-6, 6, 4001, dtype=np.float32).reshape(1, -1)
    operators = check(kind, [x], open_sizes=1, tolerance=1e-6)
    assert "ERF" not in operators


def test_lgamma() -> None:
    near = np.concatenate([np.linspace(-4.95, 8, 2001), [1, 2, 0, -1, -3]])
    for x in (near, np.array([8, 60, 1e3, 1e6]), np.array([1e-20, 1e-5])):
        check("Lgamma", [x.astype(np.float32).reshape(1, -1)], tolerance=1e-6)


@pytest.mark.parametrize("low", [-1.5, 0.0])
def test_clip_by_value(low: float) -> None:
    operators = check("ClipByValue", [numbers(3, 4) * 9, low, 6.0], constant=[1, 2])
    assert operators == (["RELU6"] if low == 0 else ["MINIMUM", "MAXIMUM"])


def test_clip_by_value_of_integers() -> None:
    assert check("ClipByValue", [integers(3, 4), np.int32(-2), np.int32(5)], constant=[1, 2]) == [
        "MINIMUM",
        "MAXIMUM",
    ]


def test_tan() -> None:
    assert check("Tan", [numbers(3, 4) / 3]) == ["SIN", "COS", "DIV"]


@pytest.mark.parametrize("keep_dims", [False, True])
def test_euclidean_norm(keep_dims: bool) -> None:
    values = [numbers(3, 4, 5), np.int32([0, -1])]
    check("EuclideanNorm", values, constant=[1], open_sizes=1, keep_dims=keep_dims)


@pytest.mark.parametrize("kind", ["IsNan", "IsInf", "IsFinite"])
def test_nan_and_infinity_checks(kind: str) -> None:
    check(kind, [ODD])


@pytest.mark.parametrize("kind", ["Mod", "TruncateMod"])
def test_remainders_with_the_sign_of_the_dividend(kind: str) -> None:
    check(kind, [integers(3, 5), integers(3, 5, low=1, high=4)])


def test_remainders_of_floats_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="not for float"):
        check("TruncateMod", [numbers(3), numbers(3)])


SPREAD = np.float32(
    [0, 1e-8, -1e-6, 1e-3, 0.1, -0.5, 0.99, 1, -1, 1.01, 3, -20, 80, 1e4, 1e7, -3e18, 1e30]
)


@pytest.mark.parametrize("kind", ["Asinh", "Acosh", "Atanh", "Atan", "Asin", "Acos"])
def test_precision_of_inverse_functions(kind: str) -> None:
    for x in SPREAD:
        check(kind, [np.float32([[x]])], open_sizes=1, tolerance=1e-6)


@pytest.mark.parametrize("kind", ["Sinh", "Cosh"])
def test_precision_of_hyperbolic_functions(kind: str) -> None:
    for x in (*SPREAD[:13], 89, -89.2, 100):
        check(kind, [np.float32([[x]])], tolerance=1e-5)


def test_shifts() -> None:
    values = [integers(3, 4), integers(3, 4, low=0, high=9)]
    assert check("RightShift", values) == ["RIGHT_SHIFT"]
    assert check("LeftShift", values) == ["POW", "MUL"]
    assert check("LeftShift", values, constant=[1]) == ["MUL"]
    check("RightShift", [np.uint8([200, 7]), np.uint8([1, 2])])


@pytest.mark.parametrize("open_sizes", [0, 1])
def test_cross_entropy(open_sizes: int) -> None:
    logits, labels = numbers(4, 3), np.abs(numbers(4, 3, seed=5))
    kind = "SoftmaxCrossEntropyWithLogits"
    check(kind, [logits, labels], outputs=2, open_sizes=open_sizes)
    for dtype in (np.int32, np.int64):
        places = np.array([2, 0, 1, 1], dtype)
        check(f"Sparse{kind}", [logits, places], outputs=2, open_sizes=open_sizes)

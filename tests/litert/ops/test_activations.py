"""Activations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.litert.one_op import check, numbers

BUILTIN = {
    "Relu": "RELU",
    "Relu6": "RELU6",
    "Elu": "ELU",
    "Sigmoid": "LOGISTIC",
    "Tanh": "TANH",
}


@pytest.mark.parametrize("kind", sorted(BUILTIN))
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4, 5)])
def test_builtins(kind: str, shape: tuple[int, ...]) -> None:
    # Polynomials of the runtime's own for exponents.
    assert check(kind, [numbers(*shape) * 4], tolerance=1e-6) == [BUILTIN[kind]]


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4, 5)])
def test_softmax(kind: str, shape: tuple[int, ...]) -> None:
    check(kind, [numbers(*shape) * 3])


@pytest.mark.parametrize("slope", [0.2, 0.01])
def test_leaky_relu(slope: float) -> None:
    assert check("LeakyRelu", [numbers(3, 4)], alpha=slope) == ["LEAKY_RELU"]


@pytest.mark.parametrize("kind", ["Selu", "Softplus", "Softsign"])
def test_activations_without_a_builtin(kind: str) -> None:
    check(kind, [np.linspace(-30, 30, 61, dtype=np.float32)])

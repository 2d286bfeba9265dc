"""Activations and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.clipping import clipped
from mobileprep.ops.arrays import as_array
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.common_shapes import same_as_both, unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import at_least_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Klambauer et al., "Self-Normalizing Neural Networks" (2017).
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _relu(x: Array) -> Any:  # noqa: ANN401 - an array or a numpy scalar
    return clipped(x, 0, np.inf) if x.dtype.kind == "f" else np.maximum(x, x.dtype.type(0))


def _relu6(x: Array) -> Any:  # noqa: ANN401
    if x.dtype.kind == "f":
        return clipped(x, 0, 6)
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


def _elu(x: Array) -> Any:  # noqa: ANN401
    return np.where(x < 0, np.expm1(x), x)


def _selu(x: Array) -> Any:  # noqa: ANN401
    kind = x.dtype.type
    return np.where(x < 0, kind(_SELU_SCALE * _SELU_ALPHA) * np.expm1(x), kind(_SELU_SCALE) * x)


def _softplus(x: Array) -> Any:  # noqa: ANN401
    if x.dtype.kind == "f":
        return np.logaddexp(x, x.dtype.type(0))
    # numpy has no logaddexp for bfloat16; exp(-|x|) is finite.
    return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


def _softsign(x: Array) -> Any:  # noqa: ANN401
    return np.divide(x, np.abs(x) + x.dtype.type(1))


# The function of each op, and how many operations it takes for an element.
_ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], int]] = {
    "Elu": (_elu, 2),
    "Relu": (_relu, 1),
    "Relu6": (_relu6, 2),
    "Selu": (_selu, 3),
    "Softplus": (_softplus, 2),
    "Softsign": (_softsign, 3),
}


def _as_kernel(function: Callable[[Array], Any]) -> Callable[[Node, Array], Array]:
    def run(node: Node, x: Array) -> Array:
        return as_array(function(x), x)

    return run


for _op, (_function, _operations) in _ACTIVATIONS.items():
    kernel(_op)(_as_kernel(_function))
    flop_rule(_op)(per_output(_operations))


shape_fn(*_ACTIVATIONS)(unchanged)


@kernel("LeakyRelu")
def leaky_relu(node: Node, x: Array) -> Array:
    """x where positive, else x times the attribute ``alpha``."""
    # An attribute has 32 bits, its default as well.
    alpha = x.dtype.type(np.float32(node.attr_float("alpha", 0.2)))
    return np.where(x > 0, x, np.multiply(x, alpha))


shape_fn("LeakyRelu")(unchanged)
flop_rule("LeakyRelu")(per_output(2))


@kernel("Softmax")
def softmax(node: Node, x: Array) -> Array:
    """exp(x) over its sum, along the last axis."""
    powers = np.exp(_shifted(x))
    return np.divide(powers, _sum(powers))


@kernel("LogSoftmax")
def log_softmax(node: Node, x: Array) -> Array:
    """The logarithm of softmax, along the last axis."""
    shifted = _shifted(x)
    return np.subtract(shifted, np.log(_sum(np.exp(shifted))))


@shape_fn("Softmax", "LogSoftmax")
def softmax_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [at_least_rank(args.shapes[0], 1)]


flop_rule("Softmax", "LogSoftmax")(per_output(5))


def _shifted(x: Array) -> Array:
    """x less its maximum, so that no power overflows."""
    if x.ndim < 1:
        message = "softmax needs an axis"
        raise ValueError(message)
    return x if x.size == 0 else np.subtract(x, x.max(axis=-1, keepdims=True))


def _sum(x: Array) -> Array:
    total: Array = np.add.reduce(x, axis=-1, keepdims=True)
    return total


# Of gradients, which are not run, the shapes are known.
shape_fn("SigmoidGrad", "TanhGrad")(unchanged)
shape_fn("EluGrad", "LeakyReluGrad", "Relu6Grad", "ReluGrad")(same_as_both)
shape_fn("SeluGrad", "SoftplusGrad", "SoftsignGrad")(same_as_both)

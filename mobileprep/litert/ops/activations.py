"""Activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.ir.node import Node
from mobileprep.litert.ops.math import binary, number
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import need_float

_PLAIN: Final = {
    "Relu": "RELU",
    "Relu6": "RELU6",
    "Elu": "ELU",
    "Sigmoid": "LOGISTIC",
    "Tanh": "TANH",
    "LogSoftmax": "LOG_SOFTMAX",
}
# The constants of the paper that defines it (Klambauer et al., 2017), as TensorFlow has them.
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


def unary(scope: Scope, code: str, value: Value) -> Value:
    """A builtin without options on one value."""
    return scope.emit(code, [value], value.shape, value.dtype)


@lowering(*_PLAIN)
def plain(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """An activation that is a builtin."""
    need_float(node, inputs)
    return scope.emit(_PLAIN[node.op], inputs, scope.output_shape(node), inputs[0].dtype)


@lowering("Softmax")
def softmax(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SOFTMAX."""
    need_float(node, inputs)
    shape = scope.output_shape(node)
    return scope.emit("SOFTMAX", inputs, shape, inputs[0].dtype, "SoftmaxOptions", beta=1.0)


@lowering("LeakyRelu")
def leaky_relu(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """LEAKY_RELU."""
    need_float(node, inputs)
    slope = node.attr_float("alpha", 0.2)
    shape = scope.output_shape(node)
    kind = inputs[0].dtype
    return scope.emit("LEAKY_RELU", inputs, shape, kind, "LeakyReluOptions", alpha=slope)


@lowering("Selu")
def selu(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """scale * (max(x, 0) + alpha * elu(min(x, 0)))."""
    need_float(node, inputs)
    zero = number(scope, inputs[0], 0)
    above = unary(scope, "RELU", inputs[0])
    below = binary(scope, "MINIMUM", "MaximumMinimumOptions", inputs[0], zero)
    curve = unary(scope, "ELU", below)
    bent = binary(scope, "MUL", "MulOptions", curve, number(scope, curve, _SELU_ALPHA))
    total = binary(scope, "ADD", "AddOptions", above, bent)
    return binary(scope, "MUL", "MulOptions", total, number(scope, total, _SELU_SCALE))


@lowering("Softplus")
def softplus(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """max(x, 0) + log(1 + exp(-abs(x))), which no x overflows."""
    need_float(node, inputs)
    x = inputs[0]
    small = unary(scope, "EXP", unary(scope, "NEG", unary(scope, "ABS", x)))
    more = binary(scope, "ADD", "AddOptions", small, number(scope, x, 1))
    return binary(scope, "ADD", "AddOptions", unary(scope, "RELU", x), unary(scope, "LOG", more))


@lowering("Softsign")
def softsign(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """x / (1 + abs(x))."""
    need_float(node, inputs)
    x = inputs[0]
    size = binary(scope, "ADD", "AddOptions", unary(scope, "ABS", x), number(scope, x, 1))
    return binary(scope, "DIV", "DivOptions", x, size)

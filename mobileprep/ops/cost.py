"""Costs of ops: the number of operations by shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.ops.registry import OpRegistry


class UnknownCostError(Exception):
    """The shapes do not determine the cost of an op."""


class Sizes(Struct, frozen=True):
    """The arguments of a flop rule.

    Args:
        node: the node.
        inputs, outputs: the shapes of its tensors, None if unknown.
    """

    node: Node
    inputs: Sequence[TensorShape]
    outputs: Sequence[TensorShape]

    def input(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            UnknownCostError: the shape is unknown.
        """
        return _known_shape(self.inputs, index)

    def output(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output; raises as ``input`` does."""
        return _known_shape(self.outputs, index)

    def input_elements(self, index: int = 0) -> int:
        """Return the number of an input's elements."""
        return math.prod(self.input(index))

    def output_elements(self, index: int = 0) -> int:
        """Return the number of an output's elements."""
        return math.prod(self.output(index))


def _known_shape(shapes: Sequence[TensorShape], index: int) -> tuple[int, ...]:
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or min(shape, default=0) < 0:
        raise UnknownCostError
    return shape


FlopRule = Callable[[Sizes], float]

registry: OpRegistry[FlopRule] = OpRegistry("flop rule")
flop_rule = registry.register
counted_ops = registry.names


def count_flops(sizes: Sizes) -> int | None:
    """Count the operations of a node; None if its op or shapes do not determine them."""
    rule = registry.find(sizes.node.op)
    if rule is None:
        return None
    try:
        return round(rule(sizes))
    except (UnknownCostError, InvalidGraphError, IndexError, ValueError, ArithmeticError):
        return None


def per_output(factor: float) -> FlopRule:
    """Create the rule of ops with a constant number of operations per output element."""
    if not factor:
        # Zero operations do not depend on the shape.
        return free

    def rule(sizes: Sizes) -> float:
        return factor * sizes.output_elements()

    return rule


def per_input(factor: float, index: int = 0) -> FlopRule:
    """Create the rule of ops with a constant number of operations per element of an input."""

    def rule(sizes: Sizes) -> float:
        return factor * sizes.input_elements(index)

    return rule


def free(sizes: Sizes) -> float:
    """Return 0, for ops that compute nothing."""
    return 0


def depends_on_values(sizes: Sizes) -> float:
    """Raise an error for ops whose cost depends on values instead of shapes."""
    raise UnknownCostError

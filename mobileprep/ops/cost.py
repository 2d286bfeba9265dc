"""The registry of flop rules: how much arithmetic each op does, from its tensors' shapes.

One addition, multiplication, comparison or call of a mathematical function counts as one
operation, of integers as of reals. The conventions are those of TensorFlow's profiler
(``flops_registry.py``) for the ops that it knows: 2 for a multiplication and addition of a
convolution or matrix product, 2 for a reciprocal square root, 5 for each element of a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mobileprep.core.loading import Registry
from mobileprep.errors import InvalidGraphError
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ops.modules import import_op, import_ops


class UnknownCostError(Exception):
    """The shapes do not tell how much an op does."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a flop rule may look at.

    Args:
        node: the node.
        inputs, outputs: the shapes of its tensors, None where unknown.
    """

    node: Node
    inputs: Sequence[TensorShape]
    outputs: Sequence[TensorShape]

    def input(self, index: int) -> tuple[int, ...]:
        """The shape of an input.

        Raises:
            UnknownCostError: it is not known.
        """
        return _known(self.inputs, index)

    def output(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an output; raises as ``input`` does."""
        return _known(self.outputs, index)

    def taken(self, index: int = 0) -> int:
        """The number of an input's elements."""
        return math.prod(self.input(index))

    def made(self, index: int = 0) -> int:
        """The number of an output's elements."""
        return math.prod(self.output(index))


def _known(shapes: Sequence[TensorShape], index: int) -> tuple[int, ...]:
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or min(shape, default=0) < 0:
        raise UnknownCostError
    return shape


FlopRule = Callable[[Sizes], float]

registry: Registry[FlopRule] = Registry("flop rule")


def flop_rule(*ops: str) -> Callable[[FlopRule], FlopRule]:
    """A decorator that makes a function the flop rule of the named ops."""
    return registry.register(*ops)


def count_flops(sizes: Sizes) -> int | None:
    """The operations of a node, or None where its op or its shapes do not tell."""
    rule = _find_rule(sizes.node.op)
    if rule is None:
        return None
    try:
        return round(rule(sizes))
    except (UnknownCostError, InvalidGraphError, IndexError, ValueError, ArithmeticError):
        return None


def counted_ops() -> list[str]:
    """The ops that have a rule, sorted."""
    import_ops()
    return list(registry)


def _find_rule(op: str) -> FlopRule | None:
    if op not in registry:
        import_op(op)
    return registry.get(op)

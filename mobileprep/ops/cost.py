"""Costs of ops: operations, effort, and planned sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.core.loading import Registry
from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import any_op_def, output_types
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.kernel import import_op, import_ops
from mobileprep.ops.shape_inference import infer_shapes


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

registry: Registry[FlopRule] = Registry("flop rule")


def flop_rule(*ops: str) -> Callable[[FlopRule], FlopRule]:
    """Register a function as the flop rule of the named ops."""
    return registry.register(*ops)


def count_flops(sizes: Sizes) -> int | None:
    """Count the operations of a node; None if its op or shapes do not determine them."""
    rule = _find_rule(sizes.node.op)
    if rule is None:
        return None
    try:
        return round(rule(sizes))
    except (UnknownCostError, InvalidGraphError, IndexError, ValueError, ArithmeticError):
        return None


def counted_ops() -> list[str]:
    """Return the ops that have a rule, sorted."""
    import_ops()
    return list(registry)


def _find_rule(op: str) -> FlopRule | None:
    if op not in registry:
        import_op(op)
    return registry.get(op)


def per_output(factor: float) -> FlopRule:
    """Create the rule of ops with a constant number of operations per output element."""
    if not factor:
        # Zero operations do not depend on the shape.
        return free

    def rule(sizes: Sizes) -> float:
        return factor * sizes.output_elements()

    return rule


def per_input(factor: float) -> FlopRule:
    """Create the rule of ops with a constant number of operations per element of input 0."""

    def rule(sizes: Sizes) -> float:
        return factor * sizes.input_elements()

    return rule


def free(sizes: Sizes) -> float:
    """Return 0, for ops that compute nothing."""
    return 0


def depends_on_values(sizes: Sizes) -> float:
    """Raise an error for ops whose cost depends on values instead of shapes."""
    raise UnknownCostError


_NAME: Final = "node"
# Tensors that hold shapes or axes have fewer elements.
_MOST_ELEMENTS: Final = 1 << 12
_POINTER: Final = 8
# Their results share the memory of their inputs.
_VIEWS: Final = frozenset(
    ("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "Slice", "Split")
)


def planned_bytes(node: Node, inputs: Sequence[Any]) -> int | None:
    """Return the bytes of a node's outputs for given inputs; None if shapes do not suffice."""
    if node.op in _VIEWS:
        return 0
    feeding = list(_feeding(inputs))
    refs = tuple(Ref(f.name) for f in feeding)
    probe = Node(_NAME, node.op, refs, attrs=node.attrs)
    definition = any_op_def(node.op)
    if definition is None:
        return None
    try:
        shapes = infer_shapes(Graph([*feeding, probe]))[_NAME]
        types = output_types(probe, definition)
    except InvalidGraphError:
        return None
    if len(types) != len(shapes) or any(s is None or min(s, default=0) < 0 for s in shapes):
        return None
    sizes = (t.base.numpy.itemsize if t.base.numpy is not None else _POINTER for t in types)
    return sum(math.prod(s or ()) * size for s, size in zip(shapes, sizes, strict=True))


def _feeding(inputs: Sequence[Any]) -> Iterator[Node]:
    """Yield a node for each input: a constant if its elements may matter."""
    for index, value in enumerate(inputs):
        name = f"{_NAME}_{index}"
        if not isinstance(value, np.ndarray):
            yield Node(name, "NoOp")
        elif value.size <= _MOST_ELEMENTS and value.dtype != object:
            yield constant(name, Tensor.of(value))
        else:
            kind = attr.dtype(dtype_from_numpy(value.dtype) or DType.FLOAT)
            shape = attr.shape(value.shape)
            yield Node(name, "Placeholder", attrs={"dtype": kind, "shape": shape})

"""Constants and constant expressions of a graph: their values, and their replacements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from mobileprep.core.parallel import at_once
from mobileprep.errors import InvalidGraphError, TransformError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import conditional_nodes, unused
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.shape_inference import Shapes, shape_of
from mobileprep.transforms.base import Result

# Passing a smaller constant to another thread takes longer than its arithmetic.
_LARGE: Final = 1 << 14

_Result = TypeVar("_Result")
_Stored = TypeVar("_Stored")


def float_value(node: Node, transform: str) -> Tensor | None:
    """Return the value of a float32 constant, or None for any other node.

    Raises:
        TransformError: a constant has no type or value.
    """
    if node.op != "Const":
        return None
    for name in ("dtype", "value"):
        if name not in node.attrs:
            message = f"{transform}: the constant {node.name!r} has no attribute {name!r}"
            raise TransformError(message, "export the graph again")
    if node.attr_dtype("dtype") is not DType.FLOAT:
        return None
    value = node.attr_tensor("value")
    return value if value.dtype is DType.FLOAT else None


def convert_floats(
    graph: Graph,
    transform: str,
    convert: Callable[[Node, Tensor], _Stored | str],
    put: Callable[[Node, _Stored], Iterable[Node]],
) -> Result:
    """Store the float32 constants of a graph in another form.

    Args:
        convert: returns a constant's new form, or the reason to keep it. Called from several
            threads for large constants.
        put: returns the nodes that replace a constant, from its new form.
    """
    skipped: Counter[str] = Counter()
    nodes: list[Node] = []
    matched = 0
    for node, stored in zip(graph, _each_float(graph, transform, convert), strict=True):
        if stored is None or isinstance(stored, str):
            nodes.append(node)
            skipped.update([stored] if stored else [])
        else:
            matched += 1
            nodes += put(node, stored)
    return Result(graph.with_nodes(nodes) if matched else graph, matched, skipped)


def _each_float(
    graph: Graph, transform: str, convert: Callable[[Node, Tensor], _Result]
) -> list[_Result | None]:
    """Return the result of ``convert`` for each float32 constant, and None for other nodes."""
    # By position, because a graph may have two nodes with the same name.
    values = [float_value(node, transform) for node in graph]
    large = [at for at, value in enumerate(values) if value is not None and value.size >= _LARGE]

    def converted(at: int) -> _Result | None:
        value = values[at]
        if value is None:
            return None
        result = convert(graph.nodes[at], value)
        if value.size >= _LARGE:
            value.let_go()
        return result

    done = dict(zip(large, at_once(converted, large), strict=True))
    return [done[at] if at in done else converted(at) for at in range(len(values))]


class Replacements(Struct, frozen=True, dict=True):
    """Factory of constants that replace others of a graph.

    With ``tf115``, they have neither device nor control inputs, like in the original, except for
    control inputs that determine whether a constant in a branch or a loop runs.
    """

    graph: Graph
    tf115: bool

    def make(self, old: Node, name: str, value: Tensor) -> Node:
        """Create the constant that replaces ``old``, or one of several that do."""
        old.attr_tensor("value").let_go()
        if not self.tf115:
            return constant(name, value, old.device, old.inputs)
        return constant(name, value, inputs=self._ties(old))

    def _ties(self, old: Node) -> tuple[Ref, ...]:
        return tuple(r for r in old.inputs if r.node in self._conditional) if old.inputs else ()

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self.graph)


_LARGEST: Final = 1 << 16
_DEEPEST: Final = 32
_ELEMENTWISE: Final = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Neg", "Rsqrt", "Sqrt", "Square", "Reciprocal"}
)
_RESHAPING: Final = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims"})


class ConstantExpressions:
    """Evaluator of the constant expressions of one graph, with cached values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[str, Tensor | None] = {}

    def value(self, ref: Ref) -> Tensor | None:
        """Return the value of a tensor, or None if it is not a constant or a small expression."""
        return None if ref.index else self._value(ref.node, 0)

    def replaced(
        self, new: Mapping[str, Iterable[Node]], lost: Iterable[str], protected: Collection[str]
    ) -> Graph:
        """Return the graph with replaced nodes, and without constants that are no longer needed.

        Args:
            new: the replacements of nodes, by name.
            lost: the nodes that lost a consumer; their exclusive inputs are checked as well.
        """

        def stays(node: Node) -> bool:
            return node.name in protected or (node.op != "Const" and node.name not in self._values)

        nodes = [n for old in self._graph for n in new.get(old.name, (old,))]
        now = self._graph.with_nodes(nodes)
        gone = unused(now, lost, stays)
        return now.with_nodes(n for n in nodes if n.name not in gone)

    def _value(self, name: str, depth: int) -> Tensor | None:
        if name not in self._values:
            self._values[name] = self._computed(name, depth)
        return self._values[name]

    def _computed(self, name: str, depth: int) -> Tensor | None:
        node = self._graph.get(name)
        if node is None:
            return None
        if node.op == "Const":
            return node.attr_tensor("value")
        if (node.op not in _ELEMENTWISE and node.op not in _RESHAPING) or depth == _DEEPEST:
            return None
        inputs: list[Tensor] = []
        for ref in node.data_inputs:
            value = None if ref.index else self._value(ref.node, depth + 1)
            if value is None:
                return None
            inputs.append(value)
        return _evaluated(node, inputs)


def _evaluated(node: Node, inputs: list[Tensor]) -> Tensor | None:
    if node.op == "Identity" and len(inputs) == 1:
        return inputs[0]
    try:
        if node.op in _ELEMENTWISE:
            # Two small constants may broadcast to a huge one.
            sizes = np.broadcast_shapes(*(t.shape for t in inputs))
            if int(np.prod(sizes, dtype=np.float64)) > _LARGEST:
                return None
        with np.errstate(all="ignore"):
            return evaluate_node(node, inputs)[0]
    except (InvalidGraphError, UnsupportedError, ValueError):
        # Not reported here: running the node will report the error.
        return None


def lazy_shapes(
    infer: Callable[[], Mapping[str, Shapes]],
) -> Callable[[Ref], TensorShape]:
    """Return a function for shapes of tensors, which infers those of the graph on first use."""
    inferred = cache(infer)
    return lambda ref: shape_of(inferred(), ref)

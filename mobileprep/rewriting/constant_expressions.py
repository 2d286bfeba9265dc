"""The values of small expressions over constants, such as batch normalizations leave."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.ir.unused import unused
from mobileprep.ops.constant_evaluation import evaluate_node

_LARGEST: Final = 1 << 16
_DEEPEST: Final = 32
_ELEMENTWISE: Final = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Neg", "Rsqrt", "Sqrt", "Square", "Reciprocal"}
)
_RESHAPING: Final = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims"})


class ConstantExpressions:
    """Works out the constants of one graph, each once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[str, Tensor | None] = {}

    def value(self, ref: Ref) -> Tensor | None:
        """The value of a tensor, or None where it is no constant, or no small expression."""
        return None if ref.index else self._value(ref.node, 0)

    def unused(self, graph: Graph, names: Iterable[str], protected: Collection[str]) -> set[str]:
        """Which nodes of constants are not needed any more.

        Args:
            graph: the graph as it is now.
            names: the nodes that lost a consumer; what they alone needed is looked at as well.
            protected: names of nodes that must stay.
        """

        def stays(node: Node) -> bool:
            return node.name in protected or (node.op != "Const" and node.name not in self._values)

        return unused(graph, names, stays)

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
            # Two small constants may make a huge one between them.
            sizes = np.broadcast_shapes(*(t.shape for t in inputs))
            if int(np.prod(sizes, dtype=np.float64)) > _LARGEST:
                return None
        with np.errstate(all="ignore"):
            return evaluate_node(node, inputs)[0]
    except (InvalidGraphError, UnsupportedError, ValueError):
        # Not what this is after: whoever runs the node will say what is wrong with it.
        return None

"""Find remains of batch norms in a GraphDef, using protobuf only."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

_LAYERS = {"Conv2D", "DepthwiseConv2dNative", "Conv3D", "Conv2DBackpropInput", "MatMul",
           "BatchMatMul", "BatchMatMulV2"}  # fmt: skip
_PASSING = {"Identity", "Reshape", "Squeeze", "ExpandDims", "BatchToSpaceND"}
_SUMS = {"Add", "AddV2", "Sub"}
_PRODUCTS = {"Mul", "RealDiv", "Div"}
_EXPRESSION = {"Identity", "Reshape", "Rsqrt", "Sqrt", "Neg", "ExpandDims", "Squeeze", "Cast",
               *_SUMS, *_PRODUCTS}  # fmt: skip


class Leftovers:
    """The remains of batch norms in a graph.

    Args:
        graph: the GraphDef.
        fetched: the names of its outputs.
    """

    def __init__(self, graph: Any, fetched: set[str]) -> None:
        self._nodes = {n.name: n for n in graph.node}
        self._fetched = fetched
        self._users: dict[str, list[Any]] = defaultdict(list)
        for node in graph.node:
            for source in {_node(i) for i in node.input}:
                self._users[source].append(node)

    def norms(self) -> list[str]:
        """Batch normalization ops, and reciprocal square roots of constants such as variances."""
        return [
            n.name
            for n in self._nodes.values()
            if "BatchNorm" in n.op or (n.op == "Rsqrt" and self._is_constant(n.input[0]))
        ]

    def behind_layers(self) -> list[str]:
        """Arithmetic with constants after layers without other consumers, except one BiasAdd."""
        lines = []
        for node in self._nodes.values():
            if node.op in _LAYERS and self._is_constant(node.input[1]):
                lines += self._after(node)
        return lines

    def long_runs(self) -> list[str]:
        """Consecutive multiplications or additions of constants."""
        names = []
        for node in self._nodes.values():
            kind = self._kind(node)
            while kind and kind == self._kind(self._nodes[self._source(node)]):
                names.append(node.name)
                break
        return names

    def pairs(self) -> int:
        """The number of constant additions that follow a constant multiplication."""
        return sum(
            self._kind(n) == "sum" and self._kind(self._nodes[self._source(n)]) == "product"
            for n in self._nodes.values()
        )

    def _after(self, layer: Any) -> list[str]:
        lines, current, biased = [], layer, False
        while current.name not in self._fetched and len(self._users[current.name]) == 1:
            (user,) = self._users[current.name]
            if user.op == "BiasAdd" and not biased:
                biased = True
            elif self._kind(user) and self._source(user) == current.name:
                lines.append(f"{layer.name} -> {user.op} {user.name}")
            elif user.op not in _PASSING or _node(user.input[0]) != current.name:
                break
            current = user
        return lines

    def _kind(self, node: Any) -> str:
        kind = "sum" if node.op in _SUMS | {"BiasAdd"} else "product"
        if node.op not in _SUMS | _PRODUCTS | {"BiasAdd"}:
            return ""
        constants = [self._is_constant(i) for i in node.input if not i.startswith("^")]
        return kind if sum(constants) == 1 else ""

    def _source(self, node: Any) -> str:
        return next(_node(i) for i in node.input if not self._is_constant(i))

    def _is_constant(self, name: str, depth: int = 0) -> bool:
        node = self._nodes[_node(name)]
        if node.op == "Const":
            return True
        tensors = [i for i in node.input if not i.startswith("^")]
        return (
            node.op in _EXPRESSION
            and depth < 30
            and all(self._is_constant(i, depth + 1) for i in tensors)
        )


def _node(name: str) -> str:
    return name.lstrip("^").partition(":")[0]

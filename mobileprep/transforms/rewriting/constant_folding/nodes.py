"""Find the constant nodes of a graph: those that depend on no feeds and no state.

Source: ``FindConstantFoldableNodes`` of TensorFlow 1.15's constant folding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.constant_evaluation import SHAPE_OPS, shape_values
from mobileprep.transforms.rewriting.constant_folding.rules import Execution

_NO_CONTROLS: frozenset[Ref] = frozenset()

Refusal = Callable[[Node], str]
"""Function that returns why a node must not be folded, or an empty string."""


class ConstantNodes(Struct, frozen=True):
    """The constant nodes of a graph.

    Args:
        order: their names, inputs before consumers.
        controls: what must run before each value may be used: nodes as control references, and
            feeds as the fed tensors.
        shapes: outputs of the nodes that return a known shape.
        skipped: number of nodes with constant inputs that must not be folded, by reason.
    """

    order: Sequence[str]
    controls: Mapping[str, frozenset[Ref]]
    shapes: Mapping[str, tuple[Tensor, ...]]
    skipped: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.controls


@dataclass
class _Search:
    """State of one traversal of a graph."""

    run: Execution
    refusal: Refusal
    shape_of: Callable[[Ref], TensorShape]
    order: list[str] = field(default_factory=list)
    controls: dict[str, frozenset[Ref]] = field(default_factory=dict)
    shapes: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def visit(self, node: Node) -> None:
        """Classify a node whose inputs are already classified."""
        values = node.op in SHAPE_OPS and shape_values(
            node, [self.shape_of(ref) for ref in node.data_inputs]
        )
        if values:
            self.shapes[node.name] = values
        elif not self._is_constant(node):
            return
        self.order.append(node.name)
        self.controls[node.name] = self._awaited(node)

    def _is_constant(self, node: Node) -> bool:
        if node.op == "Const":
            return node.attr_dtype("dtype") is not DType.RESOURCE
        inputs = node.data_inputs
        if not all(r.node in self.controls and r not in self.run.fed for r in inputs):
            return False
        reason = self.refusal(node)
        if reason:
            self.skipped[reason] += 1
        return not reason

    def _awaited(self, node: Node) -> frozenset[Ref]:
        """Return all control inputs of a constant node and of its sources."""
        awaited = _NO_CONTROLS
        for ref in node.inputs:
            if ref in self.run.fed:
                more = frozenset({Ref(ref.node, max(ref.index, 0))})
            elif ref.node in self.controls:
                more = self.controls[ref.node]
            else:
                more = frozenset({control(ref.node)})
            # Most nodes have no dependencies, or those of one input: share the set.
            if not more <= awaited:
                awaited = more if not awaited else awaited | more
        return awaited


def constant_nodes(
    run: Execution, sinks: Iterable[str], refusal: Refusal, shape_of: Callable[[Ref], TensorShape]
) -> ConstantNodes:
    """Find the constant nodes among those that run.

    Args:
        shape_of: returns the statically known shape of a tensor.
    """
    search = _Search(run, refusal, shape_of)
    for name in _post_order(run, sinks):
        search.visit(run.nodes[name])
    return ConstantNodes(search.order, search.controls, search.shapes, search.skipped)


def _post_order(run: Execution, sinks: Iterable[str]) -> Iterator[str]:
    """Yield names with inputs first; inputs are visited in reverse alphabetical order."""
    stack = [(name, False) for name in sinks]
    visited = set()
    while stack:
        name, is_expanded = stack.pop()
        if is_expanded:
            yield name
            continue
        if name in visited:
            continue
        visited.add(name)
        stack.append((name, True))
        producers = sorted({r.node for r in run.nodes[name].inputs if r not in run.fed})
        stack += [(p, False) for p in producers if p not in visited]

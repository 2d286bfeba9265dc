"""The shapes of tensors in loops of control flow v1: what those of all turns have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import ENTERS, MERGES, NEXT_ITERATIONS
from mobileprep.graph.refs import Ref
from mobileprep.ops.shape_function import common
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

# Loops in loops, and sizes that turn by turn become unknown; models have two or three of either.
_MOST_ROUNDS: Final = 24


class LoopShapes:
    """Shapes of a graph's tensors.

    Args:
        graph: the graph.
        feeds: shapes of tensors by name that replace what the graph says.
    """

    def __init__(self, graph: Graph, feeds: Mapping[str, TensorShape] | None = None) -> None:
        self._graph = graph
        self._feeds = dict(feeds or {})
        self._heads = _heads(graph)
        self._unknown: set[str] = set()
        self._shapes = self._settled()

    def of(self, ref: Ref) -> TensorShape:
        """The shape of a tensor."""
        return shape_of(self._shapes, ref)

    def given(self, entered: Sequence[Ref], args: Sequence[Ref]) -> AttrValue:
        """The shapes that a loop gives, where any changes in its turns; an empty list elsewhere.

        Without them TensorFlow takes the shape of what enters for that of what leaves.
        """
        shapes = [self.of(ref) for ref in args]
        if shapes[: len(entered)] == [self.of(ref) for ref in entered]:
            return AttrValue("list", ())
        return AttrValue("list(shape)", tuple(shapes))

    def _settled(self) -> Mapping[str, Shapes]:
        known: dict[str, TensorShape] = {}
        for _ in range(_MOST_ROUNDS):
            self._shapes = infer_shapes(self._graph, {**self._feeds, **known})
            after = {name: self._after(name, *ends, known) for name, ends in self._heads.items()}
            if after == known:
                return self._shapes
            known = after
        return infer_shapes(self._graph, self._feeds)

    def _after(
        self, name: str, first: Ref, later: Ref, known: Mapping[str, TensorShape]
    ) -> TensorShape:
        """A loop variable's shape after one more turn; at first it is that which enters."""
        before = known.get(name)
        if name in self._unknown:
            return None
        if before is None:
            return self.of(first)
        after = common((self.of(first), before, self.of(later)))
        if after is None:
            self._unknown.add(name)
        return after


def _heads(graph: Graph) -> dict[str, tuple[Ref, Ref]]:
    """For each Merge at the head of a loop what enters, and what comes from the last turn."""
    found = {}
    for node in graph:
        if node.op not in MERGES or len(node.data_inputs) != 2:
            continue
        givers = [graph[r.node] for r in node.data_inputs]
        for first, later in (givers, givers[::-1]):
            if first.op not in ENTERS or later.op not in NEXT_ITERATIONS:
                continue
            if first.data_inputs and later.data_inputs:
                found[node.name] = (first.data_inputs[0], later.data_inputs[0])
    return found

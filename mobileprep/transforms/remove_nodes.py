"""Removes nodes of given ops, and gives what they fed their first input instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.order import tool_order
from mobileprep.ir.pattern import Match, op
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.rewrite import Leave, Renames, Rule, rename_inputs, rewrite
from mobileprep.options.declare import Option
from mobileprep.transforms._bypass import FED_OR_FETCHED, Bypass, Guards
from mobileprep.transforms._colocation import without_dangling
from mobileprep.transforms._idle_controls import without_idle_controls
from mobileprep.transforms._rewriting import fed_and_fetched
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "remove_nodes"


@transform(_NAME)
@dataclass(frozen=True)
class RemoveNodes(Transform):
    """Nodes of the ops go, unless they are fed or fetched, or branches and loops hang on them.

    The original also removes nodes that carry the control flow, so that the nodes of both
    branches run. A recipe also keeps nodes that wait for others by control inputs, which the
    original forgets, and takes away in one go what hangs on one node, where the original stops
    at the first that is fed or fetched.

    Source: ``remove_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Removes nodes of the given ops that have one input, and connects what they fed to that "
        "input. Inputs and outputs of the graph stay."
    )
    of_graph_transform_tool = True

    op: Annotated[tuple[str, ...], Option("The op to remove. Repeated for several.", min_items=1)]
    max_inputs: Annotated[
        int,
        Option("Remove nodes of up to this many inputs; the first one takes the node's place."),
    ] = 1

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the nodes.

        Raises:
            TransformError: no op is named.
        """
        if not self.op:
            raise refuse(_NAME, "no op is named", "name it: remove_nodes(op=Identity)")
        if context.faithful:
            return self._in_rounds(graph, context)
        return self._at_once(graph, context)

    def _at_once(self, graph: Graph, context: Context) -> Result:
        protected = fed_and_fetched(context)
        ready = without_idle_controls(graph, protected)
        bypass = Bypass(ready, protected)
        for node in tool_order(ready):
            tensors = node.data_inputs
            if node.op in self.op and 1 <= len(tensors) <= self.max_inputs:
                bypass.take_out(node, tensors[0])
        done = bypass.result()
        return done if done.matched else replace(done, graph=graph)

    def _in_rounds(self, graph: Graph, context: Context) -> Result:
        """As the original goes about it, so that nodes come to stand in the same order."""
        matched = 0
        skipped: Counter[str] = Counter()
        for name in self.op:
            for count in range(1, self.max_inputs + 1):
                while True:
                    done = _one_round(graph, name, count, fed_and_fetched(context))
                    graph = done.graph
                    matched += done.matched
                    if not done.matched:
                        break
                skipped.update(done.skipped)
        if not matched:
            return Result(graph, skipped=skipped)
        nodes = without_dangling(graph.nodes, graph.by_name)
        return Result(graph.with_nodes(nodes), matched, skipped)


def _one_round(graph: Graph, name: str, inputs: int, protected: frozenset[str]) -> Result:
    """Remove each node of the op whose inputs no other match of this round has taken."""
    guards = Guards(graph)
    renames = Renames()

    def check(match: Match) -> str:
        if match.node.name in protected:
            return ""
        return guards.reason(match.node, match.node.data_inputs[:1])

    def remove(match: Match) -> Sequence[Node] | Leave:
        node, first = match.node, match.root.inputs[0].node
        if node.name in protected:
            return Leave(FED_OR_FETCHED)
        source = node.data_inputs[0]
        renames.tensor(Ref(node.name), source)
        renames.tensor(control(node.name), control(source.node))
        others = [n for n in match.nodes if n not in (node, first) and n.name in match.used_outside]
        return [first, *others]

    pattern = op(name, *["*"] * inputs)
    rule = Rule(pattern, remove, check, allow_inconsistencies=True)
    done = rewrite(graph, rule, protected)
    return Result(rename_inputs(done.graph, renames), done.matched, done.skipped)

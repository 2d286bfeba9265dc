"""Remove nodes of the given ops, and connect their consumers to the first input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final

from mobileprep.core.declare import Option
from mobileprep.graph.bypass import FED_OR_FETCHED, Bypass, Guards, without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.reachability import execution_order, without_dangling
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.rewrite import Leave, Renames, Rewritten, Rule, rename_inputs, rewrite
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "remove_nodes"


@transform(_NAME)
class RemoveNodes(Transform, frozen=True):
    """Remove nodes of the ops that are not fed or fetched, and not needed by branches or loops.

    The original also removes nodes that are part of control flow, so that the nodes of both
    branches run. A recipe also keeps nodes with control inputs, which the original loses, and
    removes all matching consumers of a node at once, where the original stops at the first that is
    fed or fetched.

    Source: ``remove_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Removes nodes of the given ops that have one input, and connects their consumers to that"
        " input. Inputs and outputs of the graph are kept."
    )
    of_graph_transform_tool = True

    op: Annotated[tuple[str, ...], Option("The op to remove. Repeated for several.", min_items=1)]
    max_inputs: Annotated[
        int,
        Option("Remove nodes of up to this many inputs; the first one takes the node's place."),
    ] = 1

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the nodes of the given ops."""
        if not self.op:
            raise refuse(_NAME, "no op is named", "name it: remove_nodes(op=Identity)")
        protected = context.protected
        if context.tf115:
            done = remove_in_rounds(graph, self.op, self.max_inputs, protected)
            return Result.of(done, graph, context)
        ready = without_idle_controls(graph, protected)
        bypass = Bypass(ready, protected)
        for node in execution_order(ready):
            tensors = node.data_inputs
            if node.op in self.op and 1 <= len(tensors) <= self.max_inputs:
                bypass.take_out(node, tensors[0])
        return Result.of(bypass.result(), graph, context)


def remove_in_rounds(
    graph: Graph, ops: Iterable[str], max_inputs: int, protected: Collection[str]
) -> Rewritten:
    """Return the graph without the nodes of some ops, each replaced by its first input."""
    matched = 0
    skipped: Counter[str] = Counter()
    for name in ops:
        for count in range(1, min(max_inputs, _most_inputs(graph, name)) + 1):
            while True:
                done = _one_round(graph, name, count, protected)
                graph = done.graph
                matched += done.matched
                if not done.matched:
                    break
            skipped.update(done.skipped)
    if not matched:
        return Rewritten(graph, skipped=skipped)
    nodes = without_dangling(graph.nodes, graph.by_name)
    return Rewritten(graph.with_nodes(nodes), matched, skipped)


def _most_inputs(graph: Graph, name: str) -> int:
    """Return the largest number of inputs of any node of an op, which limits the rounds."""
    return max((len(node.inputs) for node in graph if node.op == name), default=0)


def _one_round(graph: Graph, name: str, inputs: int, protected: Collection[str]) -> Rewritten:
    """Remove each node of the op whose inputs are not part of another match in this round."""
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
    return Rewritten(rename_inputs(done.graph, renames), done.matched, done.skipped)

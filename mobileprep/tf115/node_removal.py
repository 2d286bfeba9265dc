"""Takes out nodes in the rounds in which TensorFlow 1.15 does, so that nodes stand in its order.

Source: ``RemoveNodes`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from mobileprep.ir.bypass import FED_OR_FETCHED, Guards
from mobileprep.ir.colocation import without_dangling
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.pattern import Match, op
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.rewrite import Leave, Renames, Rewritten, Rule, rename_inputs, rewrite


def remove_in_rounds(
    graph: Graph, ops: Iterable[str], max_inputs: int, protected: Collection[str]
) -> Rewritten:
    """The graph without the nodes of some ops, each replaced by its first input.

    Args:
        graph: the graph.
        ops: the ops.
        max_inputs: how many tensors a node may take that goes.
        protected: names of nodes that stay.
    """
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
    """The most inputs of any node of an op; rounds for more would find nothing."""
    return max((len(node.inputs) for node in graph if node.op == name), default=0)


def _one_round(graph: Graph, name: str, inputs: int, protected: Collection[str]) -> Rewritten:
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
    return Rewritten(rename_inputs(done.graph, renames), done.matched, done.skipped)

"""Removes nodes of given ops, and gives what they fed their first input instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.order import tool_order
from mobileprep.ir.pattern import Match, op
from mobileprep.ir.refs import Ref, control
from mobileprep.ir.rewrite import Leave, Renames, Rule, rename_inputs, rewrite
from mobileprep.transforms._colocation import without_dangling
from mobileprep.transforms._control_flow import SWITCHES, conditional_nodes
from mobileprep.transforms._rewriting import fed_and_fetched
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "remove_nodes"
_FED_OR_FETCHED: Final = "an input or output of the graph"
_SEVERAL_OUTPUTS: Final = "an output after its first is used"
_TELLS_BRANCH: Final = "it tells others which branch is taken"
_RUNS_IN_BRANCH: Final = "its control inputs decide whether it runs"
_WAITS: Final = "it waits for other nodes"


@transform(_NAME)
@dataclass(frozen=True)
class RemoveNodes(Transform):
    """Nodes of the ops go, unless they are fed or fetched, or branches and loops hang on them.

    The original also removes nodes that carry the control flow, so that the nodes of both
    branches run. A recipe also keeps nodes that wait for others by control inputs, which the
    original forgets, and takes away in one go what hangs on one node, where the original stops
    at the first that is fed or fetched.

    Args:
        op: the ops to remove.
        max_inputs: nodes of one up to this many tensor inputs are removed; the first input
            takes the place of each.

    Source: ``remove_nodes`` of TensorFlow 1.15's graph transforms.
    """

    op: tuple[str, ...]
    max_inputs: int = 1

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the nodes.

        Raises:
            TransformError: no op is named.
        """
        if not self.op:
            raise refuse(_NAME, "no op is named", "name it: remove_nodes(op=Identity)")
        done = (
            self._in_rounds(graph, context) if context.faithful else self._at_once(graph, context)
        )
        if not done.matched:
            return done
        nodes = without_dangling(done.graph.nodes, done.graph.by_name)
        return replace(done, graph=graph.with_nodes(nodes))

    def _at_once(self, graph: Graph, context: Context) -> Result:
        guards = _Guards(graph)
        protected = fed_and_fetched(context)
        skipped: Counter[str] = Counter()
        replaced: dict[str, Ref] = {}
        for node in tool_order(graph):
            tensors = node.data_inputs
            if node.op not in self.op or not 1 <= len(tensors) <= self.max_inputs:
                continue
            source = _followed(tensors[0], replaced)
            reason = _FED_OR_FETCHED if node.name in protected else guards.reason(node, source)
            if not reason and len(node.inputs) > len(tensors):
                reason = _WAITS
            if reason:
                skipped[reason] += 1
            else:
                replaced[node.name] = source
        if not replaced:
            return Result(graph, skipped=skipped)
        nodes = [_reconnected(n, replaced) for n in graph if n.name not in replaced]
        return Result(graph.with_nodes(nodes), len(replaced), skipped)

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
        return Result(graph, matched, skipped)


def _one_round(graph: Graph, name: str, inputs: int, protected: frozenset[str]) -> Result:
    """Remove each node of the op whose inputs no other match of this round has taken."""
    guards = _Guards(graph)
    renames = Renames()

    def check(match: Match) -> str:
        if match.node.name in protected:
            return ""
        return guards.reason(match.node, match.node.data_inputs[0])

    def remove(match: Match) -> Sequence[Node] | Leave:
        node, first = match.node, match.root.inputs[0].node
        if node.name in protected:
            return Leave(_FED_OR_FETCHED)
        source = node.data_inputs[0]
        renames.tensor(Ref(node.name), source)
        renames.tensor(control(node.name), control(source.node))
        others = [n for n in match.nodes if n not in (node, first) and n.name in match.used_outside]
        return [first, *others]

    pattern = op(name, *["*"] * inputs)
    rule = Rule(pattern, remove, check, allow_inconsistencies=True)
    done = rewrite(graph, rule, protected)
    return Result(rename_inputs(done.graph, renames), done.matched, done.skipped)


class _Guards:
    """Finds the nodes of a graph whose removal would change what it computes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def reason(self, node: Node, source: Ref) -> str:
        """Why a node must stay, or an empty text; ``source`` would take its place."""
        if node.name in self._later_outputs:
            return _SEVERAL_OUTPUTS
        if node.name in self._awaited and self._graph[source.node].op in SWITCHES:
            return _TELLS_BRANCH
        if any(r.is_control and r.node in self._conditional for r in node.inputs):
            return _RUNS_IN_BRANCH
        return ""

    @cached_property
    def _later_outputs(self) -> frozenset[str]:
        return frozenset(r.node for n in self._graph for r in n.inputs if r.index > 0)

    @cached_property
    def _awaited(self) -> frozenset[str]:
        return frozenset(r.node for n in self._graph for r in n.inputs if r.is_control)

    @cached_property
    def _conditional(self) -> frozenset[str]:
        return conditional_nodes(self._graph)


def _followed(ref: Ref, replaced: dict[str, Ref]) -> Ref:
    """Where a reference leads; sources are visited first, so that one step is enough."""
    found = replaced.get(ref.node)
    if found is None:
        return ref
    return control(found.node) if ref.is_control else found


def _reconnected(node: Node, replaced: dict[str, Ref]) -> Node:
    if not any(r.node in replaced for r in node.inputs):
        return node
    tensors = [_followed(r, replaced) for r in node.data_inputs]
    controls = dict.fromkeys(_followed(r, replaced) for r in node.control_inputs)
    return replace(node, inputs=(*tensors, *controls))

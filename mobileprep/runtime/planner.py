"""Planning: from a graph, fetches, and feeds to an execution plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mobileprep.errors import UsageError
from mobileprep.graph.dropout import is_unseeded, with_known_masks
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.runtime.actions import watches
from mobileprep.runtime.execution_plan import ExecutionPlan, placed
from mobileprep.runtime.folding import fold
from mobileprep.runtime.functions.inline import CALLS, FUNCTIONAL
from mobileprep.runtime.regions import NOWHERE, Region
from mobileprep.runtime.selection import Survey, needed_nodes, refuse, survey


def make_plan(
    graph: Graph,
    fetches: Sequence[Ref],
    feeds: Sequence[Ref],
    where: str,
    *,
    combine: bool,
    watched: Collection[Edge] = (),
    has_seed: bool = True,
) -> ExecutionPlan:
    """Plan the computation of ``fetches`` from ``feeds`` and the graph's constants.

    Args:
        has_seed: whether the run has a seed; without one, draws for dropout that keeps everything
            are done without.
    """
    fed = {edge(r) for r in feeds}
    wanted = [edge(r) for r in fetches]
    nodes = needed_nodes(graph, fetches, fed, where)
    if any(runs_functions(n, graph) for n in nodes):
        graph = in_line(graph, fetches, feeds, where)
        nodes = needed_nodes(graph, fetches, fed, where)
    if not has_seed and any(is_unseeded(n) for n in nodes):
        part = graph.with_nodes(_with_fed(nodes, feeds, graph))
        shown = {name for name, _ in (*wanted, *watched)}
        nodes = needed_nodes(with_known_masks(part, shown), fetches, fed, where)
    # Without feeds everything is constant: there is nothing to be ahead of.
    combine = combine and bool(feeds)
    known = survey(nodes, fed, wanted, where, combine=combine, watched=watched)
    _check_fetches(fetches, known)
    region = Region(known, known.frames.root, {})
    refuse(region.lacking, where)
    for ref in fetches:
        if edge(ref) not in fed and region.tensor(ref) == NOWHERE:
            message = f"{str(ref)!r} lies in a branch that is never taken"
            raise UsageError(message, "fetch what comes after the branches join", where)
    given = [edge(r) for r in feeds]
    actions, constants = [*watches(given, watched), *region.actions], region.constants
    if known.combine:
        actions, constants = fold(actions, constants, wanted, where)
    return placed(actions, constants, given, wanted, where)


def in_line(graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str) -> Graph:
    """The nodes that a plan needs, those of functions in the place of what runs them."""
    from mobileprep.runtime.functions.inline import inline_calls  # few graphs have calls

    nodes = needed_nodes(graph, fetches, {edge(r) for r in feeds}, where)
    names = {r.node for r in (*fetches, *feeds)}
    whole = graph.with_nodes(_with_fed(nodes, feeds, graph))
    return inline_calls(whole, names, where, lower_control_flow=True)


def runs_functions(node: Node, graph: Graph) -> bool:
    """Whether a node runs functions of the graph's library."""
    return node.op in CALLS or node.op in FUNCTIONAL or node.op in graph.library.functions


def _with_fed(nodes: Sequence[Node], feeds: Sequence[Ref], graph: Graph) -> list[Node]:
    """The nodes, and before them those whose outputs are all fed, which others still name."""
    there = {n.name for n in nodes}
    return [
        *(graph[name] for name in dict.fromkeys(r.node for r in feeds) if name not in there),
        *nodes,
    ]


def _check_fetches(fetches: Sequence[Ref], known: Survey) -> None:
    for ref in fetches:
        if known.frames.of_output(ref.node) is not known.frames.root:
            message = f"{str(ref)!r} is inside a while loop, and has a value for each iteration"
            raise UsageError(message, "fetch what leaves the loop", known.where)

"""Takes out the ops that change variables, where that does not change an output."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import UnsupportedError
from mobileprep.freezing.follow import is_inside
from mobileprep.freezing.subgraph import extract
from mobileprep.freezing.trace import Trace
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import dependents, reachable
from mobileprep.opdefs.signatures import output_types, signature_of

_HINT: Final = "choose other outputs, or list the variable under variable_names_blacklist"


@dataclass(frozen=True)
class Settled:
    """A graph in which nothing changes a variable any more, and what to tell the user."""

    graph: Graph
    warnings: tuple[str, ...] = ()


def without_updates(
    graph: Graph, roots: Sequence[str], uses: Trace, initial: Container[str], where: str
) -> Settled:
    """The graph without the ops that change variables and without what takes their results.

    Such ops hang on control dependencies, as training leaves them: the updates of moving
    averages, step counters. An Assign whose result an output takes becomes that result.

    Args:
        graph: the graph.
        roots: the nodes to keep.
        uses: what ``trace`` found for the variables that are to be converted.
        initial: ops that are run before everything else: they give variables their values.
        where: for messages.

    Raises:
        UnsupportedError: an output takes what such an op leaves in the variable.
    """
    by_data = reachable(graph, roots, through_control=False)
    plain: dict[str, Node] = {}
    late = [(variable, name) for variable, name in uses.blocked if name not in initial]
    after = dependents(graph, [name for _, name in late])
    for variable, name in late:
        if name in by_data:
            plain[name] = _result(graph, variable, graph[name], where)
        _check_not_read_after(graph, variable, name, by_data & after, where)
    lost_updates = {name for _, name in uses.blocked if name not in plain}
    gone = dependents(graph, lost_updates, through_control=False)
    stays = {name: left for name in gone if (left := _left(graph, graph[name], gone))}
    lost = [graph[name].op for _, name in late if name in gone]
    gone -= stays.keys()
    plain.update(stays)
    kept = [_not_waiting_for(plain.get(n.name, n), gone) for n in graph if n.name not in gone]
    message = (
        f"{len(lost)} ops that change variables were left out, as outputs only waited for them: "
        + ", ".join(sorted(set(lost)))
    )
    return Settled(extract(graph.with_nodes(kept), roots), (message,) if lost else ())


def _result(graph: Graph, variable: str, node: Node, where: str) -> Node:
    """What an Assign leaves in its variable, which nothing else may tell it."""
    value = node.data_inputs[1] if len(node.data_inputs) > 1 else None
    if node.op != "Assign" or value is None or variable in reachable(graph, [value.node]):
        message = (
            f"an output takes the result of {node.name!r} ({node.op}), for which {variable!r} "
            "has to stay a variable"
        )
        raise UnsupportedError(message, _HINT, where)
    return Node(
        node.name, "Identity", (value, *node.control_inputs), "", {"T": node.attribute("T")}
    )


def _left(graph: Graph, node: Node, gone: Container[str]) -> Node | None:
    """What an op leaves in its loop or branch, where others may wait for nothing else; or None.

    Constants that lose what they wait for there would stand outside of it.
    """
    if not is_inside(graph, node):
        return None
    given = [r for r in node.data_inputs[1:] if r.node not in gone] or node.data_inputs[:1]
    producer = graph[given[0].node]
    definition = signature_of(producer, graph.library)
    types = output_types(producer, definition) if definition else []
    if producer.name in gone or given[0].index >= len(types):
        return None
    kind = {"T": attr.dtype(types[given[0].index].base)}
    return Node(node.name, "Identity", (given[0],), "", kind)


def _check_not_read_after(
    graph: Graph, variable: str, update: str, suspects: set[str], where: str
) -> None:
    for reader in graph.consumers.get(variable, ()):
        is_suspect = reader.name in suspects and reader.name != update
        if is_suspect and update in reachable(graph, [reader.name]):
            message = (
                f"an output reads the variable {variable!r} after {update!r} "
                f"({graph[update].op}) has changed it"
            )
            raise UnsupportedError(message, _HINT, where)


def _not_waiting_for(node: Node, gone: set[str]) -> Node:
    kept = tuple(r for r in node.inputs if r.node not in gone)
    return node if len(kept) == len(node.inputs) else replace(node, inputs=kept)

"""Cuts off the ops that change variables and that nothing takes a result of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mobileprep.errors import UnsupportedError
from mobileprep.freeze.subgraph import extract, reachable
from mobileprep.freeze.trace import Trace
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node


def without_updates(
    graph: Graph, roots: Sequence[str], uses: Trace, where: str, warnings: list[str]
) -> Graph:
    """The graph without the ops that change variables and without what takes their results.

    Such ops hang on control dependencies, as training leaves them (the updates of moving
    averages, step counters). One whose result an output takes cannot go.

    Raises:
        UnsupportedError: an output takes the result of such an op.
    """
    by_data = reachable(graph, roots, through_control=False)
    for variable, name in uses.blocked:
        if name in by_data:
            op = graph[name].op
            message = f"an output takes the result of {name!r} ({op}), which needs the variable "
            message += f"{variable!r} to stay a variable"
            hint = "choose other outputs, or list the variable under variable_names_blacklist"
            raise UnsupportedError(message, hint, where)
    gone = {name for _, name in uses.blocked}
    waiting = list(gone)
    while waiting:
        name = waiting.pop()
        for consumer in graph.consumers.get(name, ()):
            takes_tensor = any(r.node == name and not r.is_control for r in consumer.inputs)
            if takes_tensor and consumer.name not in gone:
                gone.add(consumer.name)
                waiting.append(consumer.name)
    ops = sorted({graph[name].op for _, name in uses.blocked})
    warnings.append(
        f"{len(uses.blocked)} ops that change variables were left out ({', '.join(ops)}): "
        "outputs only waited for them"
    )
    kept = [_waiting_only_for(n, gone) for n in graph if n.name not in gone]
    return extract(graph.with_nodes(kept), roots)


def _waiting_only_for(node: Node, gone: set[str]) -> Node:
    kept = tuple(r for r in node.inputs if r.node not in gone)
    return node if len(kept) == len(node.inputs) else replace(node, inputs=kept)

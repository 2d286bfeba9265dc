"""Find nodes that run only in a branch or a loop."""

from __future__ import annotations

from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS
from mobileprep.graph.op_sets import SWITCHES as TWO_WAY
from mobileprep.graph.reachability import dependents

SWITCHES: Final = TWO_WAY | {"_SwitchN"}
_GATES: Final = SWITCHES | ENTERS
GATES: Final = TWO_WAY | ENTERS | EXITS | MERGES | NEXT_ITERATIONS
"""Ops of branches and loops in control flow v1."""


def conditional_nodes(graph: Graph) -> frozenset[str]:
    """Return the gates of branches and loops, and all nodes that depend on one by data or control.

    Control inputs of such nodes do not only affect the order: they decide whether a node runs, and
    in which iteration of a loop.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in _GATES]))


def loop_nodes(graph: Graph) -> frozenset[str]:
    """Return the gates of loops, and all nodes that depend on one by data or control.

    A node in a loop without another input from the loop needs a control input from it. Nodes in
    branches do not: a node with a dead input does not run.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in ENTERS]))

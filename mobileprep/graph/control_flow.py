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
    """The gates of branches and loops, and all that depends on one by data or control.

    What such a node's control inputs say is not order alone: they decide whether it runs, and
    in which turn of a loop.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in _GATES]))


def loop_nodes(graph: Graph) -> frozenset[str]:
    """The gates of loops, and all that depends on one by data or control.

    What has no other input that is in a loop has to wait for one to be in it. In a branch nothing
    has to: what takes a tensor of a branch that is not taken does not run.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in ENTERS]))

"""Removes nodes of given ops, and gives what they fed their first input instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, control
from mobileprep.transforms._colocation import without_dangling
from mobileprep.transforms._control_flow import SWITCHES, conditional_nodes
from mobileprep.transforms._removal_order import remove_in_rounds
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
    branches run. A recipe also keeps nodes that wait for others by control inputs; the original
    drops these inputs with the node.

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
        check = _Guards(graph, context).reason
        skipped: Counter[str] = Counter()
        candidates: dict[str, Node] = {}
        for node in graph:
            if node.op not in self.op or not 1 <= len(node.data_inputs) <= self.max_inputs:
                continue
            reason = check(node)
            if reason:
                skipped[reason] += 1
            else:
                candidates[node.name] = node
        ...

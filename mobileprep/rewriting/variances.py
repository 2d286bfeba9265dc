"""Which constants are variances of batch normalizations that are not folded yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.ir.control_flow import SWITCHES
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import node_behind
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref
from mobileprep.ir.verify import check_inputs

# Where an op takes its variance.
_VARIANCE_INPUT: Final = {
    "FusedBatchNorm": 4,
    "FusedBatchNormV2": 4,
    "FusedBatchNormV3": 4,
    "BatchNormWithGlobalNormalization": 2,
    "Rsqrt": 0,
    "Sqrt": 0,
}
_PASSING: Final = frozenset({"Add", "AddV2", "Merge", "RefMerge"})


def variances(graph: Graph) -> frozenset[str]:
    """The constants that are divided by in the end, by their root: small ones weigh the most.

    Found are those that reach the variance of a batch normalization op, or Rsqrt or Sqrt, through
    nothing but Identity, the branches of conditionals and additions, such as of the epsilon.

    Raises:
        InvalidGraphError: an input is not there.
    """
    check_inputs(graph, "")
    found: set[str] = set()
    for node in graph:
        index = _VARIANCE_INPUT.get(node.op)
        if index is not None and index < len(node.data_inputs):
            found.update(_constants(graph, node.data_inputs[index]))
    return frozenset(found)


def _constants(graph: Graph, ref: Ref) -> Iterator[str]:
    def before(name: str) -> Iterator[str]:
        return (node_behind(graph, r).name for r in _passed(graph[name]))

    found = closure([node_behind(graph, ref).name], before)
    return (name for name in found if graph[name].op == "Const")


def _passed(node: Node) -> tuple[Ref, ...]:
    """The inputs that a node's output is made of, where it only adds or chooses."""
    if node.op in SWITCHES:
        return node.data_inputs[:1]
    return node.data_inputs if node.op in _PASSING else ()

"""Which constants are variances of batch normalizations that are not folded yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import node_behind
from mobileprep.ir.node import Node
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
_SUMS: Final = frozenset({"Add", "AddV2"})


def variances(graph: Graph) -> frozenset[str]:
    """The constants that are divided by in the end, by their root: small ones weigh the most.

    Found are those that reach the variance of a batch normalization op, or Rsqrt or Sqrt, through
    nothing but Identity and one addition, of the epsilon.

    Raises:
        InvalidGraphError: an input is not there.
    """
    check_inputs(graph, "")
    found: set[str] = set()
    for node in graph:
        index = _VARIANCE_INPUT.get(node.op)
        if index is not None and index < len(node.data_inputs):
            sources = _sources(graph, node.data_inputs[index])
            found.update(n.name for n in sources if n.op == "Const")
    return frozenset(found)


def _sources(graph: Graph, ref: Ref) -> Iterator[Node]:
    node = node_behind(graph, ref)
    if node.op not in _SUMS:
        yield node
        return
    for summand in node.data_inputs:
        yield node_behind(graph, summand)

"""Nodes that the runtime creates in place of others when it loads a graph.

Source: ``LowerFunctionalOpsPass``, ``AccumulateNV2RemovePass``, and ``ParallelConcatRemovePass`` of
TensorFlow, which are alike in all releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node

_LOWERED: Final = "_lower_using_switch_merge"
# Their kernels are the same for all types. IdentityN keeps the node's name for those that fetch it.
_BRANCHES: Final = ("Identity", "IdentityN", "Merge", "NoOp")
_CONTROL_FLOW: Final = {
    **dict.fromkeys(("If", "StatelessIf"), ("Switch", *_BRANCHES)),
    **dict.fromkeys(("Case", "StatelessCase"), ("_SwitchN", *_BRANCHES)),
    **dict.fromkeys(
        ("While", "StatelessWhile"),
        ("Enter", "Exit", "LoopCond", "NextIteration", "Switch", *_BRANCHES),
    ),
}
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def runtime_nodes(graph: Graph, node: Node) -> Iterator[Node]:
    """Yield a node for each kernel that the runtime needs besides the node's own.

    Args:
        graph: the graph, for its functions.
        node: a node of the graph or of one of its functions.
    """
    if node.op in _CONTROL_FLOW and node.attr_bool(_LOWERED, default=False):
        yield from (_created(node, op, DType.FLOAT) for op in _CONTROL_FLOW[node.op])
    elif node.op in _CALLS or node.op in graph.library.functions:
        # The body of the function takes the place of the call.
        yield from (_created(node, op, DType.FLOAT) for op in ("Identity", "NoOp"))
    elif node.op == "AccumulateNV2":
        dtype = node.attr_dtype("T")
        for op in ("Assign", "AssignAdd", "DestroyTemporaryVariable", "Fill", "Identity", "Shape"):
            yield _created(node, op, dtype)
        for op in ("Const", "TemporaryVariable"):
            yield _created(node, op, dtype, key="dtype")
    elif node.op == "ParallelConcat":
        dtype = node.attr_dtype("T")
        yield _created(node, "_ParallelConcatStart", dtype, key="dtype")
        yield _created(node, "_ParallelConcatUpdate", dtype)
        yield _created(node, "Identity", dtype)


def _created(node: Node, op: str, dtype: DType, *, key: str = "T") -> Node:
    return Node(node.name, op, (), "", {key: attr.dtype(dtype)})

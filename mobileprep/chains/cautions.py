"""What is known to go wrong with a step on a graph, told before the step runs.

The cases are those that the original tool's documentation warns of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import BATCH_NORMS

_CONTROL_FLOW: Final = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
_FOLDS: Final = frozenset(
    {"fold_batch_norms", "fold_old_batch_norms", "fuse_batch_norms", "optimize"}
)


def cautions(
    graph: Graph, earlier: Sequence[str], name: str, options: Mapping[str, Any]
) -> tuple[str, ...]:
    """What the user should know before a step runs, a sentence each, with what to do.

    Args:
        graph: the graph, at the step or at the start of the chain.
        earlier: the names of the steps before it.
        name: the step's transform.
        options: the step's parameters.
    """
    ops = {node.op for node in graph}
    told = []
    if name == "remove_nodes" and "Identity" in options.get("op", ()) and ops & _CONTROL_FLOW:
        told.append(
            "remove_nodes(op=Identity) on a graph with control flow: the Identity nodes that its "
            "loops and conditionals rely on stay; remove_no_ops makes the same choice"
        )
    if name == "quantize_nodes" and ops & BATCH_NORMS and not _FOLDS & set(earlier):
        told.append(
            "quantize_nodes before the batch norms are folded: they stay in float, between "
            "conversions; put fold_batch_norms and fold_old_batch_norms before it"
        )
    if name == "quantize_weights" and ("quantize_weights" in earlier or _has_quantized(graph)):
        told.append(
            "quantize_weights a second time: weights that are stored in 8 bits stay so; "
            "leave one of the two out"
        )
    return tuple(told)


def _has_quantized(graph: Graph) -> bool:
    """Whether some weights are stored in 8 bits and turned back to floats already."""
    names = graph.by_name
    return any(
        node.op == "Dequantize"
        and node.inputs
        and node.inputs[0].node in names
        and names[node.inputs[0].node].op == "Const"
        for node in graph
    )

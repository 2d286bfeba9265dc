"""Batch normalizations that a chain leaves, though another transform or order would fold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.ir.tensor import Tensor
from mobileprep.rewriting.batch_norms import is_inference
from mobileprep.transforms.base import Context

_FUSES: Final = frozenset({"fuse_batch_norms", "optimize"})
_MEND: Final = "fuse_batch_norms, or optimize, which contains it,"


def norms_left(graph: Graph, context: Context) -> str:
    """What is to be said of batch normalizations after a chain; empty where it left none.

    They are looked for by folding them, and those too whose weights are stored in 8 bits by now,
    which no transform folds any more.

    Args:
        graph: the graph after the chain.
        context: its inputs and outputs.
    """
    if not any(node.op in BATCH_NORMS or node.op in SCALINGS for node in graph):
        return ""
    # Only now: few graphs that ship have any, and what folds them is slow to import.
    from mobileprep.transforms.fuse_batch_norms import norms_merged

    protected = context.protected
    foldable = norms_merged(graph, protected).layers
    plain = _as_floats(graph)
    stored = 0 if plain is graph else norms_merged(plain, protected).layers
    count = max(foldable, stored)
    if not count:
        return ""
    what = "1 batch norm is" if count == 1 else f"{count} batch norms are"
    where = "before weights are quantized" if stored > foldable else "at the end of the chain"
    return f"{what} left that can be folded: put {_MEND} {where}"


def norms_foreseen(graph: Graph, steps: Collection[str]) -> str:
    """What a model shows before its chain runs: batch normalizations that no step of it folds.

    Args:
        graph: the model's graph, frozen or not.
        steps: the names of the chain's transforms.
    """
    if _FUSES & set(steps):
        return ""
    from mobileprep.transforms.fold_old_batch_norms import FOLDED  # as above

    folded = set(FOLDED) if "fold_old_batch_norms" in steps else set()
    left = Counter(n.op for n in graph if n.op in BATCH_NORMS - folded and is_inference(n))
    if not left:
        return ""
    listed = ", ".join(f"{count} {op}" for op, count in sorted(left.items()))
    return f"no step of the chain folds {listed} of the model: put {_MEND} into it"


def _as_floats(graph: Graph) -> Graph:
    """The graph with ones in place of constants that are stored in 8 bits."""
    nodes = [_as_float(n, graph) for n in graph]
    if all(a is b for a, b in zip(nodes, graph, strict=True)):
        return graph
    return graph.with_nodes(nodes)


def _as_float(node: Node, graph: Graph) -> Node:
    stored = graph.get(node.inputs[0].node) if node.op == "Dequantize" and node.inputs else None
    if stored is None or stored.op != "Const":
        return node
    # One number in memory for all of them.
    one = np.ones(1, np.float32)
    shape = stored.attr_tensor("value").shape
    return constant(node.name, Tensor(DType.FLOAT, shape, values=one))

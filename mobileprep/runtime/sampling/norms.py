"""What the first batch normalization was trained on, and what it meets on some samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.runtime.interpreter import Interpreter

# How many nodes behind the inputs are looked at, and how small a variance is that says nothing.
_MOST: Final = 500
_FLAT: Final = 1e-8


@dataclass(frozen=True)
class NormSpread:
    """How far the values of a batch normalization's input lie apart.

    Args:
        node: the normalization.
        trained: the median of the channels' standard deviations in training.
        found: the same on samples.
    """

    node: str
    trained: float
    found: float


def first_norm_spread(graph: Graph, runs: Sequence[Mapping[str, Array]]) -> NormSpread | None:
    """The spread before the first fused batch normalization that keeps its variance; None without.

    Args:
        graph: a graph for inference.
        runs: what to feed.
    """
    norm = _first_norm(graph, [parse_ref(name).node for run in runs[:1] for name in run])
    variance = None if norm is None else _constant(graph, norm.data_inputs[4])
    if norm is None or variance is None or not variance.size:
        return None
    trained = np.sqrt(np.maximum(variance.astype(np.float64), 0))
    interpreter = Interpreter(graph)
    found = [interpreter.run([str(norm.data_inputs[0])], run)[0] for run in runs]
    axis = 1 if norm.attr_str("data_format", "NHWC").startswith("NC") else -1
    lines = [np.moveaxis(x.astype(np.float64), axis, -1).reshape(-1, x.shape[axis]) for x in found]
    spread = np.concatenate(lines).std(axis=0)
    counts = trained > _FLAT
    if len(spread) != len(trained) or not counts.any() or not np.isfinite(spread).all():
        return None
    ratio = float(np.median(spread[counts] / trained[counts]))
    middle = float(np.median(trained[counts]))
    return NormSpread(norm.name, middle, ratio * middle)


def _first_norm(graph: Graph, names: Sequence[str]) -> Node | None:
    waiting, seen = list(names), set(names)
    while waiting and len(seen) < _MOST:
        for node in graph.consumers.get(waiting.pop(0), ()):
            if node.op in FUSED_BATCH_NORMS and node.data_inputs[0].node in seen:
                return node
            if node.name not in seen:
                seen.add(node.name)
                waiting.append(node.name)
    return None


def _constant(graph: Graph, ref: Ref) -> Array | None:
    node = graph.get(ref.node)
    while node is not None and node.op == "Identity" and node.data_inputs:
        node = graph.get(node.data_inputs[0].node)
    return node.attr_tensor("value").array() if node is not None and node.op == "Const" else None

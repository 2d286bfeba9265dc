"""The ranges of float tensors, as far as they are known before the graph runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from mobileprep.formats.range_file import RangeFile, TensorRange
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, SWITCHES
from mobileprep.ir.refs import Ref
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.steps import EvenSteps
from mobileprep.transforms.quantize_nodes.trained import TrainedSteps, trained_steps

# The results of these are among the elements of their first input, or between them, or zero.
_KEEPING: Final = (
    IDENTITIES
    | ENTERS
    | SWITCHES
    | {"AvgPool", "DepthToSpace", "ExpandDims", "MaxPool", "Pad", "Reshape", "Slice"}
    | {"SpaceToDepth", "Squeeze", "StridedSlice", "Transpose"}
)
_ACTIVATIONS: Final = {"Relu": math.inf, "Relu6": 6.0}
_DEEPEST: Final = 64
_NAME: Final = "quantize_nodes"

Range = tuple[float, float]


@dataclass(frozen=True)
class Known:
    """How a tensor is brought to eight bits.

    Args:
        tensor: what is to be quantized: the tensor, or what a fake quantization rounds to it.
        steps: what the integers stand for.
    """

    tensor: Ref
    steps: EvenSteps


class TensorRanges:
    """Ranges of a graph's tensors from training, or from a range file.

    Args:
        graph: the float graph.
        file: measured ranges.
        trained: whether fake quantizations are looked at, which count before the file.

    Raises:
        TransformError: a range of the file is none.
    """

    def __init__(self, graph: Graph, file: RangeFile | None, *, trained: bool) -> None:
        self._graph = graph
        self._trained = trained
        self._measured: Mapping[str, TensorRange] = file.tensors if file is not None else {}
        for name, found in self._measured.items():
            if not (math.isfinite(found.low) and math.isfinite(found.high)):
                message = f"the range of {name!r} is not finite"
                raise refuse(_NAME, message, "calibrate again, and look at the data")
            if found.low > found.high:
                message = f"the range of {name!r} from {found.low:g} to {found.high:g} is empty"
                raise refuse(_NAME, message, "its min is to be at most its max")

    def known(self, ref: Ref) -> Known | None:
        """How a tensor is quantized, or None where its range has to be measured."""
        learnt = self._learnt(ref)
        if learnt is not None and learnt.steps is not None:
            return Known(learnt.source if learnt.is_full else ref, learnt.steps)
        found = self._range(ref, 0)
        return None if found is None else Known(ref, EvenSteps.over(*found))

    def _learnt(self, ref: Ref) -> TrainedSteps | None:
        found = trained_steps(self._graph, ref) if self._trained else None
        return found if isinstance(found, TrainedSteps) else None

    def _range(self, ref: Ref, depth: int) -> Range | None:
        if depth > _DEEPEST or ref.is_control:
            return None
        learnt = self._learnt(ref)
        if learnt is not None and learnt.steps is not None:
            return learnt.steps.low, learnt.steps.high
        name = f"{ref.node}:{ref.index}" if ref.index else ref.node
        measured = self._measured.get(name)
        if measured is not None:
            return measured.low, measured.high
        node = self._graph.get(ref.node)
        return None if node is None else self._implied(node, depth + 1)

    def _implied(self, node: Node, depth: int) -> Range | None:
        """The range that follows from those of a node's inputs."""
        inputs = node.data_inputs
        if node.op in _KEEPING and inputs:
            return self._range(inputs[0], depth)
        if node.op in _ACTIVATIONS and inputs:
            below = self._range(inputs[0], depth)
            top = _ACTIVATIONS[node.op]
            return None if below is None else (max(below[0], 0.0), max(min(below[1], top), 0.0))
        if node.op == "ConcatV2" and len(inputs) > 1:
            parts = [self._range(r, depth) for r in inputs[:-1]]
            known = [p for p in parts if p is not None]
            if len(known) == len(parts):
                return min(p[0] for p in known), max(p[1] for p in known)
        return None

"""Ranges of float tensors that are known before the graph runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.formats.range_file import RangeFile, TensorRange
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, SWITCHES
from mobileprep.graph.pattern import Match, NodeMatch, OpTypePattern, op
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.rewrite import Rewritten, Rule, rewrite
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.nodes import QINT32, EvenSteps
from mobileprep.transforms.quantize_nodes.trained import TrainedSteps, trained_steps

# The results of these are elements of their first input, values between them, or zero.
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


class Quantization(Struct, frozen=True):
    """Quantization of a tensor.

    Args:
        tensor: the tensor to quantize: the tensor itself, or the input of its fake quantization.
        steps: the floats that the integers represent.
    """

    tensor: Ref
    steps: EvenSteps


class TensorRanges:
    """Ranges of a graph's tensors from training, or from a range file.

    Args:
        graph: the float graph.
        file: measured ranges.
        trained: whether to use fake quantization nodes, which take precedence over the file.

    Raises:
        TransformError: a range in the file is not finite, or is empty.
    """

    def __init__(self, graph: Graph, file: RangeFile | None, *, trained: bool) -> None:
        self._graph = graph
        self._trained = trained
        self._measured: Mapping[str, TensorRange] = file.tensors if file is not None else {}
        for name, limits in self._measured.items():
            if not (math.isfinite(limits.low) and math.isfinite(limits.high)):
                message = f"the range of {name!r} is not finite"
                raise refuse(_NAME, message, "calibrate again, and look at the data")
            if limits.low > limits.high:
                message = f"the range of {name!r} from {limits.low:g} to {limits.high:g} is empty"
                raise refuse(_NAME, message, "its min is to be at most its max")

    def quantization(self, ref: Ref) -> Quantization | None:
        """Return the quantization of a tensor, or None if its range must be measured."""
        learnt = self._learnt(ref)
        if learnt is not None and learnt.steps is not None:
            return Quantization(learnt.source if learnt.is_full else ref, learnt.steps)
        limits = self._range(ref, 0)
        return None if limits is None else Quantization(ref, EvenSteps.over(*limits))

    def _learnt(self, ref: Ref) -> TrainedSteps | None:
        steps = trained_steps(self._graph, ref) if self._trained else None
        return steps if isinstance(steps, TrainedSteps) else None

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
        """Derive the range of a node's output from those of its inputs."""
        inputs = node.data_inputs
        if node.op in _KEEPING and inputs:
            return self._range(inputs[0], depth)
        if node.op in _ACTIVATIONS and inputs:
            below = self._range(inputs[0], depth)
            top = _ACTIVATIONS[node.op]
            return None if below is None else (max(below[0], 0.0), max(min(below[1], top), 0.0))
        if node.op == "ConcatV2" and len(inputs) > 1:
            parts = [self._range(r, depth) for r in inputs[:-1]]
            ranges = [p for p in parts if p is not None]
            if len(ranges) == len(parts):
                return min(p[0] for p in ranges), max(p[1] for p in ranges)
        return None


_FAKE_QUANT: Final = "FakeQuantWithMinMaxVars"
_LONGEST_HOIST: Final = 3

# Rounding to the steps of a range can be done before or after these ops.
_MOVABLE: Final = frozenset(
    {
        *("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot"),
        *("Relu", "Relu6", "MaxPool", "AvgPool", "Squeeze"),
        *("BatchToSpace", "SpaceToBatch", "DepthToSpace", "SpaceToDepth"),
    }
)


def hoist(graph: Graph, protected: Collection[str], *, borrow: bool) -> Graph:
    """Move fake quantizations up through one to three single-input ops, to the wide results.

    Args:
        borrow: allow several fake quantizations to share constants and inputs. The original moves
            only one of them.

    Source: ``HoistFakeQuants`` of TensorFlow 1.15's graph transforms.
    """
    for length in range(_LONGEST_HOIST, 0, -1):
        pattern = _chain(length)
        if borrow:
            pattern = pattern.borrowing("min", "max", "source")
        hoisted = partial(_hoisted, FreshNames(graph.by_name))
        graph = rewrite(graph, Rule(pattern, hoisted, _reason_not_to_hoist), protected).graph
    return graph


def convert(graph: Graph, protected: Collection[str], *, borrow: bool) -> Rewritten:
    """Replace fake quantizations with quantization, requantization, and dequantization.

    The arguments are those of ``hoist``. Source: ``ConvertFakeQuantsToRequantize`` of TensorFlow
    1.15's graph transforms.
    """
    pattern = _fake_quant(op("*", label="source"))
    if borrow:
        pattern = pattern.borrowing("min", "max", "source")
    converted = partial(_converted, FreshNames(graph.by_name))
    return rewrite(graph, Rule(pattern, converted, _reason_not_to_convert), protected)


def _fake_quant(source: OpTypePattern) -> OpTypePattern:
    return op(_FAKE_QUANT, source, op("Const", label="min"), op("Const", label="max"))


def _chain(length: int) -> OpTypePattern:
    pattern = op("*", label="source")
    for _ in range(length):
        pattern = op("*", pattern)
    return _fake_quant(pattern)


def _links(match: Match) -> list[Node]:
    """Return the single-input nodes of a chain, the last one first."""
    links: list[Node] = []
    below: NodeMatch = match.root.inputs[0]
    while below.inputs:
        links.append(below.node)
        below = below.inputs[0]
    return links


def _reason_not_to_hoist(match: Match) -> str:
    links = _links(match)
    if any(n.op not in _MOVABLE for n in links):
        return "an op before the fake quantization changes its range"
    # Other consumers would get values that are rounded and clipped to a range not their own.
    if not match.used_outside.isdisjoint(n.name for n in links):
        return "a node before the fake quantization is used elsewhere"
    return ""


def _hoisted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant = match.node
    links = _links(match)
    name = names.name(f"{fake_quant.name}_hoisted")
    earlier = replace(fake_quant, name=name, inputs=(links[-1].inputs[0], *fake_quant.inputs[1:]))
    links[-1] = replace(links[-1], inputs=(Ref(name), *links[-1].inputs[1:]))
    links[0] = replace(links[0], name=fake_quant.name)
    return [earlier, match["min"], match["max"], *links, match["source"]]


def _reason_not_to_convert(match: Match) -> str:
    low, high = (match[label].attr_tensor("value") for label in ("min", "max"))
    if low.size != 1 or high.size != 1:
        return "the range of the fake quantization is not a pair of numbers"
    least, greatest = float(low.array().reshape(-1)[0]), float(high.array().reshape(-1)[0])
    if not (least <= 0 and least < greatest):
        # Requantize fails at run time with such a range.
        return "the range of the fake quantization is empty or above zero"
    return ""


def _converted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant, low, high = match.node, match["min"], match["max"]
    prefix = f"{fake_quant.name}_eightbit"
    name = names.name(f"{prefix}/quantize")
    wide = make.quantize(name, fake_quant.inputs[0], low.name, high.name, QINT32)
    name = names.name(f"{prefix}/requantize")
    narrow = make.requantize(name, wide.name, Ref(low.name), Ref(high.name))
    result = make.dequantize(fake_quant.name, make.ports(narrow.name))
    wide = replace(wide, inputs=wide.inputs + fake_quant.control_inputs)
    return [match["source"], low, high, wide, narrow, result]

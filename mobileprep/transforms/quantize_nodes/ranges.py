"""Ranges and quantization steps of float tensors that are known before the graph runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.range_file import RangeFile, TensorRange
from mobileprep.graph.bypass import IDENTITIES, constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, SWITCHES
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.nodes import LEVELS, EvenSteps

_MIDDLE: Final = 128
_MOST_BITS: Final = 8
TOO_FINE: Final = "it was trained with more than 8 bits"


class TrainedSteps(Struct, frozen=True):
    """Values that a fake quantization rounds to: ``(integer - zero) * size``.

    Args:
        source: the tensor that is rounded.
        sizes: float32, one number, or one for each slice along the last axis.
        zero: the integer that represents 0.0, or one for each slice.
        lowest: the smallest integer.
        highest: the largest integer.
    """

    source: Ref
    sizes: Array
    zero: Array
    lowest: int
    highest: int

    @property
    def steps(self) -> EvenSteps | None:
        """The steps of the whole tensor, or None if slices have individual steps."""
        return EvenSteps(float(self.sizes[0]), int(self.zero[0])) if self.sizes.size == 1 else None

    @property
    def is_full(self) -> bool:
        """Whether all 256 integers are used."""
        return self.highest - self.lowest == LEVELS - 1

    @property
    def is_even(self) -> bool:
        """Whether slices have individual steps with zero in the middle."""
        reach = max(int(self.zero.max()) - self.lowest, self.highest - int(self.zero.min()))
        return self.zero.size > 1 and bool((self.zero == self.zero[0]).all()) and reach < _MIDDLE


def trained_steps(graph: Graph, ref: Ref) -> TrainedSteps | str | None:
    """Find the steps of a constant range that a tensor is rounded to.

    Returns:
        The steps; the reason why there are no 8-bit steps; or None if nothing rounds the tensor.
    """
    node = graph.get(ref.node)
    read = None if node is None or ref.index else _READERS.get(node.op)
    if node is None or read is None or not node.data_inputs:
        return None
    parameters = read(graph, node)
    if parameters is None:
        return None
    low, high, bits = parameters
    if not 2 <= bits <= _MOST_BITS:
        return TOO_FINE
    if low.shape != high.shape or not np.isfinite([low, high]).all() or not (low <= high).all():
        return "its trained range is empty or reversed"
    make = _even if node.op.startswith("QuantizeAndDequantize") else _nudged
    return make(node, low.astype(np.float64), high.astype(np.float64), bits)


_Range = tuple[Array, Array, int]


def _of_vars(graph: Graph, node: Node) -> _Range | None:
    ends = _ends(graph, node)
    return None if ends is None else (*ends, node.attr_int("num_bits", 8))


def _of_args(graph: Graph, node: Node) -> _Range | None:
    low, high = (np.float32(node.attr_float(k, d)) for k, d in (("min", -6.0), ("max", 6.0)))
    return np.atleast_1d(low), np.atleast_1d(high), node.attr_int("num_bits", 8)


def _of_round_trip_v1(graph: Graph, node: Node) -> _Range | None:
    if not node.attr_bool("range_given", False):
        return None
    low, high = (np.float32(node.attr_float(f"input_{k}", 0.0)) for k in ("min", "max"))
    return np.atleast_1d(low), np.atleast_1d(high), node.attr_int("num_bits", 8)


def _of_round_trip(graph: Graph, node: Node) -> _Range | None:
    ends = _ends(graph, node)
    if ends is None or not node.attr_bool("range_given", False):
        return None
    if len(node.data_inputs) == 3:
        return *ends, node.attr_int("num_bits", 8)
    bits = _constant(graph, node.data_inputs[3])
    return None if bits is None or bits.size != 1 else (*ends, int(bits[0]))


_READERS: Final[Mapping[str, Callable[[Graph, Node], _Range | None]]] = {
    "FakeQuantWithMinMaxArgs": _of_args,
    "FakeQuantWithMinMaxVars": _of_vars,
    "FakeQuantWithMinMaxVarsPerChannel": _of_vars,
    "QuantizeAndDequantize": _of_round_trip_v1,
    "QuantizeAndDequantizeV2": _of_round_trip,
    "QuantizeAndDequantizeV3": _of_round_trip,
    "QuantizeAndDequantizeV4": _of_round_trip,
}
FAKE_QUANTS: Final = frozenset(_READERS)


def _ends(graph: Graph, node: Node) -> tuple[Array, Array] | None:
    if len(node.data_inputs) < 3:
        return None
    low, high = (_constant(graph, ref) for ref in node.data_inputs[1:3])
    return None if low is None or high is None else (low, high)


def _constant(graph: Graph, ref: Ref) -> Array | None:
    tensor = None if ref.index else constant_behind(graph, ref)
    return None if tensor is None or not tensor.size else tensor.array().reshape(-1)


def _nudged(node: Node, low: Array, high: Array, bits: int) -> TrainedSteps:
    """Compute steps with the range shifted as in fake quantization, so that zero is a step."""
    lowest, highest = int(node.attr_bool("narrow_range", False)), (1 << bits) - 1
    sizes = np.where(high > low, (high - low) / (highest - lowest), 1.0)
    zero = np.clip(np.floor(lowest - low / sizes + 0.5), lowest, highest).astype(np.int64)
    return TrainedSteps(node.data_inputs[0], sizes.astype(np.float32), zero, lowest, highest)


def _even(node: Node, low: Array, high: Array, bits: int) -> TrainedSteps:
    """Compute steps as in QuantizeAndDequantize: by the side that needs larger steps."""
    signed = node.attr_bool("signed_input", True)
    least = -(1 << (bits - 1)) + node.attr_bool("narrow_range", False) if signed else 0
    most = (1 << (bits - 1 if signed else bits)) - 1
    below = low / least if least else np.zeros_like(low)
    sizes = np.maximum(below, high / most)
    zero = np.full(sizes.shape, _MIDDLE if signed else 0)
    sizes = np.where(sizes > 0, sizes, 1.0).astype(np.float32)
    return TrainedSteps(node.data_inputs[0], sizes, zero, int(zero[0]) + least, int(zero[0]) + most)


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

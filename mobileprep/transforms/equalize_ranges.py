"""Scale channels between layers so that the weights on both sides have similar ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Final, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.statistics import changed_statistics
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.channel_scales import (
    Bound,
    ChannelScales,
    Ids,
    ScaledConstant,
    ScaledLayer,
    ScaledTensor,
    find_scales,
)
from mobileprep.transforms.rewriting.constants import ConstantExpressions
from mobileprep.transforms.rewriting.layers import bounded, input_axis, layer_kind, own_constant


@transform("equalize_ranges")
class EqualizeRanges(Transform, frozen=True):
    """Scale weights, biases, and activation bounds without changing the results.

    The channels of Conv2D, DepthwiseConv2dNative, MatMul, BatchMatMul, Conv2DBackpropInput, and
    Conv3D are scaled, through all ops that commute with scaling: Relu, LeakyRelu, biases, zero
    padding, pooling, means, image resizing, reshaping, sums of layers, and concatenation. A Relu6
    becomes Relu and Minimum with a bound per channel. Weights with at most 256 distinct values were
    already quantized to 8 bits and are not scaled.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.1. The paper replaces Relu6 with Relu, which changes the function.
    """

    summary = (
        "Scales channels up in one layer and down in the next, so that no channel has"
        " much smaller weights than others, which 8 bits for a whole tensor would "
        "lose. The results do not change. Fuse batch normalizations first."
    )
    moves_scales = True

    relu6: Annotated[
        Literal["carry", "keep"],
        Option(
            "carry: scale channels through Relu6, which becomes Relu and Minimum with a "
            "bound for each channel. keep: skip channels that go through a Relu6."
        ),
    ] = "carry"
    powers_of_two: Annotated[
        bool,
        Option("Scale only by powers of two, so that results do not change in a single bit."),
    ] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        """Scale the channels of all layers that do not share their weights."""
        check_inputs(graph, "")
        protected = context.protected
        carry = self.relu6 == "carry"
        scales = find_scales(graph, protected, through_relu6=carry, keep_stored=True)
        exponents = equalizing_exponents(scales, whole=self.powers_of_two)
        matched = sum(bool(exponents[layer.outputs].any()) for layer in scales.layers)
        reasons = (scales.variables.reason(layer.outputs) for layer in scales.layers)
        skipped = Counter(scales.refused)
        skipped.update(reason for reason in reasons if reason)
        done = apply_scales(graph, scales, exponents, protected) if matched else graph
        return Result(done, matched, skipped)


Logs = NDArray[np.float64]

_SWEEPS: Final = 100
_ENOUGH: Final = 4e-3  # bits: less than half a step of 8-bit weights
_BIAS: Final = 6.0  # bits, see ``_Weights.floor``
_SUMS: Final = frozenset({"BiasAdd", "Add", "AddV2", "Sub"})
_STEEPEST: Final = 64.0  # bits; larger values come from broken channels, not from ranges


def equalizing_exponents(scales: ChannelScales, *, whole: bool) -> Logs:
    """Return the base-2 logarithm of each scale's channel divisor; zero if pinned."""
    roots = scales.variables.roots()
    free = np.unique(roots[roots >= 0])
    # The last entry represents all pinned scales.
    places = np.where(roots < 0, len(free), np.searchsorted(free, roots))
    biases = _biases(scales, len(roots))
    weights = [_Weights.of(layer, biases, places, len(free)) for layer in scales.layers]
    exponents = np.zeros(len(free) + 1)
    blocks = list(_blocks(weights, len(free)))
    for _ in range(_SWEEPS):
        largest = max((block.balance(exponents) for block in blocks), default=0.0)
        if largest < _ENOUGH:
            break
    np.clip(exponents, -_STEEPEST, _STEEPEST, out=exponents)
    if whole:
        exponents = np.rint(exponents)
    return exponents[places]


def _biases(scales: ChannelScales, count: int) -> Logs:
    """Return the log2 magnitude of the constant added to each channel, relative to the largest."""
    logs = np.full(count, -np.inf)
    for offset in scales.constants:
        if offset.node.op in _SUMS:
            ids, values = offset.tensor.ids, np.abs(offset.values).reshape(-1)
            peak = values.max(initial=0)
            if np.isfinite(peak) and peak > 0:
                with np.errstate(divide="ignore"):
                    logs[ids] = np.maximum(logs[ids], np.log2(values / peak))
    return logs


class _Weights(Struct, frozen=True):
    """Magnitudes of a layer's weights, as base-2 logarithms.

    Args:
        logs: shape [inputs, outputs], or [inputs, outputs per input] for a depthwise layer.
        inputs: index of the scale of each row.
        outputs: index of the scale of each output.
        floor: lower bound for the range of each output, because of its bias.
        depthwise: whether each output uses only one input.
    """

    logs: Logs
    inputs: Ids
    outputs: Ids
    floor: Logs
    depthwise: bool

    @classmethod
    def of(cls, scaled: ScaledLayer, biases: Logs, places: Ids, pinned: int) -> _Weights:
        layer, values = scaled.layer, scaled.weights.attr_tensor("value").array()
        rows, columns = input_axis(layer) + values.ndim, layer_kind(layer).channels[-1]
        columns += values.ndim
        others = tuple(i for i in range(values.ndim) if i not in (rows, columns))
        peaks = np.abs(values).max(axis=others, initial=0).astype(np.float64)
        if rows > columns:
            peaks = peaks.T
        with np.errstate(divide="ignore"):
            logs = np.log2(peaks)
        outputs = places[scaled.outputs]
        depthwise = len(layer_kind(layer).channels) > 1
        inputs = np.full(len(logs), pinned) if scaled.inputs is None else places[scaled.inputs]
        if not depthwise:
            inputs, logs = _by_place(inputs, logs)
        floor = logs.max(initial=-np.inf) + biases[scaled.outputs] - _BIAS
        return cls(logs, inputs, outputs, floor, depthwise)

    def output_ranges(self, exponents: Logs) -> Logs:
        """Return the log2 range of each output's weights after scaling."""
        rows = self.logs + exponents[self.inputs][:, None]
        peaks = rows.reshape(-1) if self.depthwise else rows.max(axis=0, initial=-np.inf)
        return np.maximum(peaks, self.floor) - exponents[self.outputs]

    def input_ranges(self, exponents: Logs) -> Logs:
        """Return the log2 range of each input's weights after scaling."""
        outputs = exponents[self.outputs]
        columns = outputs.reshape(self.logs.shape) if self.depthwise else outputs
        peaks: Logs = (self.logs - columns).max(axis=1, initial=-np.inf)
        return peaks + exponents[self.inputs]


_Side = tuple[Callable[[Logs], Logs], NDArray[np.bool_], Ids]
"""Function from scales to a layer's ranges, mask of the channels in a block, and their positions.
"""


def _by_place(inputs: Ids, logs: Logs) -> tuple[Ids, Logs]:
    """Merge rows that share a scale, as when a flattened image has many rows per channel."""
    places, where = np.unique(inputs, return_inverse=True)
    peaks = np.full((len(places), logs.shape[1]), -np.inf)
    np.maximum.at(peaks, where.reshape(-1), logs)
    return places, peaks


class _Block:
    """Scales that are balanced together: those of one layer's outputs.

    Each step takes time proportional to the block only, because a deep network has as many blocks
    as layers.

    Args:
        places: indices of the scales, ascending.
        before: the layers that produce the channels.
        behind: the layers that consume them.
    """

    def __init__(self, places: Ids, before: Sequence[_Weights], behind: Sequence[_Weights]) -> None:
        self._places = places
        self._before = [(w.output_ranges, *self._within(w.outputs)) for w in before]
        self._behind = [(w.input_ranges, *self._within(w.inputs)) for w in behind]

    def balance(self, exponents: Logs) -> float:
        """Equalize the ranges of both sides; return the largest change in bits."""
        with np.errstate(invalid="ignore"):
            gaps = self._means(self._before, exponents) - self._means(self._behind, exponents)
        # A channel without weights on one side has no range to balance.
        moves = np.where(np.isfinite(gaps), gaps / 2, 0.0)
        exponents[self._places] += moves
        return float(np.abs(moves).max(initial=0.0))

    def _within(self, places: Ids) -> tuple[NDArray[np.bool_], Ids]:
        """Return a mask of the layer's scales in this block, and their positions in it."""
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        mask = self._places[at] == places
        return mask, at[mask]

    def _means(self, sides: Sequence[_Side], exponents: Logs) -> Logs:
        """Return the mean of all finite ranges per scale; NaN if there are none."""
        total, count = np.zeros(len(self._places)), np.zeros(len(self._places))
        for ranges_of, mask, at in sides:
            ranges = ranges_of(exponents)[mask]
            finite = np.isfinite(ranges)
            total += np.bincount(at[finite], ranges[finite], len(total))
            count += np.bincount(at[finite], minlength=len(total))
        return total / count


def _blocks(weights: Sequence[_Weights], pinned: int) -> Iterator[_Block]:
    """Yield the scales layer by layer, each once."""
    by_place: dict[int, tuple[list[_Weights], list[_Weights]]] = {}
    for layer in weights:
        for places, side in ((layer.outputs, 0), (layer.inputs, 1)):
            for place in np.unique(places[places != pinned]).tolist():
                by_place.setdefault(place, ([], []))[side].append(layer)
    seen: set[int] = set()
    for layer in weights:
        new = [p for p in np.unique(layer.outputs).tolist() if p != pinned and p not in seen]
        seen.update(new)
        if new:
            before, behind = (
                list({id(w): w for p in new for w in by_place[p][side]}.values()) for side in (0, 1)
            )
            yield _Block(np.array(new), before, behind)


Exponents = NDArray[np.float64]

_BOUND: Final = 6.0


def _any(ids: Ids | None, exponents: Exponents) -> bool:
    return ids is not None and bool(exponents[ids].any())


def apply_scales(
    graph: Graph, scales: ChannelScales, exponents: Exponents, protected: Collection[str]
) -> Graph:
    """Return the graph with each channel divided by its scale.

    Args:
        exponents: base-2 logarithm of each scale.
    """
    return _Applying(graph, exponents, protected).run(scales)


def scaled_weights(layer: ScaledLayer, exponents: Exponents) -> Array:
    """Return a layer's weights after scaling its input and output channels, in their own dtype."""
    values = layer.weights.attr_tensor("value").array()
    columns = [1] * values.ndim
    for axis in layer_kind(layer.layer).channels:
        columns[axis] = values.shape[axis]
    by = -exponents[layer.outputs].reshape(columns)
    if layer.inputs is not None:
        rows = [1] * values.ndim
        rows[input_axis(layer.layer)] = len(layer.inputs)
        by = by + exponents[layer.inputs].reshape(rows)
    with np.errstate(over="ignore", under="ignore"):
        # Multiplying by a power of two is exact except at the ends of the type's range.
        return (values * np.exp2(by)).astype(values.dtype)


class _Applying:
    """Collector of replacements by node name."""

    def __init__(self, graph: Graph, exponents: Exponents, protected: Collection[str]) -> None:
        self._graph = graph
        self._exponents = exponents
        self._protected = protected
        self._constants = ConstantExpressions(graph)
        self._names = FreshNames(graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []

    def run(self, scales: ChannelScales) -> Graph:
        for layer in scales.layers:
            if _any(layer.inputs, self._exponents) or _any(layer.outputs, self._exponents):
                self._replace(layer.weights, scaled_weights(layer, self._exponents))
        for offset in scales.constants:
            self._scale_constant(offset)
        for bound in scales.bounds:
            self._scale_bound(bound)
        return self._constants.replaced(self._new, self._lost, self._protected)

    def _scale_constant(self, offset: ScaledConstant) -> None:
        """Scale a constant in place, or create a copy for this node if others use it."""
        node, ref = offset.node, offset.node.data_inputs[offset.index]
        if not _any(offset.tensor.ids, self._exponents):
            return
        axis = -1 if node.op == "BiasAdd" else offset.tensor.axis
        scaled = offset.values * self._factors(offset.tensor, axis)
        if node.op == "BiasAdd":
            node = changed_statistics(node, self._factors(offset.tensor, -1), 0.0)
        own = own_constant(self._graph, ref, offset.node, self._protected)
        if own is not None:
            self._replace(own, scaled)
            self._new[node.name] = [node]
            return
        name = self._names.name(f"{node.name}/scaled")
        tensor = Tensor.packed(scaled.astype(offset.values.dtype))
        inputs = tuple(Ref(name) if i == offset.index else r for i, r in enumerate(node.inputs))
        self._lost.append(ref.node)
        self._new[node.name] = [
            constant(name, tensor, node.device, offset.tensor.ties),
            node.with_inputs(inputs),
        ]

    def _scale_bound(self, bound: Bound) -> None:
        """Replace Relu6 with Relu and a Minimum that has a bound per channel."""
        node = bound.node
        if not _any(bound.tensor.ids, self._exponents):
            return
        dtype = node.attr_dtype("T", DType.FLOAT)
        value = _BOUND * self._factors(bound.tensor, bound.tensor.axis)
        limit = Tensor.packed(value.astype(dtype.numpy), dtype)
        self._new[node.name] = bounded(node, limit, self._names, bound.tensor.ties)

    def _factors(self, tensor: ScaledTensor, axis: int) -> Array:
        """Return the channel factors, shaped to broadcast along ``axis``."""
        factors = np.exp2(-self._exponents[tensor.ids])
        return factors.reshape(-1, *[1] * (-axis - 1))

    def _replace(self, old: Node, values: Array) -> None:
        dtype = old.attr_tensor("value").dtype
        tensor = Tensor.packed(values.astype(dtype.numpy), dtype)
        self._new[old.name] = [constant(old.name, tensor, old.device, old.inputs)]

"""Scales with which 8-bit activations lose least, measured on data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import SCALINGS
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.refs import Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.rewriting.channel_scales import (
    ChannelScales,
    Ids,
    ScaledConstant,
    ScaledLayer,
    ScaledTensor,
)
from mobileprep.transforms.rewriting.layers import data_input, input_axis, layer_kind

Logs = NDArray[np.float64]

_RELU6_BOUND: Final = 6.0
# A channel may exceed its largest observed value by this factor before a Relu6 clips it.
_HEADROOM: Final = 1.5
# Part of the way to the least expected error. With all of it, every channel of a tensor would be
# clipped as soon as it exceeds its largest observed value; the error is convex in logarithms, so
# that half of the way has more than half of the gain.
_PART: Final = 0.5
# Channels that hardly ever differ from zero count as ones of this share of the tensor's range.
_LEAST_SHARE: Final = 2.0**-8
# Fewer values do not show how large a channel can become, such as one value for each sample.
_FEWEST_VALUES: Final = 1024
# Variance of rounding to one of 256 levels of a range, and to one of 255 levels around zero.
_ACTIVATION: Final = 1 / (12 * 255**2)
_WEIGHT: Final = 1 / (12 * 127**2)
# The norm that stands for a maximum; its gradient is not zero for the second largest channel.
_NORM: Final = 24.0
# Peaks of weights in one term. Of larger layers, an evenly spread part of the outputs counts.
_MOST_WEIGHTS: Final = 1 << 21
_STEPS: Final = 100
# Lengths of steps, and their growth after a turn, after a stop, and in the same direction.
_FIRST_STEP: Final = 0.2
_LEAST_STEP: Final = 1e-3
_LONGEST_STEP: Final = 0.5
_GROWTH: Final = np.array([0.5, 1.0, 1.2])
_TINY: Final = 1e-30


class Channels:
    """Ends, sums, and sums of squares of each channel of a tensor.

    Args:
        tensor: the tensor; without it, all values are one channel.
    """

    def __init__(self, tensor: ScaledTensor | None) -> None:
        self._tensor = tensor
        self.low: Array = np.zeros(1)
        self.high: Array = np.zeros(1)
        self._sum: Array = np.zeros(1)
        self._squares: Array = np.zeros(1)
        self._count = 0

    def add(self, values: Array) -> None:
        """Add the values of one run."""
        tensor = self._tensor
        if tensor is None or -tensor.axis > values.ndim:
            lines = values.reshape(-1, 1)
        else:
            lines = np.moveaxis(values, tensor.axis, -1).reshape(-1, values.shape[tensor.axis])
        self.low = np.minimum(self.low, lines.min(axis=0, initial=0))
        self.high = np.maximum(self.high, lines.max(axis=0, initial=0))
        self._sum = self._sum + lines.sum(axis=0, dtype=np.float64)
        self._squares = self._squares + np.einsum("ij,ij->j", lines, lines, dtype=np.float64)
        self._count += len(lines)

    @property
    def is_usable(self) -> bool:
        """Whether there are values, all are finite, and there is one column for each channel."""
        fits = self._tensor is None or len(self.low) == len(self._tensor.ids)
        return bool(self._count and fits and np.isfinite(self._squares).all())

    @property
    def has_enough(self) -> bool:
        """Whether there are enough values of each scale to know its range."""
        ids = [0] if self._tensor is None else self._tensor.ids
        return self._count * len(ids) >= _FEWEST_VALUES * len(np.unique(ids))

    @property
    def power(self) -> Array:
        """Mean square of each channel."""
        return self._squares / max(self._count, 1)

    @property
    def variance(self) -> Array:
        """Variance of each channel."""
        variance: Array = self.power - np.square(self._sum / max(self._count, 1))
        return np.maximum(variance, 0)


def observed_channels(
    graph: Graph,
    scales: ChannelScales,
    fetches: Sequence[str],
    runs: Iterable[Mapping[str, Array]],
) -> dict[Ref, Channels]:
    """Return the channels of all tensors that may be scaled, and of the inputs of all layers."""
    sources = [layer.layer.data_inputs[data_input(layer.layer)] for layer in scales.layers]
    watched = {edge(ref): ref for ref in (*scales.tensors, *sources)}
    channels: dict[Ref, Channels] = {}

    def see(tensor: tuple[str, int], values: Array) -> None:
        if values.dtype.kind == "f" and values.size:
            ref = watched[tensor]
            if ref not in channels:
                channels[ref] = Channels(scales.tensors.get(ref))
            channels[ref].add(values)

    names = list(fetches) or [layer.layer.name for layer in scales.layers]
    interpreter = Interpreter(graph, watched=watched, watcher=see)
    for run in runs:
        interpreter.run(names, run)
    return {ref: seen for ref, seen in channels.items() if seen.is_usable}


def is_bound(constant: ScaledConstant) -> bool:
    """Return whether a constant is one bound for all channels."""
    return constant.node.op in ("Minimum", "Maximum") and constant.values.size == 1


def smoothing_exponents(
    graph: Graph, scales: ChannelScales, channels: Mapping[Ref, Channels]
) -> Logs:
    """Return the base-2 logarithm of each scale's channel divisor; zero if pinned.

    The scales are half way, in logarithms, to those with the least expected squared error of all
    layers' outputs, each relative to the variance of the output: an activation is rounded to 256
    levels of the range that all its channels share, and the weights of each output of a layer to
    255 levels of their range. Scaling an output changes neither, because its weights have their own
    scale.

    Bounds for all channels remain as they are, so that a Relu6 is still one operator: a channel
    that reaches the bound is not scaled, and others keep away from it.
    """
    roots = scales.variables.roots()
    free = np.unique(roots[roots >= 0])
    # The last entry represents all pinned scales.
    places = np.where(roots < 0, len(free), np.searchsorted(free, roots))
    errors = _Errors(graph, scales, channels, places)
    low, high = _limits(scales, channels, places, len(free) + 1)
    exponents = _minimized(errors.terms(), low, high)
    return _PART * exponents[places] / math.log(2)


def _limits(
    scales: ChannelScales, channels: Mapping[Ref, Channels], places: Ids, count: int
) -> tuple[Logs, Logs]:
    """Return the lowest and the highest natural logarithm of each divisor."""
    low, high = np.full(count, -math.inf), np.full(count, math.inf)
    pinned = [
        places[tensor.ids]
        for ref, tensor in scales.tensors.items()
        if ref not in channels or not channels[ref].has_enough
    ]
    bounds = [(b.node.data_inputs[0], b.tensor, _RELU6_BOUND) for b in scales.bounds]
    for constant in scales.constants:
        value = float(constant.values.reshape(-1)[0]) if is_bound(constant) else 0.0
        source = constant.node.data_inputs[1 - constant.index] if value else None
        if constant.node.op == "Minimum" and value > 0 and source is not None:
            bounds.append((source, constant.tensor, value))
        elif value:
            pinned.append(places[constant.tensor.ids])
    for source, tensor, bound in bounds:
        if source not in channels:
            continue
        at, peaks = places[tensor.ids], channels[source].high * _HEADROOM
        pinned.append(at[peaks >= bound])
        with np.errstate(divide="ignore"):
            np.maximum.at(low, at, np.log(np.maximum(peaks / bound, _LEAST_SHARE)))
    for at in (*pinned, np.array([count - 1])):
        low[at] = high[at] = 0.0
    return np.minimum(low, high), high


class _Term(Protocol):
    """A part of the expected error, and its gradient."""

    def add_to(self, exponents: Logs, gradient: Logs) -> float:
        """Return the error, and add its derivatives for all exponents to the gradient."""


def _minimized(terms: Sequence[_Term], low: Logs, high: Logs) -> Logs:
    """Return the exponents with the least error.

    The logarithm of the error is convex in them: it is a sum of products of maxima and powers.

    Source: Riedmiller and Braun, A direct adaptive method for faster backpropagation learning: the
    RPROP algorithm (1993). Only signs of derivatives count, whose sizes differ by many powers of
    ten.
    """
    exponents = best = np.clip(np.zeros(len(low)), low, high)
    least = math.inf
    lengths, before = np.full(len(low), _FIRST_STEP), np.zeros(len(low))
    for _ in range(_STEPS):
        gradient = np.zeros(len(low))
        error = sum(term.add_to(exponents, gradient) for term in terms)
        if error < least:
            best, least = exponents, error
        turned = np.sign(gradient) * np.sign(before)
        lengths = np.clip(lengths * _GROWTH[np.int64(turned) + 1], _LEAST_STEP, _LONGEST_STEP)
        before = np.where(turned < 0, 0.0, gradient)
        exponents = np.clip(exponents - np.sign(before) * lengths, low, high)
    return best


class _Errors:
    """The parts of the expected error of a graph with rounded activations and weights."""

    def __init__(
        self, graph: Graph, scales: ChannelScales, channels: Mapping[Ref, Channels], places: Ids
    ) -> None:
        self._graph = graph
        self._scales = scales
        self._channels = channels
        self._places = places
        self._layers = {layer.layer.name: layer for layer in scales.layers}
        self._fused = {b.node.name for b in scales.bounds} | {c.node.name for c in scales.constants}

    def terms(self) -> list[_Term]:
        """Return the error of each rounded activation, and of each layer's rounded weights."""
        terms: list[_Term] = []
        pinned = self._places.max(initial=0)
        factors = self._factors()
        for ref, tensor in self._scales.tensors.items():
            at = self._places[tensor.ids]
            if ref in self._channels and (at < pinned).any() and not self._is_fused(ref):
                terms.append(_Activation(at, self._channels[ref], factors[ref]))
        for layer in self._scales.layers:
            source = self._channels.get(layer.layer.data_inputs[data_input(layer.layer)])
            if layer.inputs is None or source is None or _is_depthwise(layer):
                continue
            at = self._places[layer.inputs]
            if (at < pinned).any():
                terms.append(_Weights.of(layer, at, source.power, self._importance(layer)))
        return terms

    def _is_fused(self, ref: Ref) -> bool:
        """Return whether a tensor's only consumer is part of the operator that computes it."""
        users = self._users(ref)
        if len(users) != 1:
            return False
        return users[0].op == "Relu" or users[0].name in self._fused

    def _users(self, ref: Ref) -> list[Node]:
        return [n for n in self._graph.consumers.get(ref.node, ()) if ref in n.data_inputs]

    def _importance(self, layer: ScaledLayer) -> float:
        """Return the factor for the squared errors of a layer's outputs."""
        seen = self._channels.get(Ref(layer.layer.name))
        total = 0.0 if seen is None else float(seen.variance.sum())
        return 1 / total if total > 0 else 0.0

    def _factors(self) -> dict[Ref, Array]:
        """Return the error that a unit of squared error in each channel of a tensor causes."""
        factors: dict[Ref, Array] = {}
        for node in reversed(list(execution_order(self._graph))):
            ref = Ref(node.name)
            tensor = self._scales.tensors.get(ref)
            if tensor is not None:
                factors[ref] = np.zeros(len(tensor.ids))
                for user in self._users(ref):
                    factors[ref] = factors[ref] + self._factor(ref, tensor, user, factors)
        return factors

    def _factor(
        self, ref: Ref, tensor: ScaledTensor, user: Node, factors: Mapping[Ref, Array]
    ) -> Array | float:
        layer, after = self._layers.get(user.name), Ref(user.name)
        if layer is not None:
            squares = _squares(layer)
            is_data = user.data_inputs[data_input(user)] == ref
            return squares * self._importance(layer) if is_data else 0.0
        if after not in factors:
            return 0.0
        ids = self._scales.tensors[after].ids
        if len(ids) == len(tensor.ids):
            return factors[after] * self._gain(ref, user)
        places = self._places
        sums = np.bincount(places[ids], factors[after], int(places.max(initial=0)) + 1)
        return sums[places[tensor.ids]]

    def _gain(self, ref: Ref, user: Node) -> Array | float:
        """Return the factor of squared values, measured for products."""
        before, after = self._channels.get(ref), self._channels.get(Ref(user.name))
        if user.op not in SCALINGS or before is None or after is None:
            return 1.0
        return after.power / np.maximum(before.power, _TINY)


def _is_depthwise(layer: ScaledLayer) -> bool:
    return len(layer_kind(layer.layer).channels) > 1


def _by_input(scaled: ScaledLayer) -> Array:
    """Return a layer's weights with the input channels first."""
    values = scaled.weights.attr_tensor("value").array()
    return np.moveaxis(values, input_axis(scaled.layer) + values.ndim, 0)


def _squares(scaled: ScaledLayer) -> Array:
    """Return the sum of the squared weights of each input channel."""
    values = _by_input(scaled)
    lines = values.reshape(len(values), -1)
    squares: Array = np.einsum("ij,ij->i", lines, lines, dtype=np.float64)
    return squares


def _logs(values: Array) -> Logs:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _peak(logs: Logs) -> tuple[Array, Logs]:
    """Return a smooth maximum along the first axis, and its derivatives by the logarithms."""
    top = logs.max(axis=0)
    top = np.where(np.isfinite(top), top, 0.0)
    powers = np.exp(_NORM * (logs - top))
    total = np.maximum(powers.sum(axis=0), _TINY)
    peak = np.exp(top) * total ** (1 / _NORM) * (powers.max(axis=0) > 0)
    return peak, peak * (powers / total)


class _Activation:
    """The error from rounding one tensor."""

    def __init__(self, places: Ids, seen: Channels, factors: Array) -> None:
        least = max(seen.high.max(initial=0), -seen.low.min(initial=0)) * _LEAST_SHARE
        self._places = places
        self._ends = [
            _logs(np.maximum(end, least)) for end in (seen.high, -seen.low) if (end > least).any()
        ]
        self._factors = factors * _ACTIVATION

    def add_to(self, exponents: Logs, gradient: Logs) -> float:
        at = exponents[self._places]
        noise = np.exp(2 * at) * self._factors
        total = float(noise.sum())
        peaks = [_peak(end - at) for end in self._ends]
        span = float(sum(peak for peak, _ in peaks))
        narrower = sum((change for _, change in peaks), np.zeros(len(at)))
        np.add.at(gradient, self._places, 2 * span * (span * noise - total * narrower))
        return span**2 * total


class _Weights(Struct, frozen=True):
    """The error from rounding the weights of one layer.

    Args:
        places: index of the scale of each row, without duplicates.
        logs: logarithm of the largest magnitude of each input's weights for each output; shape
            [inputs, outputs].
        power: the expected squared error per squared peak of an output, for each row.
    """

    places: Ids
    logs: Logs
    power: Array

    @classmethod
    def of(cls, scaled: ScaledLayer, places: Ids, power: Array, importance: float) -> _Weights:
        values = _by_input(scaled)
        column = layer_kind(scaled.layer).channels[-1] % values.ndim
        if column < input_axis(scaled.layer) % values.ndim:
            column += 1
        values = np.moveaxis(values, column, 1)
        # A flattened image has many rows per channel.
        unique, where = np.unique(places, return_inverse=True)
        share = -(-len(unique) * values.shape[1] // _MOST_WEIGHTS)
        values = values[:, ::share]
        others = tuple(range(2, values.ndim))
        merged = np.zeros((len(unique), values.shape[1]))
        np.maximum.at(merged, where, values.max(axis=others))
        np.maximum.at(merged, where, -values.min(axis=others))
        count = math.prod(values.shape[2:]) * share
        error = np.bincount(where, power) * (count * importance * _WEIGHT)
        return cls(unique, _logs(merged), error)

    def add_to(self, exponents: Logs, gradient: Logs) -> float:
        at = exponents[self.places]
        noise = self.power * np.exp(-2 * at)
        total = float(noise.sum())
        peaks, changes = _peak(self.logs + at[:, None])
        squares = float(np.square(peaks).sum())
        gradient[self.places] += 2 * total * (changes @ peaks) - 2 * squares * noise
        return squares * total

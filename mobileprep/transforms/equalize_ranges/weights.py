"""Scales that give the weights on both sides of each channel equal ranges, without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.transforms.rewriting.channel_scales import ChannelScales, Ids, ScaledLayer
from mobileprep.transforms.rewriting.layers import input_axis, layer_kind

Logs = NDArray[np.float64]

_SWEEPS: Final = 100
_ENOUGH: Final = 4e-3  # bits: less than half a step of 8-bit weights
_BIAS: Final = 6.0  # bits, see ``_Weights.floor``
_SUMS: Final = frozenset({"BiasAdd", "Add", "AddV2", "Sub"})
_STEEPEST: Final = 64.0  # bits; larger values come from broken channels, not from ranges


def equalizing_exponents(scales: ChannelScales) -> Logs:
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
    return np.clip(exponents, -_STEEPEST, _STEEPEST)[places]


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

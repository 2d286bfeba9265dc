"""Works out scales that bring the ranges of weights into line, channel by channel.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019),
section 4.1. There a channel lies between two layers, and its scale is ``sqrt(r1 / r2)``, where
``r1`` and ``r2`` are the greatest magnitudes of its weights in the layer before and in the one
behind. Where several layers put a channel out or take it, as around a sum, their ranges count by
their geometric means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.frozen import dataclass
from mobileprep.rewriting.channel_scales.scales import ChannelScales, ScaledLayer
from mobileprep.rewriting.channel_scales.variables import Ids
from mobileprep.rewriting.layers import input_axis, layer_kind

Logs = NDArray[np.float64]

_SWEEPS: Final = 100
_ENOUGH: Final = 4e-3  # bits: less than half a step of eight bits
_BIAS: Final = 6.0  # bits, see ``_Weights.floor``
_SUMS: Final = frozenset({"BiasAdd", "Add", "AddV2", "Sub"})
_STEEPEST: Final = 64.0  # bits; beyond lie channels that broken training left, not ranges


def equalizing_exponents(scales: ChannelScales, *, whole: bool) -> Logs:
    """For each scale its base-two logarithm, what the channels are divided by; zero if pinned.

    Args:
        scales: what may be scaled.
        whole: whether to round to whole numbers, so that the scales are powers of two.
    """
    roots = scales.variables.roots()
    free = np.unique(roots[roots >= 0])
    # The last place is for all that are pinned.
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
    """For each scale the magnitude of what is added to its channel, in bits below the greatest."""
    logs = np.full(count, -np.inf)
    for offset in scales.constants:
        if offset.node.op in _SUMS:
            ids, values = offset.tensor.ids, np.abs(offset.values).reshape(-1)
            peak = values.max(initial=0)
            if np.isfinite(peak) and peak > 0:
                with np.errstate(divide="ignore"):
                    logs[ids] = np.maximum(logs[ids], np.log2(values / peak))
    return logs


@dataclass(frozen=True)
class _Weights:
    """The magnitudes of a layer's weights, in bits.

    Args:
        logs: shape [inputs, outputs], or [inputs, outputs per input] of a depthwise layer.
        inputs: the place of the scale of each row; of one row where inputs are not scaled.
        outputs: the place of the scale of each output.
        floor: for each output the least range that it counts with, for its bias' sake.
        depthwise: whether each output takes one input alone.
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
        """The range of each output's weights, in bits, under scales."""
        rows = self.logs + exponents[self.inputs][:, None]
        peaks = rows.reshape(-1) if self.depthwise else rows.max(axis=0, initial=-np.inf)
        return np.maximum(peaks, self.floor) - exponents[self.outputs]

    def input_ranges(self, exponents: Logs) -> Logs:
        """The range of each input's weights, in bits, under scales."""
        outputs = exponents[self.outputs]
        columns = outputs.reshape(self.logs.shape) if self.depthwise else outputs
        peaks: Logs = (self.logs - columns).max(axis=1, initial=-np.inf)
        return peaks + exponents[self.inputs]


_Side = tuple[Callable[[Logs], Logs], NDArray[np.bool_], Ids]
"""The ranges of a layer under scales, which of them are of a block, and where they stand in it."""


def _by_place(inputs: Ids, logs: Logs) -> tuple[Ids, Logs]:
    """Rows of one scale taken together, as a flattened image has many of each channel."""
    places, where = np.unique(inputs, return_inverse=True)
    peaks = np.full((len(places), logs.shape[1]), -np.inf)
    np.maximum.at(peaks, where.reshape(-1), logs)
    return places, peaks


class _Block:
    """Scales that are balanced together: those of one layer's outputs.

    Takes time for these alone, for a long network has as many blocks as layers.

    Args:
        places: the scales, ascending.
        before: the layers that put them out.
        behind: the layers that take them.
    """

    def __init__(self, places: Ids, before: Sequence[_Weights], behind: Sequence[_Weights]) -> None:
        self._places = places
        self._before = [(w.output_ranges, *self._within(w.outputs)) for w in before]
        self._behind = [(w.input_ranges, *self._within(w.inputs)) for w in behind]

    def balance(self, exponents: Logs) -> float:
        """Move the scales to where both sides have one range; by how many bits at most."""
        with np.errstate(invalid="ignore"):
            gaps = self._means(self._before, exponents) - self._means(self._behind, exponents)
        # A channel without weights on one side has no range there to be balanced with.
        moves = np.where(np.isfinite(gaps), gaps / 2, 0.0)
        exponents[self._places] += moves
        return float(np.abs(moves).max(initial=0.0))

    def _within(self, places: Ids) -> tuple[NDArray[np.bool_], Ids]:
        """Which of a layer's scales are of this block, and where they stand in it."""
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        found = self._places[at] == places
        return found, at[found]

    def _means(self, sides: Sequence[_Side], exponents: Logs) -> Logs:
        """For each scale the mean of all finite ranges; NaN where there is none."""
        total, count = np.zeros(len(self._places)), np.zeros(len(self._places))
        for ranges_of, found, at in sides:
            ranges = ranges_of(exponents)[found]
            known = np.isfinite(ranges)
            total += np.bincount(at[known], ranges[known], len(total))
            count += np.bincount(at[known], minlength=len(total))
        return total / count


def _blocks(weights: Sequence[_Weights], pinned: int) -> Iterator[_Block]:
    """The scales layer by layer, each once."""
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

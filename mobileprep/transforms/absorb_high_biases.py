"""Moves biases that keep channels far above zero into the layers behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import numpy as np

from mobileprep.frozen import dataclass
from mobileprep.ir.channel_statistics import (
    NO_STATISTICS,
    NO_STATISTICS_HINT,
    statistics_of,
)
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ir.verify import check_inputs
from mobileprep.options.declare import Option
from mobileprep.rewriting.absorbing import Absorption, absorbed, find_absorptions, pads_nothing
from mobileprep.rewriting.biases import Biased, BiasedLayer, has_bias, with_biases
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_BEFORE: Final = frozenset({"Relu", "Relu6", "Minimum"})
_LOW: Final = "no channel stays above zero"


@transform("absorb_high_biases")
@dataclass(frozen=True)
class AbsorbHighBiases(Transform):
    """The part of a channel that is always there goes behind the activation.

    Where a channel is greater than ``c`` before its Relu on all samples, and three standard
    deviations below its mean still is, ``c`` is taken off its bias and added, through the weights,
    to the biases of the layers behind. The outputs stay the same on all data on which the channel
    stays above ``c``. Layers that pad with zeros cannot take it; those of MobileNet's 1x1
    convolutions can.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.1.3; mean and deviation are measured on data, or are those that
    fuse_batch_norms has kept.
    """

    summary = (
        "Moves the part of biases that keeps channels above zero on all samples behind the "
        "activation, into the next layers' biases, so that activations have smaller ranges."
    )

    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input, to measure the channels on. "
            "Without it, they are those of batch normalizations, which fuse_batch_norms keeps with "
            "keep_statistics.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int, Option("How many samples to take, spread evenly over the file.", minimum=1)
    ] = 64
    deviations: Annotated[
        float,
        Option("How many standard deviations below its mean a channel must be above.", minimum=0),
    ] = 3.0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Move what can be moved.

        Raises:
            TransformError: no data is named, and the graph has no statistics.
            CorruptFileError: the data is missing or damaged.
            AccuracyError: the data does not fit the inputs.
            InvalidGraphError, UnsupportedError, UsageError: the graph cannot run on the data.
        """
        if self.data == "" or self.samples < 1:
            message = "data is empty" if not self.data else f"samples is {self.samples}"
            raise refuse(self.transform_name, message, "name a .npz file with samples")
        check_inputs(graph, "")
        protected = context.protected
        biased = _with_biases(graph, protected)
        found = find_absorptions(biased, protected)
        if not found:
            return Result(graph)
        lows = self._lows(biased.graph, found, context)
        amounts = [
            np.clip(low, 0, absorption.most).astype(np.float32).astype(np.float64)
            for absorption, low in zip(found, lows, strict=True)
        ]
        moved = {a.source.add.name: by for a, by in zip(found, amounts, strict=True) if by.any()}
        if not moved:
            return Result(graph, skipped={_LOW: len(found)})
        takers = {t.add.name for a in found if a.source.add.name in moved for t in a.takers}
        # Again, without biases for those that take nothing.
        biased = _with_biases(graph, protected, takers)
        sources = {a.source.add.name: a for a in find_absorptions(biased, protected)}
        moves = [(sources[name], by) for name, by in moved.items()]
        skipped = {_LOW: len(found) - len(moves)} if len(moves) < len(found) else {}
        return Result(absorbed(biased.graph, moves), len(moves), skipped)

    def _lows(self, graph: Graph, found: Sequence[Absorption], context: Context) -> list[Array]:
        """What each channel of a layer stays above."""
        if self.data is None:
            kept = [statistics_of(a.source.add, a.source.channels) for a in found]
            if not any(kept):
                raise refuse(self.transform_name, NO_STATISTICS, NO_STATISTICS_HINT)
            return [
                np.zeros(a.source.channels)
                if s is None
                else s.means - self.deviations * s.deviations
                for a, s in zip(found, kept, strict=True)
            ]
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        interpreter = Interpreter(graph)
        names = [absorption.source.add.name for absorption in found]
        seen = [_Seen(absorption.source) for absorption in found]
        for run in runs:
            for channels, output in zip(seen, interpreter.run(names, run), strict=True):
                channels.add(output)
        return [channels.low(self.deviations) for channels in seen]


class _Seen:
    """Least value, mean and deviation of each channel that a layer puts out."""

    def __init__(self, layer: BiasedLayer) -> None:
        self._layer = layer
        self._least = np.full(layer.channels, np.inf)
        self._sum = np.zeros(layer.channels)
        self._squares = np.zeros(layer.channels)
        self._count = 0

    def add(self, output: Array) -> None:
        """Take in what one run puts out."""
        lines = np.moveaxis(output, self._layer.axis, -1).reshape(-1, self._layer.channels)
        lines = lines.astype(np.float64)
        self._least = np.minimum(self._least, lines.min(axis=0, initial=np.inf))
        self._sum += lines.sum(axis=0)
        self._squares += np.square(lines).sum(axis=0)
        self._count += len(lines)

    def low(self, deviations: float) -> Array:
        """The least value, or what lies some deviations below the mean where that is less."""
        if not self._count:
            return np.zeros(self._layer.channels)
        mean = self._sum / self._count
        spread = np.sqrt(np.maximum(self._squares / self._count - np.square(mean), 0))
        low = np.minimum(self._least, mean - deviations * spread)
        return np.where(np.isfinite(low), low, 0.0)


def _with_biases(
    graph: Graph, protected: Collection[str], takers: Collection[str] | None = None
) -> Biased:
    """The graph with biases for the layers that may take something, or for those of some names."""

    def wanted(layer: Node, weights: Node) -> bool:
        if has_bias(graph, layer, protected):
            return True
        if takers is not None:
            return layer.name in takers
        source = graph.get(layer.data_inputs[0].node)
        return source is not None and source.op in _BEFORE and pads_nothing(layer, weights)

    return with_biases(graph, wanted, protected)

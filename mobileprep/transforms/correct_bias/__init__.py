"""Correct biases for the shift in channel means that weight rounding causes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final, Literal

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.statistics import (
    NO_STATISTICS,
    NO_STATISTICS_HINT,
    without_statistics,
)
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.correct_bias.channel_means import (
    analytically_corrected,
    channel_means,
    empirically_corrected,
)
from mobileprep.transforms.rewriting.biases import Biased, with_biases
from mobileprep.transforms.rewriting.clipping import eightbit_constant, range_with_zero, rounded
from mobileprep.transforms.rewriting.layers import linear_weights, weight_axes

# The number of bits that quantize_weights stores.
_WHOLE_BITS: Final = 8
_NO_MEANS: Final = "the mean of its input is not known"


@transform("correct_bias")
class CorrectBias(Transform, frozen=True):
    """Correct biases for the shift in channel means that rounded weights will cause.

    Run it before quantization: the weights stay float and are rounded only to measure the effect.
    Both versions come from the same graph, and ranges that are measured afterwards match the biases
    that ship.

    With data, means are measured. Without, the mean of a layer's input is derived from the
    statistics that fuse_batch_norms stores; it is unknown if no normalization precedes the layer.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.2.
    """

    summary = (
        "Shifts the biases of layers by the amount by which rounding the weights to few bits will"
        " change the mean of each channel. Use it before quantization."
    )

    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input, to measure the means on. "
            "Without it, they are those of batch normalizations, which fuse_batch_norms keeps with "
            "keep_statistics.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int, Option("How many samples to take, spread evenly over the file.", minimum=1)
    ] = 64
    bits: Annotated[
        int, Option("How many bits the weights will be stored in.", minimum=2, maximum=8)
    ] = 8
    granularity: Annotated[
        Literal["tensor", "channel"],
        Option(
            "tensor: the weights will have one range, as quantize_weights and quantize_nodes give "
            "them. channel: one for each channel, as linear_quantize_weights gives them."
        ),
    ] = "tensor"
    minimum_size: Annotated[
        int,
        Option(
            "Weights with fewer elements will stay float. quantize_nodes rounds all: 0.", minimum=0
        ),
    ] = 1024

    def apply(self, graph: Graph, context: Context) -> Result:
        """Correct the biases of all layers whose weights will be rounded."""
        self._check()
        check_inputs(graph, "")
        biased = self._biased(graph, context)
        if not biased.layers:
            return Result(without_statistics(graph))
        if self.data is None:
            return self._by_statistics(graph, biased)
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        done = empirically_corrected(biased, self._all_rounded(biased), runs)
        return Result(without_statistics(done), len(biased.layers), Counter())

    def _by_statistics(self, graph: Graph, biased: Biased) -> Result:
        means = channel_means(biased.graph)
        if not means:
            raise refuse(self.transform_name, NO_STATISTICS, NO_STATISTICS_HINT)
        done, corrected = analytically_corrected(biased, self._all_rounded(biased), means)
        remaining = len(biased.layers) - corrected
        skipped = Counter({_NO_MEANS: remaining} if remaining else {})
        return Result(without_statistics(done if corrected else graph), corrected, skipped)

    def _all_rounded(self, biased: Biased) -> dict[str, Node]:
        weights = {layer.weights.name: layer.weights for layer in biased.layers}
        return {name: self._rounded(biased.graph, node) for name, node in weights.items()}

    def _check(self) -> None:
        if not 2 <= self.bits <= 8:
            message = f"bits is {self.bits}"
            raise refuse(self.transform_name, message, "weights are stored in 2 to 8 bits")
        if self.data == "" or self.samples < 1:
            message = "data is empty" if not self.data else f"samples is {self.samples}"
            raise refuse(self.transform_name, message, "name a .npz file with samples")

    def _biased(self, graph: Graph, context: Context) -> Biased:
        """Add biases to the layers that the outputs need and whose weights will be rounded."""
        ends = [parse_ref(name).node for name in context.outputs]
        needed = reachable(graph, [e for e in ends if e in graph]) if ends else graph.by_name

        def needs_bias(layer: Node, weights: Node) -> bool:
            size = weights.attr_tensor("value").size
            return layer.name in needed and size >= max(self.minimum_size, 1)

        return with_biases(graph, needs_bias, context.protected)

    def _rounded(self, graph: Graph, weights: Node) -> Node:
        """Return the weights with their values after quantization."""
        values = weights.attr_tensor("value").array()
        if self.granularity == "channel":
            back = linear_weights(values, weight_axes(graph, weights), self.bits).decoded()
        elif self.bits == _WHOLE_BITS and (stored := eightbit_constant(values)) is not None:
            back = stored.decoded()
        else:
            back = rounded(values, range_with_zero(values), self.bits)
        tensor = Tensor.of(back.astype(values.dtype))
        return constant(weights.name, tensor, weights.device, weights.inputs)

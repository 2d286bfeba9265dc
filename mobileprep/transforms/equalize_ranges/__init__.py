"""Scale channels between layers so that 8-bit weights and activations lose less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.statistics import changed_statistics
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.equalize_ranges.activations import (
    is_bound,
    observed_channels,
    smoothing_exponents,
)
from mobileprep.transforms.equalize_ranges.weights import equalizing_exponents
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
    padding, pooling, means, image resizing, reshaping, sums of layers, and concatenation. Weights
    with at most 256 distinct values were already quantized to 8 bits and are not scaled.

    Without data, the weights on both sides of a channel get equal ranges. A Relu6 becomes Relu and
    Minimum with a bound per channel.

    With data, the scales reduce the expected squared error from rounding activations to 8 bits
    with one range for each tensor, and weights with one for each output channel. They are half way
    to those with the least error, so that channels can exceed the values of the samples.
    Activations with channels of very different ranges gain most. A Relu6 remains: channels that
    come close to 6 on the samples are not scaled, and others stay below two thirds of it. Results
    change for values of a channel that exceed its largest observed value by more than half.

    Source: without data, Nagel et al., Data-Free Quantization Through Weight Equalization and Bias
    Correction (2019), section 4.1; the paper replaces Relu6 with Relu, which changes the function.
    With data, Meller et al., Same, Same But Different: Recovering Neural Network Quantization Error
    Through Weight Factorization (2019), and Xiao et al., SmoothQuant (2022); both choose scales by
    a formula instead of the expected error.
    """

    summary = (
        "Scales channels up in one layer and down in the next, so that no channel has"
        " much smaller weights than others, or with samples much smaller values, which 8 bits for "
        "a whole tensor would lose. The results do not change. Fuse batch normalizations first."
    )
    moves_scales = True

    relu6: Annotated[
        Literal["carry", "keep"],
        Option(
            "carry: scale channels through Relu6, which without `data` becomes Relu and Minimum "
            "with a bound for each channel. keep: skip channels that go through a Relu6."
        ),
    ] = "carry"
    powers_of_two: Annotated[
        bool,
        Option("Scale only by powers of two, so that results do not change in a single bit."),
    ] = False
    data: Annotated[
        str | None,
        Option(
            "A .npz file with an array of samples for each input. With it, channels are scaled for "
            "8-bit activations; without it, for weights with one scale. In `repair` of `int8` and "
            "`auto`, the calibration's data by default.",
            min_length=1,
            format="path",
        ),
    ] = None
    samples: Annotated[
        int,
        Option(
            "Number of samples, spread evenly over the file. Channels with fewer than 1024 values "
            "in them are not scaled.",
            minimum=1,
        ),
    ] = 32

    def apply(self, graph: Graph, context: Context) -> Result:
        """Scale the channels of all layers that do not share their weights."""
        check_inputs(graph, "")
        carry = self.relu6 == "carry"
        scales = find_scales(graph, context.protected, through_relu6=carry, keep_stored=True)
        if self.data is None:
            exponents = equalizing_exponents(scales)
        else:
            runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
            channels = observed_channels(graph, scales, context.outputs, runs)
            exponents = smoothing_exponents(graph, scales, channels)
            others = [constant for constant in scales.constants if not is_bound(constant)]
            scales = replace(scales, bounds=(), constants=others)
        if self.powers_of_two:
            exponents = np.rint(exponents)
        matched = sum(bool(exponents[layer.outputs].any()) for layer in scales.layers)
        reasons = (scales.variables.reason(layer.outputs) for layer in scales.layers)
        skipped = Counter(scales.refused)
        skipped.update(reason for reason in reasons if reason)
        done = apply_scales(graph, scales, exponents, context.protected) if matched else graph
        return Result(done, matched, skipped)


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

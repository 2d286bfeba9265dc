"""Move large positive bias offsets into the following layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.statistics import (
    NO_STATISTICS,
    NO_STATISTICS_HINT,
    changed_statistics,
    statistics_of,
)
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.verify import check_inputs
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.data_files import feeds_from_file
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform
from mobileprep.transforms.rewriting.layers import (
    Biased,
    BiasedLayer,
    bounded,
    data_input,
    has_bias,
    input_axis,
    output_axis,
    own_constant,
    replaced,
    shifted,
    through,
    with_biases,
)

_BEFORE: Final = frozenset({"Relu", "Relu6", "Minimum"})
_LOW: Final = "no channel stays above zero"


@transform("absorb_high_biases")
class AbsorbHighBiases(Transform, frozen=True):
    """Move the constant part of a channel's bias behind the activation.

    If a channel is greater than ``c`` before its Relu on all samples, and its mean minus three
    standard deviations is also greater, the transform subtracts ``c`` from its bias and adds it,
    through the weights, to the biases of the following layers. The outputs do not change for data
    on which the channel stays above ``c``. Layers that pad with zeros are not supported as targets;
    the 1x1 convolutions of MobileNet are.

    Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
    (2019), section 4.1.3. Mean and deviation are measured on data, or read from the statistics that
    fuse_batch_norms stores.
    """

    summary = (
        "Moves the part of a bias that keeps a channel positive on all samples from "
        "before an activation into the biases of the next layers, so that activations"
        " have smaller ranges."
    )
    moves_scales = True

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
        int, Option("Number of samples, spread evenly over the file.", minimum=1)
    ] = 64
    deviations: Annotated[
        float,
        Option(
            "Number of standard deviations by which the mean of a positive channel exceeds zero.",
            minimum=0,
        ),
    ] = 3.0

    def apply(self, graph: Graph, context: Context) -> Result:
        """Absorb all positive bias offsets that the following layers support."""
        check_inputs(graph, "")
        protected = context.protected
        biased = _with_biases(graph, protected)
        absorptions = find_absorptions(biased, protected)
        if not absorptions:
            return Result(graph)
        lows = self._lows(biased.graph, absorptions, context)
        amounts = [
            np.clip(low, 0, absorption.most).astype(np.float32).astype(np.float64)
            for absorption, low in zip(absorptions, lows, strict=True)
        ]
        moved = {
            a.source.add.name: by for a, by in zip(absorptions, amounts, strict=True) if by.any()
        }
        if not moved:
            return Result(graph, skipped={_LOW: len(absorptions)})
        takers = {t.add.name for a in absorptions if a.source.add.name in moved for t in a.takers}
        # Search again, without adding biases to layers that receive nothing.
        biased = _with_biases(graph, protected, takers)
        sources = {a.source.add.name: a for a in find_absorptions(biased, protected)}
        moves = [(sources[name], by) for name, by in moved.items()]
        skipped = {_LOW: len(absorptions) - len(moves)} if len(moves) < len(absorptions) else {}
        return Result(absorbed(biased.graph, moves), len(moves), skipped)

    def _lows(
        self, graph: Graph, absorptions: Sequence[Absorption], context: Context
    ) -> list[Array]:
        """Return the lower bound of each channel, per layer."""
        if self.data is None:
            statistics = [statistics_of(a.source.add, a.source.channels) for a in absorptions]
            if not any(statistics):
                raise refuse(self.transform_name, NO_STATISTICS, NO_STATISTICS_HINT)
            return [
                np.zeros(a.source.channels)
                if s is None
                else s.means - self.deviations * s.deviations
                for a, s in zip(absorptions, statistics, strict=True)
            ]
        runs = feeds_from_file(graph, context.inputs, Path(self.data), self.samples)
        interpreter = Interpreter(graph)
        names = [absorption.source.add.name for absorption in absorptions]
        seen = [_Seen(absorption.source) for absorption in absorptions]
        for run in runs:
            for channels, output in zip(seen, interpreter.run(names, run), strict=True):
                channels.add(output)
        return [channels.low(self.deviations) for channels in seen]


class _Seen:
    """Minimum, mean, and standard deviation of each output channel of a layer."""

    def __init__(self, layer: BiasedLayer) -> None:
        self._layer = layer
        self._least = np.full(layer.channels, np.inf)
        self._sum = np.zeros(layer.channels)
        self._squares = np.zeros(layer.channels)
        self._count = 0

    def add(self, output: Array) -> None:
        """Update the statistics with the output of one run."""
        lines = np.moveaxis(output, self._layer.axis, -1).reshape(-1, self._layer.channels)
        lines = lines.astype(np.float64)
        self._least = np.minimum(self._least, lines.min(axis=0, initial=np.inf))
        self._sum += lines.sum(axis=0)
        self._squares += np.square(lines).sum(axis=0)
        self._count += len(lines)

    def low(self, deviations: float) -> Array:
        """Return the smaller of the minimum and the mean minus ``deviations`` deviations."""
        if not self._count:
            return np.zeros(self._layer.channels)
        mean = self._sum / self._count
        spread = np.sqrt(np.maximum(self._squares / self._count - np.square(mean), 0))
        low = np.minimum(self._least, mean - deviations * spread)
        return np.where(np.isfinite(low), low, 0.0)


def _with_biases(
    graph: Graph, protected: Collection[str], takers: Collection[str] | None = None
) -> Biased:
    """Return the graph with biases added to candidate layers, or to the layers in ``takers``."""

    def is_candidate(layer: Node, weights: Node) -> bool:
        if has_bias(graph, layer, protected):
            return True
        if takers is not None:
            return layer.name in takers
        source = graph.get(layer.data_inputs[0].node)
        return source is not None and source.op in _BEFORE and pads_nothing(layer, weights)

    return with_biases(graph, is_candidate, protected)


_RELU6_BOUND: Final = 6.0
_TAKING: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "Conv3D"})
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})


class Absorption(Struct, frozen=True):
    """A layer with a bias that can be moved behind its activation.

    Args:
        source: the layer.
        activation: the Relu or Relu6 after its bias.
        limit: the Minimum after the activation, if there is one.
        bound: the constant of the Minimum, one value per channel.
        takers: all consumers of the activation: layers without padding.
    """

    source: BiasedLayer
    activation: Node
    limit: Node | None
    bound: Node | None
    takers: tuple[BiasedLayer, ...]

    @property
    def most(self) -> Array:
        """Largest movable amounts that keep all bounds at or above zero; shape [channels]."""
        if self.bound is not None:
            return self.bound.attr_tensor("value").array().reshape(-1).astype(np.float64)
        most = _RELU6_BOUND if self.activation.op == "Relu6" else np.inf
        return np.full(self.source.channels, most)


def pads_nothing(layer: Node, weights: Node) -> bool:
    """Return whether a layer adds no zero padding to its input."""
    if layer.op not in _TAKING:
        return False
    if layer.op == "MatMul":
        return not layer.attr_bool("transpose_a", False)
    window = weights.attr_tensor("value").shape[:-2]
    padding = layer.attr_str("padding")
    return padding == "VALID" or (padding == "SAME" and all(size == 1 for size in window))


def find_absorptions(biased: Biased, protected: Collection[str]) -> list[Absorption]:
    """Return the layers of a graph with biases that can be moved.

    Args:
        protected: names of nodes that are fed or fetched; their tensors must not change.
    """
    takers = {layer.layer.name: layer for layer in biased.layers}
    candidates = (_absorption(biased.graph, layer, takers, protected) for layer in biased.layers)
    return [absorption for absorption in candidates if absorption is not None]


def _absorption(
    graph: Graph, source: BiasedLayer, takers: Mapping[str, BiasedLayer], protected: Collection[str]
) -> Absorption | None:
    activation = _only_user(graph, source.add, protected)
    if activation is None or activation.op not in _ACTIVATIONS or activation.name in protected:
        return None
    limit, bound = None, None
    after = _only_user(graph, activation, protected)
    if activation.op == "Relu" and after is not None and after.op == "Minimum":
        limit, bound = after, _bound(graph, activation, after, source, protected)
        if bound is None or limit.name in protected:
            return None
    end = limit or activation
    users = graph.consumers.get(end.name, [])
    layers = tuple(takers[n.name] for n in users if n.name in takers)
    if not users or len(layers) < len(users):
        return None
    if not all(_takes(layer, Ref(end.name), source) for layer in layers):
        return None
    return Absorption(source, activation, limit, bound, layers)


def _only_user(graph: Graph, node: Node, protected: Collection[str]) -> Node | None:
    users = graph.consumers.get(node.name, ())
    return users[0] if len(users) == 1 and node.name not in protected else None


def _bound(
    graph: Graph, activation: Node, limit: Node, source: BiasedLayer, protected: Collection[str]
) -> Node | None:
    """Return the constant with one bound per channel, or None."""
    refs = limit.data_inputs
    if len(refs) != 2 or refs.count(Ref(activation.name)) != 1:
        return None
    other = refs[1 - refs.index(Ref(activation.name))]
    bound = own_constant(graph, other, limit, protected)
    if bound is None or bound.attr_tensor("value").dtype is not DType.FLOAT:
        return None
    shape = bound.attr_tensor("value").shape
    channels = source.channels
    fits = int(np.prod(shape)) == channels and shape[source.axis :][:1] == (channels,)
    return bound if fits else None


def _takes(layer: BiasedLayer, tensor: Ref, source: BiasedLayer) -> bool:
    """Return whether a layer takes a tensor as its data input only, with matching channels."""
    node, shape = layer.layer, layer.weights.attr_tensor("value").shape
    refs = node.data_inputs
    places = [i for i, r in enumerate(refs) if r == tensor]
    same = output_axis(node) == source.axis and shape[input_axis(node)] == source.channels
    return places == [data_input(node)] and same and pads_nothing(node, layer.weights)


def absorbed(graph: Graph, moves: Sequence[tuple[Absorption, Array]]) -> Graph:
    """Return the graph with the given amounts moved between biases.

    Args:
        moves: the absorptions with the amount per channel; float64 of shape [channels].
    """
    shifts: dict[str, Array] = {}
    biases: dict[str, Node] = {}
    new: dict[str, list[Node]] = {}
    names = FreshNames(graph.by_name)
    for absorption, amounts in moves:
        add = absorption.source.add
        new[add.name] = [changed_statistics(add, 1.0, -amounts)]
        changes = [(absorption.source.bias, -amounts)]
        changes += [
            (t.bias, through(t.layer, t.weights.attr_tensor("value").array(), amounts))
            for t in absorption.takers
        ]
        if absorption.bound is not None:
            changes.append((absorption.bound, -amounts))
        elif absorption.activation.op == "Relu6":
            node, axis = absorption.activation, absorption.source.axis
            bound = (_RELU6_BOUND - amounts).reshape(-1, *[1] * (-axis - 1))
            limit = Tensor.packed(bound.astype(np.float32))
            new[node.name] = bounded(node, limit, names)
        for bias, by in changes:
            biases[bias.name] = bias
            shifts[bias.name] = shifts.get(bias.name, 0.0) + by
    moved = replaced(graph, {name: shifted(bias, shifts[name]) for name, bias in biases.items()})
    return moved.with_nodes(n for old in moved for n in new.get(old.name, (old,)))

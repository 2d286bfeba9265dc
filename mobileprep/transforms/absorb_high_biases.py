"""Moves biases that keep channels far above zero into the layers behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
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
from mobileprep.transforms.rewriting.biases import (
    Biased,
    BiasedLayer,
    has_bias,
    replaced,
    shifted,
    with_biases,
)
from mobileprep.transforms.rewriting.layers import (
    data_input,
    input_axis,
    output_axis,
    own_constant,
    through,
)

_BEFORE: Final = frozenset({"Relu", "Relu6", "Minimum"})
_LOW: Final = "no channel stays above zero"


@transform("absorb_high_biases")
class AbsorbHighBiases(Transform, frozen=True):
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
        """Move what can be moved."""
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


_RELU6_BOUND: Final = 6.0
_TAKING: Final = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "Conv3D"})
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})


class Absorption(Struct, frozen=True):
    """A layer from whose bias something can be moved.

    Args:
        source: the layer.
        activation: the Relu or Relu6 behind its bias.
        limit: the Minimum behind that, if there is one.
        bound: its constant, one number for each channel.
        takers: all that takes the activation: layers that pad nothing.
    """

    source: BiasedLayer
    activation: Node
    limit: Node | None
    bound: Node | None
    takers: tuple[BiasedLayer, ...]

    @property
    def most(self) -> Array:
        """The most that can be moved without a bound below zero; shape [channels]."""
        if self.bound is not None:
            return self.bound.attr_tensor("value").array().reshape(-1).astype(np.float64)
        most = _RELU6_BOUND if self.activation.op == "Relu6" else np.inf
        return np.full(self.source.channels, most)


def pads_nothing(layer: Node, weights: Node) -> bool:
    """Whether each output of a layer is made of as many elements: no border of zeros is added."""
    if layer.op not in _TAKING:
        return False
    if layer.op == "MatMul":
        return not layer.attr_bool("transpose_a", False)
    window = weights.attr_tensor("value").shape[:-2]
    padding = layer.attr_str("padding")
    return padding == "VALID" or (padding == "SAME" and all(size == 1 for size in window))


def find_absorptions(biased: Biased, protected: Collection[str]) -> list[Absorption]:
    """The layers of a graph from whose biases something can be moved.

    Args:
        protected: names of nodes that are fed or fetched: their tensors stay as they are.
    """
    takers = {layer.layer.name: layer for layer in biased.layers}
    found = (_absorption(biased.graph, layer, takers, protected) for layer in biased.layers)
    return [absorption for absorption in found if absorption is not None]


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
    """The constant that bounds each channel; None where it does not."""
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
    """Whether a layer takes a tensor as its data alone, channel by channel."""
    node, shape = layer.layer, layer.weights.attr_tensor("value").shape
    refs = node.data_inputs
    places = [i for i, r in enumerate(refs) if r == tensor]
    same = output_axis(node) == source.axis and shape[input_axis(node)] == source.channels
    return places == [data_input(node)] and same and pads_nothing(node, layer.weights)


def absorbed(graph: Graph, moves: Sequence[tuple[Absorption, Array]]) -> Graph:
    """The graph with part of some biases moved.

    Args:
        moves: for each layer how much of each channel; float64 of shape [channels].
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
            bound = _RELU6_BOUND - amounts
            new[absorption.activation.name] = _bounded(absorption, bound, names)
        for bias, by in changes:
            biases[bias.name] = bias
            shifts[bias.name] = shifts.get(bias.name, 0.0) + by
    moved = replaced(graph, {name: shifted(bias, shifts[name]) for name, bias in biases.items()})
    return moved.with_nodes(n for old in moved for n in new.get(old.name, (old,)))


def _bounded(absorption: Absorption, bound: Array, names: FreshNames) -> list[Node]:
    """A Relu6 as Relu and the lesser of that and a bound for each channel."""
    node = absorption.activation
    values = bound.reshape(-1, *[1] * (-absorption.source.axis - 1)).astype(np.float32)
    limit = constant(names.name(f"{node.name}/bound"), Tensor.packed(values), node.device)
    relu = replace(node, name=names.name(f"{node.name}/relu"), op="Relu")
    inputs = (Ref(relu.name), Ref(limit.name))
    attrs = {"T": attr.dtype(DType.FLOAT)}
    return [relu, limit, Node(node.name, "Minimum", inputs, node.device, attrs)]

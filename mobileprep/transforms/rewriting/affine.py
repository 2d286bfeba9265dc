"""Merge ops that scale, shift, or pad a layer's output into its weights and one bias."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import without_idle_controls
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import BATCH_NORMS, SCALINGS
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.shape_inference import shapes_if_valid
from mobileprep.transforms.rewriting.batch_norms import (
    epsilon,
    is_inference,
    statistics,
    uses_gamma,
)
from mobileprep.transforms.rewriting.constants import ConstantExpressions, lazy_shapes
from mobileprep.transforms.rewriting.layers import (
    LAYERS,
    PRODUCTS_OF_MATRICES,
    after_squeeze,
    along_axis,
    bias_add,
    channel_axis,
    layer_kind,
    layout,
    output_axis,
    output_channels,
    scaled,
)

SUMS: Final = frozenset({"Add", "AddV2", "Sub", "BiasAdd"})
MISFIT: Final = "its statistics have not as many channels as the weights"


class Affine(Struct, frozen=True):
    """``scale * x + offset``; float64 of shape [channels], or None for one and for zero."""

    scale: Array | None = None
    offset: Array | None = None

    def then(self, after: Affine) -> Affine:
        """Return this map followed by another one."""
        if after.scale is None:
            return Affine(self.scale, _sum(self.offset, after.offset))
        scale = after.scale if self.scale is None else self.scale * after.scale
        moved = None if self.offset is None else self.offset * after.scale
        return Affine(scale, _sum(moved, after.offset))

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite."""
        return all(a is None or bool(np.isfinite(a).all()) for a in (self.scale, self.offset))


class Channels(Struct, frozen=True):
    """The channels of a tensor that is scaled and shifted.

    Args:
        layer: the layer that outputs them.
        count: the number of channels.
        constants: the graph's constants.
        axis: the dimension of the channels, counted from the last: -1.
        rank: the rank of the tensor; None if unknown.
    """

    layer: Node
    count: int
    constants: ConstantExpressions
    axis: int
    rank: int | None

    @classmethod
    def of(cls, layer: Node, count: int, constants: ConstantExpressions) -> Channels:
        """Return the channels of a layer's own output."""
        return cls(layer, count, constants, output_axis(layer), layer_kind(layer).rank)

    def read(self, node: Node, source: Ref) -> Affine | str:
        """Return a node's map of each channel, or why it has none; empty for unrelated nodes."""
        if node.op == "Identity":
            return Affine()
        if node.op in BATCH_NORMS:
            return self._norm(node, source)
        if node.op == "BiasAdd" and not self._runs_along(node):
            return "a node differs in data_format"
        if (node.op not in SUMS and node.op not in SCALINGS) or len(node.data_inputs) != 2:
            return ""
        return self._arithmetic(node, source)

    def _arithmetic(self, node: Node, source: Ref) -> Affine | str:
        first, second = node.data_inputs
        constant = self.constants.value(second if first == source else first)
        if constant is None or first == second:
            return ""
        other = self._vector(constant)
        if other is None:
            return "its constant is not one number for each channel"
        if node.op == "Sub":
            minus = np.full(self.count, -1.0)
            return Affine(None, -other) if first == source else Affine(minus, other)
        if node.op in SUMS:
            return Affine(None, other)
        if node.op == "Mul":
            return Affine(other)
        if first != source:
            return ""
        with np.errstate(divide="ignore"):
            return Affine(1 / other)

    def _norm(self, node: Node, source: Ref) -> Affine | str:
        if node.data_inputs[0] != source:
            return "the output of the layer is a statistic"
        if is_inference(node) and not self._runs_along(node):
            return "convolution and batch normalization differ in data_format"
        return norm_affine(node, self.constants, self.count)

    def _vector(self, value: Tensor) -> Array | None:
        if not value.dtype.is_floating:
            return None
        values = along_axis(value.array(), self.count, self.axis, self.rank)
        return None if values is None else values.astype(np.float64)

    def _runs_along(self, node: Node) -> bool:
        """Return whether a node expects the channels in the tensor's channel dimension."""
        last = channel_axis(node) == len(layout(node)) - 1
        return last == (self.axis == -1)


def norm_affine(norm: Node, constants: ConstantExpressions, count: int | None) -> Affine | str:
    """Return a batch normalization's map of each channel, or why it is not constant.

    Args:
        count: the required number of channels; None for any.
    """
    if not is_inference(norm):
        return "the batch normalization uses the batch's statistics (is_training)"
    values = [constants.value(r) for r in norm.data_inputs[1:]]
    tensors = [v for v in values if v is not None]
    if len(tensors) != 4:
        return "its statistics are not constant"
    stats = statistics(norm, tensors)
    fits = count is None or stats.mean.size == count
    if stats.misshapen() or not fits or not stats.all_float:
        return MISFIT
    mean, variance, beta, gamma = (
        t.array().astype(np.float64) for t in (stats.mean, stats.variance, stats.beta, stats.gamma)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / np.sqrt(variance + epsilon(norm))
    if uses_gamma(norm):
        scale = scale * gamma
    return Affine(scale, beta - mean * scale)


def _sum(first: Array | None, second: Array | None) -> Array | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


class AffineStep(Struct, frozen=True):
    """A node after a layer, and its map of each channel; None if it only moves channels."""

    node: Node
    affine: Affine | None


class Whole(Struct, frozen=True):
    """Several steps combined into one map.

    Args:
        affine: the map, to apply to the output of the layer.
        moves: the steps that move the channels or pad, to apply after the map, in order.
        border: the resulting padding value; None for mirror padding and without padding.
    """

    affine: Affine
    moves: tuple[Node, ...] = ()
    border: float | None = None


def awaited(steps: Sequence[AffineStep], gone: Collection[str]) -> tuple[Ref, ...]:
    """Return the control inputs of some steps, without those from removed nodes."""
    controls = dict.fromkeys(r for s in steps for r in s.node.control_inputs)
    return tuple(r for r in controls if r.node not in gone)


class AffineChains:
    """Search along chains in a graph, which records why each one ends.

    Args:
        graph: the graph.
        constants: its constants.
        protected: names of nodes that must not be removed.
    """

    def __init__(
        self, graph: Graph, constants: ConstantExpressions, protected: Collection[str]
    ) -> None:
        self._graph = graph
        self._constants = constants
        self._protected = protected
        self.reasons: dict[str, str] = {}
        self.shape_of = lazy_shapes(lambda: shapes_if_valid(graph))

    def after(self, channels: Channels) -> list[AffineStep]:
        """Return the steps after a layer, up to the first result with other consumers."""
        current = Ref(channels.layer.name)
        return self.along(channels, current, self._only_user(current, channels))

    def along(self, channels: Channels, current: Ref, node: Node | None) -> list[AffineStep]:
        """Return the steps from a node on, up to the first result with other consumers."""
        steps: list[AffineStep] = []
        while node is not None:
            read = self._read(node, current, channels, steps)
            if isinstance(read, str):
                self.note(node, read)
                break
            step, channels = read
            steps.append(step)
            current = Ref(node.name)
            node = self._only_user(current, channels)
        return steps

    def note(self, node: Node, reason: str) -> None:
        """Record the reason why a node was not merged, if there is one."""
        if reason:
            self.reasons[node.name] = reason

    def whole(self, steps: Sequence[AffineStep]) -> Whole | str:
        """Combine the steps into one map followed by moves, or return why this is not possible."""
        before, after, pad = Affine(), Affine(), None
        for step in steps:
            if step.affine is None:
                pad = step.node if step.node.op in PADS else pad
            elif pad is None:
                before = before.then(step.affine)
            else:
                after = after.then(step.affine)
        total = before.then(after)
        if not total.is_finite:
            return "its statistics do not come to numbers"
        moves = tuple(s.node for s in steps if s.affine is None)
        if pad is None or pad.op == "MirrorPad":
            return Whole(total, moves)
        border = self._border(pad, after)
        if border is None:
            return "the border that is padded before it would differ between channels"
        return Whole(total, moves, border)

    def _only_user(self, current: Ref, channels: Channels) -> Node | None:
        consumers = self._graph.consumers.get(current.node, ())
        users = [n for n in consumers if current in n.inputs]
        if len(consumers) == 1 and users and current.node not in self._protected:
            return users[0]
        for user in users:
            if isinstance(channels.read(user, current), Affine):
                self.note(user, "its input has other consumers")
        return None

    def _read(
        self, node: Node, source: Ref, channels: Channels, steps: Sequence[AffineStep]
    ) -> tuple[AffineStep, Channels] | str:
        if self._gives_statistics(node):
            return "the statistics that it puts out are used"
        read = channels.read(node, source)
        if isinstance(read, Affine):
            return AffineStep(node, read), channels
        if read:
            return read
        if node.op in PADS and any(s.node.op in PADS for s in steps):
            return "there is a second padding"
        where = moved(node, source, channels, self.shape_of)
        return where if isinstance(where, str) else (AffineStep(node, None), where)

    def _gives_statistics(self, node: Node) -> bool:
        """Return whether an output of a node other than the first is used."""
        consumers = self._graph.consumers.get(node.name, ())
        return any(r.node == node.name and r.index > 0 for c in consumers for r in c.inputs)

    def _border(self, pad: Node, after: Affine) -> float | None:
        """Return the padding value for an image that is already scaled and shifted."""
        value = 0.0
        if pad.op == "PadV2":
            fill = self._constants.value(pad.data_inputs[2])
            if fill is None or fill.size != 1:
                return None
            value = float(fill.array().reshape(-1)[0])
        scale = np.ones(1) if after.scale is None else after.scale
        offset = np.zeros(1) if after.offset is None else after.offset
        borders = np.unique(value * scale + offset)
        return float(borders[0]) if borders.size == 1 else None


PADS: Final = frozenset({"Pad", "PadV2", "MirrorPad"})


_MOVES: Final = frozenset({"Squeeze", "Reshape", "BatchToSpaceND"})


ShapeOf = Callable[[Ref], TensorShape]
"""Function that returns the statically known shape of a tensor."""


def moved(node: Node, source: Ref, channels: Channels, shape_of: ShapeOf) -> Channels | str:
    """Return the channels after a node that computes nothing, or why scales cannot move before it.

    Args:
        shape_of: returns the shape of a tensor.

    Returns:
        The channels in their new position, or the reason, which is empty for other nodes.
    """
    if node.data_inputs.count(source) > 1 or node.data_inputs[0] != source:
        return ""
    if node.op in PADS:
        return _padded(node, channels)
    if node.op not in _MOVES:
        return ""
    if node.op == "Squeeze":
        place = after_squeeze(node, channels.axis, channels.rank)
        if isinstance(place, str):
            return place
        return replace(channels, axis=place[0], rank=place[1])
    if channels.axis != -1:
        return f"{node.op} moves channels"
    if node.op == "Reshape":
        return _reshaped(node, channels, shape_of)
    return _from_batch(node, channels)


def _padded(pad: Node, channels: Channels) -> Channels | str:
    if len(pad.data_inputs) != (3 if pad.op == "PadV2" else 2):
        return "it has not the inputs that a padding has"
    if channels.layer.op in PRODUCTS_OF_MATRICES:
        return "a matrix is padded"
    paddings = channels.constants.value(pad.data_inputs[1])
    if paddings is None or paddings.shape != (channels.rank, 2):
        return "the paddings are not constant"
    return "the channels are padded" if paddings.array()[channels.axis].any() else channels


def _reshaped(node: Node, channels: Channels, shape_of: ShapeOf) -> Channels | str:
    shape = shape_of(Ref(node.name))
    if not shape or shape[-1] != channels.count:
        return "Reshape divides the channels in another way"
    return replace(channels, rank=len(shape))


def _from_batch(node: Node, channels: Channels) -> Channels | str:
    if len(node.data_inputs) != 3:
        return "BatchToSpaceND has not the inputs that it takes"
    block = channels.constants.value(node.data_inputs[1])
    if block is None or channels.rank is None or block.size > channels.rank - 2:
        return "BatchToSpaceND moves channels"
    return channels


Cut = Callable[[Sequence[AffineStep]], int]
"""Function that returns how many of the steps after a layer to merge."""


class Merged(Struct, frozen=True):
    """A graph after merging.

    Args:
        graph: the graph.
        layers: number of layers with merged steps.
        reasons: reasons why nodes were not merged, by node name.
        behind: names of nodes that their layer absorbed, or could absorb.
    """

    graph: Graph
    layers: int
    reasons: dict[str, str]
    behind: frozenset[str]


def merge_chains(graph: Graph, cut: Cut, protected: Collection[str]) -> Merged:
    """Merge the steps after every layer that ``cut`` selects.

    Args:
        cut: returns the number of steps to merge; the last of them must scale or shift.
    """
    ready = without_idle_controls(graph, protected)
    merging = _Merging(ready, protected)
    for layer in ready:
        if layer.op in LAYERS:
            merging.merge(layer, cut)
    done = merging.result()
    return done if done.layers else replace(done, graph=graph)


class _Weights(Struct, frozen=True):
    """A layer's weights, and the node that outputs them."""

    values: Tensor
    node: Node


class _Merging:
    """Collector of replacements by node name."""

    def __init__(self, graph: Graph, protected: Collection[str]) -> None:
        self._graph = graph
        self._protected = protected
        self._constants = ConstantExpressions(graph)
        self._chains = AffineChains(graph, self._constants, protected)
        self._names = FreshNames(graph.by_name)
        self._new: dict[str, list[Node]] = {}
        self._lost: list[str] = []
        self._behind: set[str] = set()
        self._layers = 0

    def result(self) -> Merged:
        if not self._layers:
            return Merged(self._graph, 0, self._chains.reasons, frozenset(self._behind))
        now = self._constants.replaced(self._new, self._lost, self._protected)
        return Merged(now, self._layers, self._chains.reasons, frozenset(self._behind))

    def merge(self, layer: Node, cut: Cut) -> None:
        """Merge the steps after a layer, or record why they cannot be merged."""
        refs = layer.data_inputs
        values = self._constants.value(refs[1]) if len(refs) > 1 else None
        count = None if values is None else output_channels(layer, values)
        if values is None or count is None or not values.dtype.is_floating:
            return
        weights = _Weights(values, self._graph[refs[1].node])
        steps = self._chains.after(Channels.of(layer, count, self._constants))
        if not self._merged(layer, weights, steps, cut):
            # The steps after a padding may prevent merging those before it.
            self._merged(layer, weights, _before_padding(steps), cut)

    def _merged(
        self, layer: Node, weights: _Weights, steps: Sequence[AffineStep], cut: Cut
    ) -> bool:
        """Return whether the steps are done: merged, or with nothing to merge."""
        part = steps[: cut(steps)]
        whole = self._chains.whole(part)
        if isinstance(whole, str):
            self._chains.note(part[-1].node, whole)
            return False
        self._behind.update(s.node.name for s in steps)
        if part:
            self._replace(layer, weights, part, whole)
        return True

    def _is_own(self, weights: str, layer: Node) -> bool:
        """Return whether only this layer uses the weights; control dependencies do not count."""
        users = (n for n in self._graph.consumers[weights] if n is not layer)
        shared = any(r.node == weights for n in users for r in n.data_inputs)
        uses = sum(r.node == weights for r in layer.data_inputs)
        return uses == 1 and not shared and weights not in self._protected

    def _replace(
        self, layer: Node, weights: _Weights, steps: Sequence[AffineStep], whole: Whole
    ) -> None:
        self._layers += 1
        for step in steps:
            self._new[step.node.name] = []
            self._lost += [r.node for r in step.node.inputs]
        before: list[Node] = []
        if whole.affine.scale is not None:
            layer, before = self._scaled(layer, weights, whole.affine.scale)
        final = steps[-1].node
        if whole.affine.offset is None and not whole.moves:
            self._new[layer.name] = []
            nodes = [*before, replace(layer, name=final.name)]
        else:
            self._new[layer.name] = [*before, layer]
            nodes = self._bias_and_moves(layer, weights, final.name, whole)
        last = nodes.pop()
        stay = {n.name for n in (*self._new[layer.name], *nodes)}
        gone = {layer.name, *(s.node.name for s in steps)} - stay
        more = tuple(r for r in awaited(steps, gone) if r not in last.inputs)
        self._new[final.name] = [*nodes, replace(last, inputs=last.inputs + more)]

    def _scaled(self, layer: Node, weights: _Weights, scale: Array) -> tuple[Node, list[Node]]:
        """Return the layer with scaled weights, and their constant if other nodes share them."""
        old = weights.node
        product = scaled(layer, weights.values, scale.astype(weights.values.dtype.numpy))
        if self._is_own(old.name, layer):
            self._new[old.name] = [constant(old.name, product, old.device, old.control_inputs)]
            self._lost += [r.node for r in old.data_inputs]
            return layer, []
        name = self._names.name(f"{layer.name}/weights")
        inputs = (layer.inputs[0], Ref(name), *layer.inputs[2:])
        self._lost.append(old.name)
        own = constant(name, product, old.device, old.control_inputs)
        return replace(layer, inputs=inputs), [own]

    def _bias_and_moves(
        self, layer: Node, weights: _Weights, name: str, whole: Whole
    ) -> list[Node]:
        """Return the bias and moves after a layer; the last node has the given name."""
        nodes: list[Node] = []
        moves = whole.moves
        source = layer.name
        if whole.affine.offset is not None:
            source = self._names.name(f"{layer.name}/bias_add") if moves else name
            bias = self._constant(f"{layer.name}/bias", weights, whole.affine.offset)
            nodes += [bias, bias_add(source, layer, bias)]
        for i, move in enumerate(moves, start=1):
            again = replace(move, inputs=(Ref(source), *move.data_inputs[1:]))
            if move.op in ("Pad", "PadV2"):
                again = self._padded(again, weights, whole.border or 0.0, nodes)
            source = move.name if i < len(moves) else name
            nodes.append(replace(again, name=source))
        return nodes

    def _padded(self, pad: Node, weights: _Weights, border: float, nodes: list[Node]) -> Node:
        """Return the padding with another value, and append its constant to ``nodes``."""
        if not border:
            return replace(pad, op="Pad", inputs=pad.inputs[:2])
        value = self._constant(f"{pad.name}/border", weights, border)
        nodes.append(value)
        return replace(pad, op="PadV2", inputs=(*pad.inputs[:2], Ref(value.name)))

    def _constant(self, name: str, weights: _Weights, values: Array | float) -> Node:
        """Create a constant of the weights' type, in the weights' loop."""
        dtype = weights.values.dtype
        tensor = Tensor.packed(np.asarray(values).astype(dtype.numpy), dtype)
        return constant(self._names.name(name), tensor, inputs=weights.node.control_inputs)


def _before_padding(steps: Sequence[AffineStep]) -> Sequence[AffineStep]:
    first = next((i for i, s in enumerate(steps) if s.node.op in PADS), 0)
    return steps[:first]

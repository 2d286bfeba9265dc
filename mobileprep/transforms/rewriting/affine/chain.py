"""Chains of nodes that scale, shift, or pad a layer's output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.ops.shape_inference import Shapes, shape_of, shapes_if_valid
from mobileprep.transforms.rewriting.affine.channels import Affine, Channels
from mobileprep.transforms.rewriting.clipping import ConstantExpressions
from mobileprep.transforms.rewriting.layers import PRODUCTS_OF_MATRICES


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

    def shape_of(self, ref: Ref) -> TensorShape:
        """Return the statically known shape of a tensor."""
        return shape_of(self._shapes, ref)

    @cached_property
    def _shapes(self) -> Mapping[str, Shapes]:
        return shapes_if_valid(self._graph)

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
        return _squeezed(node, channels)
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


def _squeezed(node: Node, channels: Channels) -> Channels | str:
    squeeze_dims = node.attrs.get("squeeze_dims")
    dims = () if squeeze_dims is None else squeeze_dims.value
    if not dims or channels.rank is None:
        return "Squeeze does not record which dimensions it removes"
    dropped = {d - channels.rank if d >= 0 else d for d in dims}
    if channels.axis in dropped:
        return "Squeeze drops the channels"
    behind = sum(d > channels.axis for d in dropped)
    return replace(channels, axis=channels.axis + behind, rank=channels.rank - len(dropped))


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

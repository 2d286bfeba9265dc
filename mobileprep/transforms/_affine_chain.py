"""The nodes that scale, shift or pad a layer's output, one after another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.transforms._affine import Affine, Channels
from mobileprep.transforms._constant_expressions import ConstantExpressions
from mobileprep.transforms._layers import channel_axis, layer_kind

_PADS: Final = frozenset({"Pad", "PadV2", "MirrorPad"})


@dataclass(frozen=True)
class Step:
    """A node after a layer, and what it does to each channel; None for a padding."""

    node: Node
    affine: Affine | None


@dataclass(frozen=True)
class Whole:
    """Several steps as one map.

    Args:
        affine: the map, to be applied to what the layer puts out.
        pad: the padding among the steps, to be applied after the map.
        border: the number that it pads with then; None where it mirrors.
    """

    affine: Affine
    pad: Node | None = None
    border: float | None = None


class Chains:
    """Walks along chains of a graph, and notes why a walk ended at a node.

    Args:
        graph: the graph.
        constants: its constants.
        protected: names of nodes that must survive.
    """

    def __init__(
        self, graph: Graph, constants: ConstantExpressions, protected: Collection[str]
    ) -> None:
        self._graph = graph
        self._constants = constants
        self._protected = protected
        self.reasons: dict[str, str] = {}

    def after(self, channels: Channels) -> list[Step]:
        """The steps after a layer, as far as nothing else sees what lies between them."""
        steps: list[Step] = []
        current = Ref(channels.layer.name)
        while (node := self._only_user(current)) is not None:
            read = self._read(node, current, channels, steps)
            if isinstance(read, str):
                self.note(node, read)
                break
            steps.append(read)
            current = Ref(node.name)
        return steps

    def note(self, node: Node, reason: str) -> None:
        """Keep the reason why a node is left, if there is one."""
        if reason:
            self.reasons[node.name] = reason

    def whole(self, steps: Sequence[Step]) -> Whole | str:
        """The steps as one map with at most one padding after it, or why there is none."""
        before, after, pad = Affine(), Affine(), None
        for step in steps:
            if step.affine is None:
                pad = step.node
            elif pad is None:
                before = before.then(step.affine)
            else:
                after = after.then(step.affine)
        total = before.then(after)
        if not total.is_finite:
            return "its statistics do not come to numbers"
        if pad is None or pad.op == "MirrorPad":
            return Whole(total, pad)
        border = self._border(pad, after)
        if border is None:
            return "the border that is padded before it would differ between channels"
        return Whole(total, pad, border)

    def _only_user(self, current: Ref) -> Node | None:
        consumers = self._graph.consumers.get(current.node, ())
        users = [n for n in consumers if current in n.inputs]
        if len(consumers) == 1 and users and current.node not in self._protected:
            return users[0]
        for user in users:
            self.note(user, "what comes before it is used elsewhere")
        return None

    def _read(
        self, node: Node, source: Ref, channels: Channels, steps: Sequence[Step]
    ) -> Step | str:
        consumers = self._graph.consumers.get(node.name, ())
        if any(r.node == node.name and r.index > 0 for c in consumers for r in c.inputs):
            return "the statistics that it puts out are used"
        if node.op not in _PADS:
            read = channels.read(node, source)
            return read if isinstance(read, str) else Step(node, read)
        if node.data_inputs.count(source) > 1 or node.data_inputs[0] != source:
            return ""
        if len(node.data_inputs) != (3 if node.op == "PadV2" else 2):
            return "it has not the inputs that a padding has"
        reason = self._reason_not_to_pass(node, channels, steps)
        return reason or Step(node, None)

    def _reason_not_to_pass(self, pad: Node, channels: Channels, steps: Sequence[Step]) -> str:
        layer = channels.layer
        if any(s.affine is None for s in steps) or layer.op == "MatMul":
            return "there is a second padding"
        paddings = self._constants.value(pad.data_inputs[1])
        if paddings is None or paddings.shape != (layer_kind(layer).rank, 2):
            return "the paddings are not constant"
        return "the channels are padded" if paddings.array()[channel_axis(layer)].any() else ""

    def _border(self, pad: Node, after: Affine) -> float | None:
        """What a padding has to put around an image that is already scaled and shifted."""
        value = 0.0
        if pad.op == "PadV2":
            given = self._constants.value(pad.data_inputs[2])
            if given is None or given.size != 1:
                return None
            value = float(given.array().reshape(-1)[0])
        scale = np.ones(1) if after.scale is None else after.scale
        offset = np.zeros(1) if after.offset is None else after.offset
        borders = np.unique(value * scale + offset)
        return float(borders[0]) if borders.size == 1 else None

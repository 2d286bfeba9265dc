"""Fuse MirrorPad into the following convolution."""

from __future__ import annotations

from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.layers import faults, fuse, fused_node

_PATTERN: Final = op(
    "Conv2D",
    op("MirrorPad", op("*", label="source"), op("*", label="paddings"), label="pad"),
    op("*", label="weights"),
    label="conv",
)


@transform("fuse_pad_and_conv")
class FusePadAndConv(Transform, frozen=True):
    """Replace MirrorPad and Conv2D with FusedPadConv2D, which needs no padded copy of its input.

    Source: ``fuse_pad_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Fuses MirrorPad into the Conv2D after it, which then needs no padded copy of its input."
    )
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        done = fuse(graph, context.protected, _PATTERN, _fused, tf115=context.tf115)
        return Result.of(done, graph, context, faults(done))


def _fused(match: Match) -> list[Node]:
    conv, pad = match["conv"], match["pad"]
    inputs = (*pad.inputs[:2], conv.inputs[1])
    node = fused_node(match, "FusedPadConv2D", inputs, mode=pad.attribute("mode"))
    return [match["weights"], match["source"], match["paddings"], node]

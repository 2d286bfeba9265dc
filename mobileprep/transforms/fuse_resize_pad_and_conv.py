"""Fuse ResizeBilinear and MirrorPad into the following convolution."""

from __future__ import annotations

from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.layers import align_corners, faults, fuse, fused_node

_PATTERN: Final = op(
    "Conv2D",
    op(
        "MirrorPad",
        op("ResizeBilinear", label="resize"),
        op("*", label="paddings"),
        label="pad",
    ),
    op("*", label="weights"),
    label="conv",
)


@transform("fuse_resize_pad_and_conv")
class FuseResizePadAndConv(Transform, frozen=True):
    """Replace ResizeBilinear, MirrorPad, and Conv2D with FusedResizeAndPadConv2D.

    Source: ``fuse_resize_pad_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Fuses ResizeBilinear and MirrorPad into the Conv2D after them."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        done = fuse(graph, context.protected, _PATTERN, _fused, tf115=context.tf115)
        return Result.of(done, graph, context, faults(done))


def _fused(match: Match) -> list[Node]:
    conv, pad, resize = match["conv"], match["pad"], match["resize"]
    inputs = (*resize.inputs[:2], pad.inputs[1], conv.inputs[1])
    node = fused_node(
        match,
        "FusedResizeAndPadConv2D",
        inputs,
        resize_align_corners=align_corners(resize),
        mode=pad.attribute("mode"),
    )
    return [match["weights"], match["paddings"], node]

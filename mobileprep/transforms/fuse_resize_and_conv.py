"""Fuse ResizeBilinear into the following convolution."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.rewriting.layers import align_corners, faults, fuse, fused_node

_PATTERN: Final = op(
    "Conv2D", op("ResizeBilinear", label="resize"), op("*", label="weights"), label="conv"
)
_NO_PADDING: Final = Tensor.packed(np.zeros((4, 2), np.int32))


@transform("fuse_resize_and_conv")
class FuseResizeAndConv(Transform, frozen=True):
    """Replace ResizeBilinear and Conv2D with FusedResizeAndPadConv2D and zero-size padding.

    Source: ``fuse_resize_and_conv`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Fuses ResizeBilinear into the Conv2D after it."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        done = fuse(graph, context.protected, _PATTERN, _fused, tf115=context.tf115)
        return Result.of(done, graph, context, faults(done))


def _fused(match: Match) -> list[Node]:
    conv, resize = match["conv"], match["resize"]
    name = unique_name(f"{conv.name}_dummy_paddings", match.graph.by_name)
    paddings = constant(name, _NO_PADDING)
    inputs = (*resize.inputs[:2], Ref(name), conv.inputs[1])
    node = fused_node(
        match,
        "FusedResizeAndPadConv2D",
        inputs,
        resize_align_corners=align_corners(resize),
        mode=attr.string("REFLECT"),
    )
    return [match["weights"], paddings, node]

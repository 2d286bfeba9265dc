"""Convolutions whose filters see a part of the channels each, which TensorFlow 2 allows."""

from __future__ import annotations

from collections.abc import Mapping

from mobileprep.ir.node import Node
from mobileprep.ops.shape_inference import Shapes, shape_of


def has_channel_groups(convolution: Node, shapes: Mapping[str, Shapes]) -> bool:
    """Whether a Conv2D is known to have filters for fewer channels than its images have.

    Args:
        convolution: the node.
        shapes: of all nodes, see ``infer_shapes``.
    """
    if len(convolution.data_inputs) != 2:
        return False
    images, filters = (shape_of(shapes, ref) for ref in convolution.data_inputs)
    if images is None or len(images) != 4 or filters is None or len(filters) != 4:
        return False
    channels = images[1 if convolution.attr_str("data_format", "NHWC") == "NCHW" else 3]
    return -1 not in (channels, filters[2]) and channels != filters[2]

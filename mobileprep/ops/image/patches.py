"""Windows of an image, taken apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.windows import NHWC, make_window, patches, spatial, whole_tile
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import ShapeConflictError, multiply_dims, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.window_shapes import window_places
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("ExtractImagePatches")
def extract_image_patches(node: Node, x: Array) -> Array:
    """The pixels of each window, one after the other along the last axis."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    window = make_window(
        node,
        x.shape[1:3],
        spatial(node.attr_ints("ksizes"), NHWC),
        spatial(node.attr_ints("strides"), NHWC),
        spatial(node.attr_ints("rates"), NHWC),
    )
    positions = window.positions(x.shape[1:3])
    found = patches(x, window, whole_tile(x, window), positions)
    channels = math.prod(spatial(node.attr_ints("ksizes"), NHWC)) * x.shape[3]
    return np.ascontiguousarray(found).reshape(len(x), *positions, channels)


@shape_fn("ExtractImagePatches")
def extract_image_patches_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each window its elements as channels."""
    image, sizes = with_rank(args.shapes[0], 4), args.node.attr_ints("ksizes")
    if len(sizes) != 4:
        message = "4 window sizes are needed"
        raise ShapeConflictError(message)
    rows, columns = window_places(args.node, image, sizes[1:3])
    return [(image[0], rows, columns, multiply_dims(image[3], sizes[1] * sizes[2]))]


flop_rule("ExtractImagePatches")(free)

"""Windows of an image, taken apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.tiles import patches, whole_tile
from mobileprep.numerics.windows import NHWC, make_window, spatial
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import multiply_dims, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.window_shapes import window_count
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
    return np.ascontiguousarray(found).reshape(len(x), *positions, -1)


@shape_fn("ExtractImagePatches")
def extract_image_patches_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each window its elements as channels."""
    shape = with_rank(args.shapes[0], 4)
    sizes, strides = args.node.attr_ints("ksizes"), args.node.attr_ints("strides")
    rates, padding = args.node.attr_ints("rates"), args.node.attr_str("padding")
    wide = [(k - 1) * r + 1 for k, r in zip(sizes, rates, strict=True)]
    space = [window_count(shape[i], wide[i], strides[i], padding, (0, 0)) for i in (1, 2)]
    return [(shape[0], *space, multiply_dims(shape[3], sizes[1] * sizes[2]))]


flop_rule("ExtractImagePatches")(free)

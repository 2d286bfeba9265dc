"""Grey-scale dilation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.windows import NHWC, lowest, make_window, padded_rows, spatial, whole_tile
from mobileprep.ops.arrays import same_type
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.window_shapes import window_places
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.work import STEP, spend

# Operations that a sum and a comparison take.
_COST = 64


@kernel("Dilation2D")
def dilation_2d(node: Node, x: Array, filters: Array) -> Array:
    """The largest sum of a pixel and its filter's element in each window."""
    same_type(node, x, filters)
    if x.ndim != 4 or filters.ndim != 3 or x.shape[-1] != filters.shape[-1]:
        message = "filters [height, width, channels] for an input of as many channels are needed"
        raise ValueError(message)
    window = make_window(
        node,
        x.shape[1:3],
        filters.shape[:2],
        spatial(node.attr_ints("strides"), NHWC),
        spatial(node.attr_ints("rates"), NHWC),
    )
    positions = window.positions(x.shape[1:3])
    each = len(x) * math.prod(positions) * x.shape[-1]
    spend(filters[..., 0].size * (_COST * each + STEP), "the filter")
    source = padded_rows(x, window, whole_tile(x, window), lowest(x))
    out = np.full((len(x), *positions, x.shape[-1]), lowest(x), dtype=x.dtype)
    for i, j in np.ndindex(*filters.shape[:2]):
        rows, columns = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip((i, j), window.dilations, positions, window.strides, strict=True)
        )
        np.maximum(out, source[:, rows, columns] + filters[i, j], out=out)
    return out


@shape_fn("Dilation2D")
def dilation_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window."""
    image, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[1], 3)
    rows, columns = window_places(args.node, image, filters[:2])
    if UNKNOWN not in (rows, columns):
        merge_dim(image[3], filters[2])
    return [(image[0], rows, columns, filters[2])]


@flop_rule("Dilation2D")
def dilation_flops(sizes: Sizes) -> float:
    """An addition and a comparison for each element of the filter, for each output."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:2])

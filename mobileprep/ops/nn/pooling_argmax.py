"""Pooling that also tells where in the image each result was."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import check_bytes
from mobileprep.numerics.windows import (
    NHWC,
    Tile,
    Window,
    lowest,
    make_window,
    padded_rows,
    patches,
    spatial,
    whole_tile,
)
from mobileprep.ops.arrays import numpy_attr
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.pooling import pool_flops
from mobileprep.ops.nn.window_shapes import pooled_shape
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.work import spend

# Operations that an element of a window takes, and the bytes of its value, its place and both.
_COST, _HELD = 512, 24


@kernel("MaxPoolWithArgmax")
def max_pool_with_argmax(node: Node, x: Array) -> tuple[Array, Array]:
    """The largest element of each window, and its place in the flattened image (or batch)."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    size = spatial(node.attr_ints("ksize"), NHWC)
    strides = spatial(node.attr_ints("strides"), NHWC)
    window = make_window(node, x.shape[1:3], size, strides, (1, 1))
    positions = window.positions(x.shape[1:3])
    held = len(x) * math.prod(positions) * math.prod(size) * x.shape[-1]
    spend(_COST * held, "the window")
    check_bytes(_HELD * held, "all that the windows hold")
    numbers = np.arange(x[:1].size, dtype=np.int64).reshape(1, *x.shape[1:])
    if node.attr_bool("include_batch_in_index", False):
        numbers = numbers + np.arange(len(x)).reshape(-1, 1, 1, 1) * x[:1].size
    numbers = np.broadcast_to(numbers, x.shape)
    whole = whole_tile(x, window)
    shape = (len(x), *positions, -1, x.shape[-1])
    values = _windows(padded_rows(x, window, whole, lowest(x)), window, positions).reshape(shape)
    places = _windows(padded_rows(numbers, window, whole, -1), window, positions).reshape(shape)
    # Padding is as low as the lowest element: it must not win against one.
    best = np.argmax(np.where(places >= 0, values, lowest(x)), axis=-2)
    first = np.argmax(places >= 0, axis=-2)
    at = np.where(np.take_along_axis(places, best[..., None, :], -2)[..., 0, :] < 0, first, best)
    kind = numpy_attr(node, "Targmax", DType.INT64)
    found = np.take_along_axis(places, at[..., None, :], axis=-2)[..., 0, :]
    chosen = np.take_along_axis(values, at[..., None, :], axis=-2)[..., 0, :]
    return chosen, found.astype(kind)


@shape_fn("MaxPoolWithArgmax")
def pool_with_argmax_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window, and where each was."""
    return [pooled_shape(args)] * 2


flop_rule("MaxPoolWithArgmax")(pool_flops)


def _windows(source: Array, window: Window, positions: tuple[int, ...]) -> Array:
    bare = Window(window.size, window.strides, window.dilations, ((0, 0),) * len(positions))
    tile = Tile(slice(0, len(source)), slice(0, positions[0]))
    return patches(source, bare, tile, positions)

"""Resizing of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.resizing import (
    Sampling,
    resize_area,
    resize_bicubic,
    resize_bilinear,
    resize_nearest,
)
from mobileprep.ops.arrays import check_allocation, integers
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import with_rank
from mobileprep.ops.image.image_shapes import given_size
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

Resize = Callable[[Array, tuple[int, int], Sampling], Array]

_FLOAT = np.dtype(np.float32)
_METHODS: dict[str, Resize] = {
    "ResizeArea": resize_area,
    "ResizeBicubic": resize_bicubic,
    "ResizeBilinear": resize_bilinear,
    "ResizeNearestNeighbor": resize_nearest,
}


@kernel(*_METHODS)
def resize(node: Node, images: Array, size: Array) -> Array:
    """[batch, *size, channels], float32 unless the nearest pixels are taken.

    The attribute ``align_corners`` is not to be set together with ``half_pixel_centers``.
    """
    nearest = node.op == "ResizeNearestNeighbor"
    sampling = Sampling(
        node.attr_bool("align_corners", False), node.attr_bool("half_pixel_centers", False)
    )
    if sampling.align_corners and sampling.half_pixel:
        message = "align_corners and half_pixel_centers exclude each other"
        raise ValueError(message)
    wanted = _size(images, size, images.dtype if nearest else _FLOAT)
    return _METHODS[node.op](images, wanted, sampling)


@shape_fn(*_METHODS, "ResizeNearestNeighborGrad", "ScaleAndTranslate")
def resize_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width."""
    shape = with_rank(args.shapes[0], 4)
    return [(shape[0], *given_size(args, 1), shape[3])]


flop_rule("ResizeNearestNeighbor")(free)


@flop_rule("ResizeBilinear")
def bilinear_flops(sizes: Sizes) -> float:
    """Three interpolations, each a difference, a product and a sum."""
    return 9 * sizes.made()


@flop_rule("ResizeBicubic")
def bicubic_flops(sizes: Sizes) -> float:
    """Five weighted sums of four elements."""
    return 35 * sizes.made()


@flop_rule("ResizeArea")
def area_flops(sizes: Sizes) -> float:
    """A product and a sum for each element that is covered."""
    return 2 * max(sizes.taken(), sizes.made())


def _size(images: Array, size: Array, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The new height and width, checked before an image of that size is made."""
    wanted = integers(size)
    if images.ndim != 4 or len(wanted) != 2:
        message = "four axes are needed, and a size of two"
        raise ValueError(message)
    height, width = wanted
    if min(height, width, *images.shape[1:3]) < 1:
        message = f"there is no image of {height} x {width} pixels or in {list(images.shape)}"
        raise ValueError(message)
    # Where there are no images, the places of pixels along each axis are worked out all the same.
    batch, channels = max(len(images), 1), max(images.shape[3], 1)
    check_allocation((batch, height, width, channels), dtype)
    return height, width


@shape_fn("ResizeBilinearGrad", "ResizeBicubicGrad", "ScaleAndTranslateGrad")
def resize_gradient_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The original images' shape."""
    return [args.shapes[1]]

"""Kernels that resize images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation, integers
from mobileprep.ops.resampling import (
    Sampling,
    resize_area,
    resize_bicubic,
    resize_bilinear,
    resize_nearest,
)

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
    check_allocation((images.shape[0], height, width, images.shape[3]), dtype)
    return height, width

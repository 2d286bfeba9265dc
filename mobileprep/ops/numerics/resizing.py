"""Resizing of images along their two spatial axes, like TensorFlow's kernels."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array

# Resolution of the table of bicubic weights between two pixels.
_STEPS = 1024
_SHARP, _KEYS = -0.75, -0.5


class Sampling(Struct, frozen=True):
    """The mapping from pixels of a resized image to the source.

    Args:
        align_corners: corner pixels map to corner pixels.
        half_pixel: positions refer to the centers of pixels instead of their corners.

    Source: ``image_resizer_state.h`` of TensorFlow.
    """

    align_corners: bool = False
    half_pixel: bool = False

    @classmethod
    def of(cls, node: Node) -> Sampling:
        """Create the mapping of a node's attributes."""
        centers = node.attr_bool("half_pixel_centers", False)
        return cls(node.attr_bool("align_corners", False), centers)

    def scale(self, extent: int, count: int) -> np.float32:
        """Return the distance, in source pixels, between adjacent ones of ``count`` pixels."""
        between = 1 if self.align_corners and count > 1 else 0
        scale: np.float32 = np.float32(extent - between) / np.float32(count - between)
        return scale

    def positions(self, extent: int, count: int) -> Array:
        """Return the positions of ``count`` pixels among ``extent``, float32, possibly outside."""
        half = np.float32(0.5 if self.half_pixel else 0)
        place = np.arange(count, dtype=np.float32) + half
        positions: Array = place * self.scale(extent, count) - half
        return positions


class Taps(Struct, frozen=True):
    """For each pixel of a line, the source pixels that contribute to it.

    Args:
        indices: [count, taps], of the source.
        weights: [count, taps], float32.
    """

    indices: Array
    weights: Array

    def apply(self, x: Array, axis: int) -> Array:
        """Compute the weighted sums along one axis of a float32 array."""
        shape = [1] * x.ndim
        shape[axis] = len(self.indices)
        out = x.take(self.indices[:, 0], axis) * self.weights[:, 0].reshape(shape)
        for tap in range(1, self.indices.shape[1]):
            out += x.take(self.indices[:, tap], axis) * self.weights[:, tap].reshape(shape)
        return out


def resize_bilinear(x: Array, size: tuple[int, int], sampling: Sampling) -> Array:
    """Resize images by linear interpolation of the four nearest pixels.

    Args:
        x: [batch, height, width, channels] of any real type, height and width positive.
        sampling: the mapping to source pixels.

    Returns:
        float32 [batch, *size, channels].
    """
    if x.shape[1:3] == size:
        return x.astype(np.float32)
    rows, columns = (sampling.positions(n, m) for n, m in zip(x.shape[1:3], size, strict=True))
    first, last, weight = neighbors(rows, x.shape[1])
    # Only the rows that are read need to be resized along the width.
    used, places = np.unique(np.concatenate([first, last]), return_inverse=True)
    places = places.reshape(2, -1)
    left, right, share = neighbors(columns, x.shape[2])
    lines = _between(x.take(used, 1).astype(np.float32, copy=False), left, right, share, 2)
    return _between(lines, places[0], places[1], weight, 1)


def neighbors(positions: Array, extent: int) -> tuple[Array, Array, Array]:
    """Return the pixels on both sides of each position, and the weight of the second."""
    below = np.floor(positions)
    first = np.maximum(below.astype(np.int64), 0)
    last = np.minimum(np.ceil(positions).astype(np.int64), extent - 1)
    return np.minimum(first, extent - 1), np.maximum(last, 0), positions - below


def _between(x: Array, first: Array, last: Array, share: Array, axis: int) -> Array:
    shape = [1] * x.ndim
    shape[axis] = len(share)
    start = x.take(first, axis)
    out = x.take(last, axis)
    out -= start
    out *= share.reshape(shape)
    out += start
    return out


def resize_nearest(x: Array, size: tuple[int, int], sampling: Sampling) -> Array:
    """Resize images to the nearest pixels, of the same type; arguments as ``resize_bilinear``."""
    rows, columns = (
        _nearest(extent, count, sampling) for extent, count in zip(x.shape[1:3], size, strict=True)
    )
    return x.take(rows, 1).take(columns, 2)


def _nearest(extent: int, count: int, sampling: Sampling) -> Array:
    place = np.arange(count, dtype=np.float32)
    if sampling.half_pixel:
        place += np.float32(0.5)
    place *= sampling.scale(extent, count)
    # Round halves up: numpy would round to even.
    positions = np.floor(place + np.float32(0.5)) if sampling.align_corners else np.floor(place)
    return np.clip(positions.astype(np.int64), 0, extent - 1)


def resize_bicubic(x: Array, size: tuple[int, int], sampling: Sampling) -> Array:
    """Resize images by cubic convolution; arguments and result as in ``resize_bilinear``.

    Source: Keys, "Cubic convolution interpolation for digital image processing" (1981), with
    TensorFlow's table of weights, which is sharper than Keys' unless positions are pixel centers.
    """
    images = x.astype(np.float32)
    for axis, count in zip((1, 2), size, strict=True):
        images = _cubic_taps(x.shape[axis], count, sampling).apply(images, axis)
    return images


def _cubic_taps(extent: int, count: int, sampling: Sampling) -> Taps:
    positions = sampling.positions(extent, count)
    below = np.floor(positions)
    offset = np.rint((positions - below) * np.float32(_STEPS)).astype(np.int64)
    near, far = _cubic_table(_KEYS if sampling.half_pixel else _SHARP)
    weights = np.stack([far[offset], near[offset], near[_STEPS - offset], far[_STEPS - offset]], 1)
    taps = below.astype(np.int64)[:, None] + np.arange(-1, 3)
    indices = np.clip(taps, 0, extent - 1)
    if sampling.half_pixel:
        weights = _renormalized(np.where(indices == taps, weights, np.float32(0)))
    return Taps(indices, weights)


def _renormalized(weights: Array) -> Array:
    total = weights.sum(axis=1, keepdims=True, dtype=np.float32)
    usable = np.abs(total) >= np.float32(1000) * np.finfo(np.float32).tiny
    return np.where(usable, weights * (np.float32(1) / np.where(usable, total, 1)), weights)


def _cubic_table(a: float) -> tuple[Array, Array]:
    """Return the weights of the pixels less than one, and less than two, from each step."""
    x = np.arange(_STEPS + 1) / _STEPS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(np.float32), far.astype(np.float32)


def resize_area(x: Array, size: tuple[int, int], sampling: Sampling) -> Array:
    """Resize images to the means of the covered areas.

    Arguments and result as in ``resize_bilinear``; ``sampling.half_pixel`` is ignored.
    """
    images = x.astype(np.float32)
    area = np.float32(1)
    for axis, count in zip((1, 2), size, strict=True):
        # A single pixel with aligned corners covers no area, and is the mean.
        scale = sampling.scale(x.shape[axis], count) or np.float32(1)
        images = _area_taps(x.shape[axis], count, scale).apply(images, axis)
        area *= scale
    images *= np.float32(1) / area
    return images


def _area_taps(extent: int, count: int, scale: np.float32) -> Taps:
    """Return the source pixels that each new pixel covers, weighted by the covered area."""
    place = np.arange(count, dtype=np.float32)
    start, end = place * scale, (place + np.float32(1)) * scale
    first = np.floor(start)
    covered = int((np.ceil(end) - first).max())
    cells = first[:, None] + np.arange(max(covered, 1), dtype=np.float32)
    begin, stop = start[:, None], end[:, None]
    overlap = np.minimum(cells + 1, stop) - np.maximum(cells, begin)
    # Within one source pixel, the area is exact without rounding of its borders.
    overlap = np.where((cells < begin) & (cells + 1 > stop), scale, overlap)
    indices = np.clip(cells.astype(np.int64), 0, extent - 1)
    return Taps(indices, np.maximum(overlap, 0).astype(np.float32))

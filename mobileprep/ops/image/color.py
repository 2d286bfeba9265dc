"""Colors of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import as_array
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import at_least_rank, merge_dim
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("RGBToHSV")
def rgb_to_hsv(node: Node, images: Array) -> Array:
    """Hue, saturation and value, each from 0 to 1, along the last axis."""
    return np.stack(_hsv(images), axis=-1)


def _hsv(images: Array) -> tuple[Array, Array, Array]:
    red, green, blue = _channels(images)
    value = images.max(axis=-1)
    spread = value - images.min(axis=-1)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    norm = np.divide(images.dtype.type(1 / 6), spread, out=np.zeros_like(value), where=spread > 0)
    third = images.dtype.type(1 / 3)
    hue = np.where(
        red == value,
        (green - blue) * norm,
        np.where(green == value, (blue - red) * norm + third, (red - green) * norm + 2 * third),
    )
    hue = np.where(spread > 0, hue, 0).astype(images.dtype)
    return np.where(hue < 0, hue + 1, hue), saturation, value


@kernel("HSVToRGB")
def hsv_to_rgb(node: Node, images: Array) -> Array:
    """Red, green and blue, each from 0 to 1, along the last axis."""
    return _rgb(*_channels(images))


@shape_fn("RGBToHSV", "HSVToRGB")
def colors_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, whose last dimension holds three channels."""
    shape = at_least_rank(args.shapes[0], 1)
    return [None if shape is None else (*shape[:-1], merge_dim(shape[-1], 3))]


flop_rule("RGBToHSV")(per_output(4))
flop_rule("HSVToRGB")(per_output(5))


def _rgb(hue: Array, saturation: Array, value: Array) -> Array:
    place = hue * hue.dtype.type(6)
    # A sawtooth of each colour over the circle of hues.
    sides = [np.abs(place - 3) - 1, 2 - np.abs(place - 2), 2 - np.abs(place - 4)]
    pure = np.clip(np.stack(sides, axis=-1), 0, 1).astype(hue.dtype)
    mixed = (1 - saturation[..., None]) + saturation[..., None] * pure
    out: Array = np.multiply(mixed, value[..., None], dtype=hue.dtype)
    return out


@kernel("AdjustHue")
def adjust_hue(node: Node, images: Array, delta: Array) -> Array:
    """The images with their hue turned by a part of the circle, from -1 to 1."""
    hue, saturation, value = _hsv(images.astype(np.float32))
    turned = np.mod(hue + np.float32(delta.reshape(())), np.float32(1))
    return _rgb(turned, saturation, value).astype(images.dtype)


@kernel("AdjustSaturation")
def adjust_saturation(node: Node, images: Array, scale: Array) -> Array:
    """The images with their saturation multiplied, at most 1."""
    hue, saturation, value = _hsv(images.astype(np.float32))
    strong = np.clip(saturation * np.float32(scale.reshape(())), 0, 1)
    return _rgb(hue, strong, value).astype(images.dtype)


flop_rule("AdjustHue", "AdjustSaturation")(per_output(10))


@kernel("AdjustContrastv2")
def adjust_contrast(node: Node, images: Array, factor: Array) -> Array:
    """The images with each channel's distance from its mean multiplied."""
    if images.ndim < 3:
        message = "height, width and channels are needed"
        raise ValueError(message)
    # numpy warns of the mean of nothing.
    pixels = np.float32(images.shape[-3] * images.shape[-2])
    mean = images.sum(axis=(-3, -2), keepdims=True, dtype=np.float32) / pixels
    spread = (images - mean) * np.float32(factor.reshape(())) + mean
    return as_array(spread, images).astype(images.dtype)


@shape_fn("AdjustContrast", "AdjustContrastv2", "AdjustHue", "AdjustSaturation")
def adjusted_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The images' shape: height, width and channels at least."""
    return [at_least_rank(args.shapes[0], 3)]


flop_rule("AdjustContrastv2")(per_output(4))


def _channels(images: Array) -> tuple[Array, Array, Array]:
    if images.ndim < 1 or images.shape[-1] != 3:
        message = "three channels are needed along the last axis"
        raise ValueError(message)
    return images[..., 0], images[..., 1], images[..., 2]

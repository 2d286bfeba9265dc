"""Ops that pad and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    check_allocation,
    integers,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    add_dims,
    multiply_dims,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Tile")
def tile(node: Node, x: Array, multiples: Array) -> Array:
    """x repeated along each axis."""
    counts = integers(multiples)
    if len(counts) != x.ndim:
        message = f"multiples need {x.ndim} elements"
        raise ValueError(message)
    check_allocation([d * n for d, n in zip(x.shape, counts, strict=True)], x.dtype)
    return np.tile(x, counts)


@shape_fn("Tile")
def tile_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size times its multiple."""
    multiples, rank = args.as_shape(1), with_rank(args.shapes[1], 1)[0]
    shape = args.shapes[0] if rank < 0 else with_rank(args.shapes[0], rank)
    if shape is None or multiples is None:
        return [None if shape is None else unknown_dims(len(shape))]
    return [tuple(map(multiply_dims, shape, multiples))]


flop_rule("Tile")(free)


@kernel("Pad", "PadV2")
def pad(node: Node, x: Array, paddings: Array, value: Array | None = None) -> Array:
    """x with a border of zeros, or of the given value."""
    return padded(x, _widths(x, paddings), x.dtype.type(0) if value is None else value)


@shape_fn("Pad", "PadV2")
def pad_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size and what is put before and behind it."""
    pairs = with_rank(args.shapes[1], 2)
    shape = args.shapes[0] if pairs[0] < 0 else with_rank(args.shapes[0], pairs[0])
    return [None if shape is None else padded_shape(shape, args.value(1))]


flop_rule("Pad", "PadV2")(free)


def padded(x: Array, widths: list[tuple[int, int]], filler: Any) -> Array:  # noqa: ANN401
    """x with a border of one value; widths before and after, for each axis."""
    shape = [d + a + b for d, (a, b) in zip(x.shape, widths, strict=True)]
    check_allocation(shape, x.dtype)
    out = np.full(shape, filler, dtype=x.dtype)
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, widths, strict=True))] = x
    return out


def _widths(x: Array, paddings: Array) -> list[tuple[int, int]]:
    if paddings.shape != (x.ndim, 2):
        message = f"paddings of shape {list(paddings.shape)} for {x.ndim} axes"
        raise ValueError(message)
    widths = [(int(a), int(b)) for a, b in paddings.tolist()]
    if any(min(w) < 0 for w in widths):
        message = f"paddings {widths} are negative"
        raise ValueError(message)
    return widths


def padded_shape(shape: tuple[int, ...], paddings: Array | None) -> tuple[int, ...]:
    """A shape with what is put before and behind each dimension, as far as that is known."""
    if paddings is None or paddings.shape != (len(shape), 2):
        return unknown_dims(len(shape))
    added = [int(before) + int(behind) for before, behind in paddings]
    return tuple(map(add_dims, shape, added))


@kernel("MirrorPad")
def mirror_pad(node: Node, x: Array, paddings: Array) -> Array:
    """x with a border that mirrors it, the edge itself left out (REFLECT) or not (SYMMETRIC)."""
    widths, mode = _widths(x, paddings), node.attr_str("mode")
    if mode not in ("REFLECT", "SYMMETRIC"):
        message = f"there is no mode {mode!r}"
        raise ValueError(message)
    room = 1 if mode == "REFLECT" else 0
    if any(max(w) > d - room for d, w in zip(x.shape, widths, strict=True)):
        message = f"paddings {widths} are wider than what they mirror"
        raise ValueError(message)
    # Of a scalar, numpy takes no list of widths.
    return np.pad(x, widths, mode="reflect" if room else "symmetric") if widths else x


shape_fn("MirrorPad")(pad_shape)


flop_rule("MirrorPad")(free)

"""Ops that combine slices by segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import narrow_max
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.array.gathering import check_indices
from mobileprep.ops.array.scattering import Write
from mobileprep.ops.arrays import (
    dimensions,
    integers,
    scalar,
)
from mobileprep.ops.common_costs import per_input
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import UNKNOWN, at_least_rank, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_SEGMENTS: dict[str, tuple[Write, Callable[[np.dtype[Any]], Any]]] = {
    "Max": (np.maximum.at, lambda kind: _extreme(kind, lowest=True)),
    "Min": (np.minimum.at, lambda kind: _extreme(kind, lowest=False)),
    "Prod": (np.multiply.at, lambda kind: kind.type(1)),
    "Sum": (np.add.at, lambda kind: kind.type(0)),
}


def _extreme(kind: np.dtype[Any], *, lowest: bool) -> Any:  # noqa: ANN401 - a numpy scalar
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return kind.type(info.min if lowest else info.max)
    # The lowest finite number, as the original has it.
    limit = narrow_max(kind)
    return -limit if lowest else limit


def _beyond(kind: np.dtype[Any], *, lowest: bool) -> Any:  # noqa: ANN401 - a numpy scalar
    """What any number of a segment replaces: the original begins with the segment's first row."""
    if kind.kind in "iu":
        return _extreme(kind, lowest=lowest)
    return kind.type(-np.inf if lowest else np.inf)


@kernel("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum")
def unsorted_segment(node: Node, x: Array, ids: Array, count: Array) -> Array:
    """Slices combined by segment; slices of a negative segment are dropped."""
    number = scalar(count)
    write, start = _SEGMENTS[node.op.removeprefix("UnsortedSegment")]
    shape = dimensions(np.array([number, *x.shape[ids.ndim :]]), x.dtype)
    if x.shape[: ids.ndim] != ids.shape:
        message = f"segments of shape {list(ids.shape)} for {list(x.shape)}"
        raise ValueError(message)
    out = np.full(shape, start(x.dtype), dtype=x.dtype)
    kept = ids >= 0
    check_indices(ids[kept], number)
    write(out, (ids[kept],), x[kept])
    return out


@shape_fn(
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"),
    "UnsortedSegmentSum",
)
def unsorted_segments_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given number of rows in the place of the ids' dimensions."""
    data, ids, count = args.shapes[0], args.shapes[1], args.scalar(2)
    if data is None or ids is None:
        return [None]
    return [(UNKNOWN if count is None else count, *data[len(ids) :])]


flop_rule("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum")(
    per_input(1)
)


@kernel("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum")
def segment(node: Node, x: Array, ids: Array) -> Array:
    """Slices combined by segment, segments in ascending order; empty ones are 0 (1 for Prod)."""
    numbers = np.array(integers(ids), dtype=np.int64)
    if x.ndim < 1 or len(numbers) != len(x) or (np.diff(numbers) < 0).any():
        message = "there must be an ascending segment for each slice"
        raise ValueError(message)
    length = int(numbers[-1]) + 1 if len(numbers) else 0
    check_indices(numbers, max(length, 1))
    shape = dimensions(np.array([length, *x.shape[1:]]), x.dtype)
    kind = node.op.removeprefix("Segment")
    write, start = _SEGMENTS["Sum" if kind == "Mean" else kind]
    lowest = {"Max": True, "Min": False}.get(kind)
    first = start(x.dtype) if lowest is None else _beyond(x.dtype, lowest=lowest)
    out = np.full(shape, first, dtype=x.dtype)
    write(out, (numbers,), x)
    counts = np.bincount(numbers, minlength=length).reshape(-1, *[1] * (x.ndim - 1))
    if kind == "Mean":
        return (out / np.maximum(counts, 1)).astype(x.dtype)
    empty = x.dtype.type(1 if kind == "Prod" else 0)
    return np.where(counts > 0, out, empty)


@shape_fn(
    *("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum"),
)
def segments_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """As many rows as there are segments, which the ids' values tell."""
    data = at_least_rank(args.shapes[0], 1)
    with_rank(args.shapes[1], 1)
    return [None if data is None else (UNKNOWN, *data[1:])]


flop_rule("SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum")(per_input(1))


@flop_rule("SegmentMean")
def segment_mean_flops(sizes: Sizes) -> float:
    """Sums, and a quotient for each output."""
    return sizes.taken() + sizes.made()

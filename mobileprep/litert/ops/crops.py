"""Boxes cut out of pictures and resized, from operators that gather pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import ACTIVATION, Scope
from mobileprep.litert.types import need_float

_TABLES: Final = {
    **{code: f"{code.title()}Options" for code in ("ADD", "SUB", "MUL", "DIV")},
    "MINIMUM": "MaximumMinimumOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "GATHER_ND": "GatherNdOptions",
    "SELECT_V2": "SelectV2Options",
    "LOGICAL_AND": "LogicalAndOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "LESS_EQUAL": "LessEqualOptions",
}
_FUSED: Final = frozenset({"ADD", "SUB", "MUL", "DIV"})


@lowering("CropAndResize")
def crop_and_resize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Four GATHER_ND of the pixels around each sample, and their weighted sum."""
    need_float(node, inputs[:2])
    if node.attr_str("method", "bilinear") != "bilinear" or inputs[0].rank != 4:
        reason = "it does not interpolate pictures of known rank linearly"
        raise CannotExpressError(reason, "give it four dimensions, and the method bilinear")
    height, width = scope.integers(node, 3, "crop size")
    work = _Crops(scope, inputs[0], (scope.output_shape(node) or (-1,))[0])
    picture = work.op(
        "RESHAPE", [inputs[2], scope.integers_constant([-1, 1, 1])], (work.count, 1, 1)
    )
    sides = [
        _Side(work, inputs[1], axis, size, 1 + axis) for axis, size in enumerate((height, width))
    ]
    whole = (work.count, height, width)
    rows = [
        work.mixed([work.pixels(picture, y, x, whole) for x in sides[1].places], sides[1].share)
        for y in sides[0].places
    ]
    found = work.mixed(rows, sides[0].share)
    inside = work.op("LOGICAL_AND", [sides[0].inside, sides[1].inside], whole, DType.BOOL)
    full = work.reshaped(inside, (-1, height, width, 1), (*whole, 1))
    outside = scope.constant(np.array(node.attr_float("extrapolation_value", 0.0), np.float32))
    return work.op("SELECT_V2", [full, found, outside], scope.output_shape(node))


@dataclass(frozen=True)
class _Crops:
    """Emits operators.

    Args:
        scope: where.
        images: the pictures.
        count: how many boxes there are, -1 where unknown.
    """

    scope: Scope
    images: Value
    count: int

    def op(
        self, code: str, inputs: list[Value], shape: TensorShape, kind: DType = DType.FLOAT
    ) -> Value:
        """An operator without options of its own."""
        if code == "RESHAPE":
            return self.scope.emit(code, inputs, shape, inputs[0].dtype, "ReshapeOptions")
        options = {ACTIVATION: "NONE"} if code in _FUSED else {}
        return self.scope.emit(code, inputs, shape, kind, _TABLES.get(code, ""), **options)

    def reshaped(self, value: Value, sizes: tuple[int, ...], shape: TensorShape) -> Value:
        return self.op("RESHAPE", [value, self.scope.integers_constant(sizes)], shape)

    def cast(self, value: Value, kind: DType) -> Value:
        names = {DType.FLOAT: "FLOAT32", DType.INT32: "INT32"}
        kinds = {"in_data_type": names[value.dtype], "out_data_type": names[kind]}
        return self.scope.emit("CAST", [value], value.shape, kind, "CastOptions", **kinds)

    def size(self, axis: int) -> Value:
        """The last place along an axis of the pictures, as float32."""
        options, pictures = {"out_type": "INT32"}, [self.images]
        sizes = self.scope.emit("SHAPE", pictures, (4,), DType.INT32, "ShapeOptions", **options)
        which = self.scope.constant(np.array(axis, np.int32))
        size = self.scope.emit("GATHER", [sizes, which], (), DType.INT32, "GatherOptions", axis=0)
        one = self.scope.constant(np.array(1, np.float32))
        return self.op("SUB", [self.cast(size, DType.FLOAT), one], ())

    def pixels(self, picture: Value, y: Value, x: Value, whole: tuple[int, ...]) -> Value:
        """The pixels at rows and columns of each box's picture."""
        zeros = self.scope.constant(np.zeros((1, *whole[1:]), np.int32))
        parts = [self.op("ADD", [part, zeros], whole, DType.INT32) for part in (picture, y, x)]
        kinds = {"values_count": 3, "axis": 3}
        places = self.scope.emit("PACK", parts, (*whole, 3), DType.INT32, "PackOptions", **kinds)
        depth = (self.images.shape or (-1,))[-1]
        return self.op("GATHER_ND", [self.images, places], (*whole, depth))

    def mixed(self, ends: Sequence[Value], share: Value) -> Value:
        """Between two values, nearer the second the larger the share is."""
        first, second = ends
        apart = self.op("SUB", [second, first], first.shape)
        return self.op("ADD", [first, self.op("MUL", [apart, share], first.shape)], first.shape)


class _Side:
    """Where the samples of all boxes lie along one axis.

    Attributes:
        places: the pixels before and behind each sample.
        share: how far it is from the first to the second.
        inside: whether it lies in the picture.
    """

    def __init__(self, work: _Crops, boxes: Value, axis: int, size: int, place: int) -> None:
        scope, grid = work.scope, [1, 1, 1]
        grid[place] = size
        spread = (work.count, *grid[1:])
        last = work.size(1 + axis)
        low, high = (self._edge(work, boxes, axis + 2 * end) for end in (0, 1))
        sample = self._samples(work, low, high, last, grid)
        zero = scope.constant(np.array(0, np.float32))
        first = work.op("FLOOR", [sample], spread)
        second = work.op("CEIL", [sample], spread)
        self.places = [self._clipped(work, end, zero, last) for end in (first, second)]
        share = work.op("SUB", [sample, first], spread)
        self.share = work.reshaped(share, (-1, *spread[1:], 1), (*spread, 1))
        over = work.op("GREATER_EQUAL", [sample, zero], spread, DType.BOOL)
        under = work.op("LESS_EQUAL", [sample, last], spread, DType.BOOL)
        self.inside = work.op("LOGICAL_AND", [over, under], spread, DType.BOOL)

    def _samples(
        self, work: _Crops, low: Value, high: Value, last: Value, grid: list[int]
    ) -> Value:
        """The places of all samples; in TensorFlow's order, since the edge is a matter of bits."""
        one, spread = (work.count, 1, 1), (work.count, *grid[1:])
        size = max(grid)
        if size == 1:
            half = work.scope.constant(np.array(0.5, np.float32))
            middle = work.op("MUL", [work.op("ADD", [low, high], one), half], one)
            return work.op("MUL", [middle, last], one)
        gaps = work.scope.constant(np.array(size - 1, np.float32))
        extent = work.op("MUL", [work.op("SUB", [high, low], one), last], one)
        step = work.op("DIV", [extent, gaps], one)
        count = work.scope.constant(np.arange(size, dtype=np.float32).reshape(grid))
        start = work.op("MUL", [low, last], one)
        return work.op("ADD", [start, work.op("MUL", [step, count], spread)], spread)

    def _edge(self, work: _Crops, boxes: Value, column: int) -> Value:
        which = work.scope.constant(np.array(column, np.int32))
        ends, shape = [boxes, which], (work.count,)
        edge = work.scope.emit("GATHER", ends, shape, DType.FLOAT, "GatherOptions", axis=1)
        return work.reshaped(edge, (-1, 1, 1), (work.count, 1, 1))

    def _clipped(self, work: _Crops, place: Value, zero: Value, last: Value) -> Value:
        above = work.op("MAXIMUM", [place, zero], place.shape)
        return work.cast(work.op("MINIMUM", [above, last], place.shape), DType.INT32)

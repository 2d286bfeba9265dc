"""Boxes cut out of images and resized, from operators that gather pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.integers import IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32
from mobileprep.litert.types import need_float

_AXES: Final = (0, 1)


@lowering("CropAndResize")
def crop_and_resize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """GATHER of the nearest pixel of each sample, or of four pixels and their weighted sum."""
    need_float(node, inputs[:2])
    images, boxes = inputs[:2]
    if images.rank != 4:
        reason = "the rank of its images is not known to be 4"
        raise CannotExpressError(reason, GIVE_SHAPES)
    work, whole = Arithmetic(scope), IndexArithmetic(scope)
    crop = as_int32(scope, node, 3, inputs[3])
    samples = [_samples(scope, images, boxes, whole.element(crop, axis), axis) for axis in _AXES]
    rows, columns = samples
    owner = whole.reshaped(as_int32(scope, node, 2, inputs[2]), (-1, 1, 1))
    sizes = whole.sizes(images)
    pixels = whole.shaped(images, [whole.number(-1), sizes[3]])

    def picked(row: Value, column: Value) -> Value:
        """The pixels at rows and columns of each box's image."""
        line = whole.add(whole.mul(owner, sizes[1]), row)
        places = whole.add(whole.mul(line, sizes[2]), column)
        shape = (*(places.shape or ()), (images.shape or ())[3])
        options = {"axis": 0, "batch_dims": 0}
        given = [pixels, places]
        return scope.emit("GATHER", given, shape, images.dtype, "GatherOptions", **options)

    if node.attr_str("method", "bilinear") == "nearest":
        found = picked(*(sample.place(work.add(sample.value, 0.5)) for sample in samples))
    else:
        mixed = [
            _mixed(work, [picked(row, column) for column in columns.ends], columns.share)
            for row in rows.ends
        ]
        found = _mixed(work, mixed, rows.share)
    inside = _with_channels(scope, whole.both(rows.inside, columns.inside))
    outside = scope.constant(np.float32(node.attr_float("extrapolation_value", 0.0)))
    shape, given = scope.output_shape(node), [inside, found, outside]
    return scope.emit("SELECT_V2", given, shape, found.dtype, "SelectV2Options")


@dataclass(frozen=True)
class _Samples:
    """Where the samples of all boxes lie along one axis of the images.

    Args:
        scope: where operators are emitted.
        value: the coordinates, [boxes, height, 1] or [boxes, 1, width].
        last: the last pixel.
    """

    scope: Scope
    value: Value
    last: Value

    def place(self, value: Value) -> Value:
        """The pixel below a coordinate, among those that exist."""
        work = Arithmetic(self.scope)
        return work.cast(self._clipped(work.one("FLOOR", value)), DType.INT32)

    @property
    def ends(self) -> list[Value]:
        """The pixels before and behind each sample."""
        work = Arithmetic(self.scope)
        above = work.cast(self._clipped(work.one("CEIL", self.value)), DType.INT32)
        return [self.place(self.value), above]

    @property
    def share(self) -> Value:
        """How far each sample is from the first pixel to the second."""
        work = Arithmetic(self.scope)
        share = work.sub(self.value, work.one("FLOOR", self.value))
        return _with_channels(self.scope, share)

    @property
    def inside(self) -> Value:
        """Whether each sample lies in the image."""
        beyond = [
            Arithmetic(self.scope).compare(code, self.value, end)
            for code, end in (("LESS", 0.0), ("GREATER", self.last))
        ]
        outside = IndexArithmetic(self.scope).either(*beyond)
        return self.scope.emit(
            "LOGICAL_NOT", [outside], outside.shape, DType.BOOL, "LogicalNotOptions"
        )

    def _clipped(self, value: Value) -> Value:
        work = Arithmetic(self.scope)
        return work.minimum(work.maximum(value, 0.0), self.last)


def _samples(scope: Scope, images: Value, boxes: Value, size: Value, axis: int) -> _Samples:
    """The samples in TensorFlow's order of operations, as the edge of an image depends on bits."""
    work, whole = Arithmetic(scope), IndexArithmetic(scope)
    last = work.cast(whole.sub(whole.sizes(images)[1 + axis], 1), DType.FLOAT)
    low, high = (_edge(scope, boxes, axis + 2 * end) for end in (0, 1))
    middle = work.mul(work.mul(work.add(low, high), 0.5), last)
    if size.data is not None and int(size.data) == 1:
        return _Samples(scope, middle, last)
    gaps = work.cast(whole.maximum(whole.sub(size, 1), 1), DType.FLOAT)
    step = work.div(work.mul(work.sub(high, low), last), gaps)
    line = (1, -1, 1) if axis == 0 else (1, 1, -1)
    places = work.cast(whole.reshaped(whole.range(size), line), DType.FLOAT)
    value = work.add(work.mul(low, last), work.mul(step, places))
    if size.data is None:
        value = work.select(whole.less(1, size), value, middle)
    return _Samples(scope, value, last)


def _edge(scope: Scope, boxes: Value, column: int) -> Value:
    count = -1 if boxes.shape is None else boxes.shape[0]
    which = scope.integers_constant(np.array(column))
    options = {"axis": 1, "batch_dims": 0}
    given = [boxes, which]
    edge = scope.emit("GATHER", given, (count,), boxes.dtype, "GatherOptions", **options)
    sizes = scope.integers_constant([-1, 1, 1])
    return scope.emit("RESHAPE", [edge, sizes], (count, 1, 1), boxes.dtype, "ReshapeOptions")


def _mixed(work: Arithmetic, ends: Sequence[Value], share: Value) -> Value:
    """Between two values, nearer the second the larger the share is."""
    first, second = ends
    return work.add(first, work.mul(work.sub(second, first), share))


def _with_channels(scope: Scope, value: Value) -> Value:
    shape = (*(value.shape or ()), 1)
    axis = scope.integers_constant(np.array(-1))
    return scope.emit("EXPAND_DIMS", [value, axis], shape, value.dtype, "ExpandDimsOptions")

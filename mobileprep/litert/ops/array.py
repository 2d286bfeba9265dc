"""Shapes, reductions, and ops that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic, filled
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, gather, known_shape, reshaped
from mobileprep.litert.types import LONG_NUMBERS, NAMES, NUMBERS, need, need_float
from mobileprep.ops.arrays import integers

_STRIDES: Final = 3
_MIRRORS: Final = {"REFLECT": "REFLECT", "SYMMETRIC": "SYMMETRIC"}


@lowering("Identity", "StopGradient", "PreventGradient", "PlaceholderWithDefault", "Snapshot")
@lowering("CheckNumerics", "EnsureShape")
def identity(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Pass the value through; LiteRT does not check for NaN, and shape inference checks shapes."""
    return inputs[0]


@lowering("IdentityN")
def identity_n(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(inputs)


# Ops that are one builtin whose output has the dtype of the first input.
_BUILTINS: Final = {
    "BroadcastTo": "BROADCAST_TO",
    "GatherNd": "GATHER_ND",
    "Pad": "PAD",
    "PadV2": "PADV2",
    "Slice": "SLICE",
    "Tile": "TILE",
}
# Ops that are one builtin whose output has the dtype of the second input.
_FILLING: Final = {"Fill": "FILL", "Select": "SELECT", "SelectV2": "SELECT_V2"}


@lowering(*_BUILTINS)
def move(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    return scope.emit(_BUILTINS[node.op], inputs, scope.output_shape(node))


@lowering(*_FILLING)
def fill_or_select(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    return scope.emit(_FILLING[node.op], inputs, scope.output_shape(node), inputs[1].dtype)


@lowering("Reshape")
def reshape(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit RESHAPE, with a constant shape if at most one size is unknown."""
    shape = scope.output_shape(node)
    constant = scope.as_shape(node, 1)
    sizes = constant if shape is None or shape.count(-1) > 1 else shape
    if sizes is not None and sizes.count(-1) <= 1 and 0 not in sizes:
        return reshaped(scope, inputs[0], sizes)
    return scope.emit("RESHAPE", [inputs[0], as_int32(scope, node, 1, inputs[1])], shape)


@lowering("Squeeze")
def squeeze(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit RESHAPE if the sizes are known, which more delegates support, else SQUEEZE."""
    shape = scope.output_shape(node)
    if shape is not None and shape.count(-1) <= 1:
        return reshaped(scope, inputs[0], shape)
    dims = node.attr_ints("squeeze_dims", node.attr_ints("axis", ()))
    return scope.emit("SQUEEZE", inputs, shape, squeeze_dims=dims)


@lowering("ExpandDims")
def expand_dims(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit RESHAPE if the sizes are known, else EXPAND_DIMS."""
    shape = scope.output_shape(node)
    if shape is not None and shape.count(-1) <= 1 and 0 not in shape:
        return reshaped(scope, inputs[0], shape)
    return scope.emit("EXPAND_DIMS", inputs, shape)


@lowering("Transpose")
def transpose(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    permutation = scope.known_value(node, 1)
    if permutation is not None and (
        permutation.ndim != 1 or sorted(permutation.tolist()) != [*range(permutation.size)]
    ):
        message = f"{list(integers(permutation))} is not a permutation of the dimensions"
        raise ValueError(message)
    if inputs[0].rank is not None and inputs[0].rank < 2:
        # The runtime does not write the result for a scalar.
        return inputs[0]
    order = as_int32(scope, node, 1, inputs[1])
    return scope.emit("TRANSPOSE", [inputs[0], order], scope.output_shape(node))


@lowering("Concat", "ConcatV2")
def concat(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    index = 0 if node.op == "Concat" else len(inputs) - 1
    values = [value for i, value in enumerate(inputs) if i != index]
    axis = scope.integers(node, index, "axis")[0]
    # Some kernels reject empty parts, which have no effect.
    full = [v for v in values if v.data is None or v.data.size or v.data.shape[axis]]
    if len(full) == 1:
        return full[0]
    return scope.emit("CONCATENATION", full, scope.output_shape(node), values[0].dtype, axis=axis)


def _outputs(
    scope: Scope, node: Node, count: int, kind: DType
) -> list[tuple[tuple[int, ...] | None, DType]]:
    return [(scope.output_shape(node, i), kind) for i in range(count)]


@lowering("Split")
def split(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    count = node.attr_int("num_split")
    outputs = _outputs(scope, node, count, inputs[1].dtype)
    return scope.emit_many("SPLIT", inputs, outputs, num_splits=count)


@lowering("SplitV")
def split_v(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    count = node.attr_int("num_split")
    outputs = _outputs(scope, node, count, inputs[0].dtype)
    values = [inputs[0], *(as_int32(scope, node, i, inputs[i]) for i in (1, 2))]
    return scope.emit_many("SPLIT_V", values, outputs, num_splits=count)


@lowering("Pack")
def pack(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    shape, axis = scope.output_shape(node), node.attr_int("axis", 0)
    return scope.emit("PACK", inputs, shape, values_count=len(inputs), axis=axis)


@lowering("Unpack")
def unpack(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    count = node.attr_int("num")
    outputs = _outputs(scope, node, count, inputs[0].dtype)
    axis = node.attr_int("axis", 0)
    return scope.emit_many("UNPACK", inputs, outputs, num=count, axis=axis)


@lowering("StridedSlice")
def strided_slice(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit STRIDED_SLICE; expand an ellipsis, and add new axes with EXPAND_DIMS."""
    masks = {n: node.attr_int(n, 0) for n in ("begin_mask", "end_mask", "shrink_axis_mask")}
    # For a shrunk axis with the begin mask, the runtime selects the first element, TensorFlow the
    # specified one.
    masks["begin_mask"] &= ~masks["shrink_axis_mask"]
    bounds = [as_int32(scope, node, i, inputs[i]) for i in (1, 2, 3)]
    shape = scope.output_shape(node)
    count = bounds[0].shape[0] if bounds[0].shape else -1
    # TFLM needs bounds for all axes.
    is_short = count < (inputs[0].rank or 0) and all(value.data is not None for value in bounds)
    is_plain = not node.attr_int("ellipsis_mask", 0) and not node.attr_int("new_axis_mask", 0)
    if is_plain and not is_short:
        return scope.emit("STRIDED_SLICE", [inputs[0], *bounds], shape, **masks)
    if inputs[0].rank is None or count < 0:
        msg = "the rank of its input is not known"
        raise CannotExpressError(msg, GIVE_SHAPES)
    axes = _sliced_axes(node, count, inputs[0].rank)
    places = [axis for axis in axes if not axis.is_new]
    parts = [_picked(scope, node, i, bounds[i - 1], places) for i in (1, 2, 3)]
    bits = {
        name: sum(1 << i for i, axis in enumerate(places) if axis.is_set(mask))
        for name, mask in masks.items()
    }
    for name in ("begin_mask", "end_mask"):
        bits[name] |= sum(1 << i for i, axis in enumerate(places) if axis.entry is None)
    result_axes = [
        axis for axis in axes if not axis.is_set(masks["shrink_axis_mask"]) or axis.is_new
    ]
    new = [i for i, axis in enumerate(result_axes) if axis.is_new]
    sizes = None if shape is None else tuple(d for i, d in enumerate(shape) if i not in new)
    result = scope.emit("STRIDED_SLICE", [inputs[0], *parts], sizes, **bits)
    if new and shape is not None and shape.count(-1) <= 1 and 0 not in shape:
        return reshaped(scope, result, shape)
    for i in new:
        sizes = None if sizes is None else (*sizes[:i], 1, *sizes[i:])
        axis = scope.integers_constant([i], "axis")
        result = scope.emit("EXPAND_DIMS", [result, axis], sizes)
    return result


class _SlicedAxis(Struct, frozen=True):
    """An axis of a slice, with the index of its bounds; None if an ellipsis covers it."""

    entry: int | None
    is_new: bool = False

    def is_set(self, mask: int) -> bool:
        return self.entry is not None and bool(mask >> self.entry & 1)


def _sliced_axes(node: Node, count: int, rank: int) -> list[_SlicedAxis]:
    """Return the axes of a slice's input, and the new ones among them, in order."""
    ellipsis, new = node.attr_int("ellipsis_mask", 0), node.attr_int("new_axis_mask", 0)
    whole = rank - sum(not (ellipsis >> i & 1 or new >> i & 1) for i in range(count))
    axes: list[_SlicedAxis] = []
    for i in range(count):
        if ellipsis >> i & 1:
            axes += [_SlicedAxis(None)] * whole
        else:
            axes.append(_SlicedAxis(i, is_new=bool(new >> i & 1)))
    axis_count = sum(not axis.is_new for axis in axes)
    return axes + [_SlicedAxis(None)] * (rank - axis_count)


def _picked(
    scope: Scope, node: Node, index: int, bounds: Value, axes: Sequence[_SlicedAxis]
) -> Value:
    """Return an input of a slice with one entry per axis; entries of an ellipsis are ignored."""
    constant = scope.known_value(node, index)
    if constant is not None:
        values = [1 if axis.entry is None else int(constant[axis.entry]) for axis in axes]
        return scope.integers_constant(values, "slice")
    if index == _STRIDES and any(axis.entry is None for axis in axes):
        msg = "its strides are computed while the graph runs"
        raise CannotExpressError(msg, "make the strides a constant")
    entries = scope.integers_constant([axis.entry or 0 for axis in axes], "entries")
    return gather(scope, bounds, entries)


@lowering("Gather", "GatherV2", "ResourceGather")
def gather_op(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    axis = scope.integers(node, 2, "axis")[0] if len(inputs) > 2 else 0
    batch = node.attr_int("batch_dims", 0)
    shape = scope.output_shape(node)
    # A negative axis would select a different axis with batch dimensions.
    if axis < 0 and inputs[0].rank is not None:
        axis += inputs[0].rank
    return scope.emit("GATHER", inputs[:2], shape, axis=axis, batch_dims=batch)


@lowering("ScatterNd")
def scatter_nd(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    places, sizes = (as_int32(scope, node, i, inputs[i]) for i in (0, 2))
    values = [places, inputs[1], sizes]
    return scope.emit("SCATTER_ND", values, scope.output_shape(node), inputs[1].dtype)


_SPARSE: Final = frozenset({DType.FLOAT, DType.INT32, DType.INT64, DType.INT8, DType.UINT8})


@lowering("SparseToDense")
def sparse_to_dense(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need([inputs[2]], _SPARSE)
    need([inputs[0]], {DType.INT32, DType.INT64})
    shape, is_checked = scope.output_shape(node), node.attr_bool("validate_indices", True)
    kind = inputs[2].dtype
    return scope.emit("SPARSE_TO_DENSE", inputs, shape, kind, validate_indices=is_checked)


@lowering("Shape")
def shape_(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    kind = node.attr_dtype("out_type", DType.INT32)
    return scope.emit("SHAPE", inputs, scope.output_shape(node), kind, out_type=NAMES[kind])


@lowering("ShapeN")
def shape_n(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit SHAPE for each input."""
    kind = node.attr_dtype("out_type", DType.INT32)
    return tuple(
        scope.emit("SHAPE", [x], (x.rank or -1,), kind, out_type=NAMES[kind]) for x in inputs
    )


@lowering("Rank")
def rank(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    return scope.emit("RANK", inputs, (), DType.INT32)


@lowering("Size")
def size(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit REDUCE_PROD of SHAPE."""
    kind = node.attr_dtype("out_type", DType.INT32)
    sizes = scope.emit("SHAPE", inputs, (inputs[0].rank or -1,), kind, out_type=NAMES[kind])
    values = [sizes, scope.integers_constant([0], "axes")]
    return scope.emit("REDUCE_PROD", values, (), keep_dims=False)


_FILLED: Final = frozenset({DType.BOOL, DType.INT8, DType.INT16, DType.UINT8})


@lowering("ZerosLike", "OnesLike")
def zeros_like(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ZEROS_LIKE, plus ADD for ones; emit FILL for other types."""
    value = inputs[0]
    if value.dtype in _FILLED:
        return filled(scope, value, np.array(node.op == "OnesLike", value.dtype.numpy))
    need(inputs, {DType.FLOAT, DType.INT32, DType.INT64})
    zeros = scope.emit("ZEROS_LIKE", inputs, value.shape)
    return zeros if node.op == "ZerosLike" else Arithmetic(scope, value.dtype).add(zeros, 1)


@lowering("Range")
def range_(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need(inputs, {DType.FLOAT, DType.INT32, DType.INT64})
    return scope.emit("RANGE", inputs, scope.output_shape(node))


@lowering("OneHot")
def one_hot(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    shape, axis = scope.output_shape(node), node.attr_int("axis", -1)
    places = inputs[0] if inputs[0].dtype is DType.INT64 else as_int32(scope, node, 0, inputs[0])
    return scope.emit("ONE_HOT", [places, *inputs[1:]], shape, inputs[2].dtype, axis=axis)


@lowering("ReverseV2")
def reverse(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit REVERSE_V2 for one axis at a time."""
    value, shape = inputs[0], scope.output_shape(node)
    for axis in scope.integers(node, 1, "axes"):
        if axis < 0 and shape is None:
            reason = "its axis counts from the end, and the rank of its input is not known"
            raise CannotExpressError(reason, GIVE_SHAPES)
        place = axis if shape is None else axis % max(len(shape), 1)
        values = [value, scope.integers_constant([place], "axis")]
        value = scope.emit("REVERSE_V2", values, shape)
    return value


@lowering("Roll")
def roll(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """For each axis, concatenate two SLICEs, or GATHER if sizes are computed."""
    value = inputs[0]
    need([value], LONG_NUMBERS | {DType.BOOL})
    axes = scope.integers(node, 2, "axis")
    shifts = IndexArithmetic(scope).reshaped(as_int32(scope, node, 1, inputs[1]), (len(axes),))
    for i, axis in enumerate(axes):
        value = _rolled(scope, value, IndexArithmetic(scope).element(shifts, i), axis)
    return value


def _rolled(scope: Scope, value: Value, shift: Value, axis: int) -> Value:
    work = IndexArithmetic(scope)
    length = work.sizes(value)[axis]
    place = axis % (value.rank or 1)
    if shift.data is None or length.data is None:
        order = work.floor_mod(work.sub(work.range(length), shift), length)
        return gather(scope, value, order, place)
    size = int(length.data)
    split = size - int(shift.data) % size if size else 0
    if split == size:
        return value
    parts = [_part(scope, value, place, split, size), _part(scope, value, place, 0, split)]
    return scope.emit("CONCATENATION", parts, value.shape, axis=place)


def _part(scope: Scope, value: Value, axis: int, start: int, end: int) -> Value:
    sizes = value.shape or ()
    begins, lengths = [0] * len(sizes), [-1] * len(sizes)
    begins[axis], lengths[axis] = start, end - start
    bounds = [scope.integers_constant(b, w) for b, w in ((begins, "begin"), (lengths, "size"))]
    shape = (*sizes[:axis], end - start, *sizes[axis + 1 :])
    return scope.emit("SLICE", [value, *bounds], shape)


@lowering("Where")
def where(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    return scope.emit("WHERE", inputs, scope.output_shape(node), DType.INT64)


@lowering("MirrorPad")
def mirror_pad(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    mode = _MIRRORS[node.attr_str("mode")]
    return scope.emit("MIRROR_PAD", inputs, scope.output_shape(node), mode=mode)


_BOOLS = frozenset({DType.BOOL})
_CODES: Final[dict[str, tuple[str, frozenset[DType]]]] = {
    "Mean": ("MEAN", LONG_NUMBERS),
    "Sum": ("SUM", LONG_NUMBERS),
    "Prod": ("REDUCE_PROD", LONG_NUMBERS),
    "Max": ("REDUCE_MAX", LONG_NUMBERS),
    "Min": ("REDUCE_MIN", LONG_NUMBERS),
    "Any": ("REDUCE_ANY", _BOOLS),
    "All": ("REDUCE_ALL", _BOOLS),
}


@lowering(*_CODES)
def reduction(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    code, types = _CODES[node.op]
    need(inputs[:1], types)
    value, constant = inputs[0], scope.known_value(node, 1)
    if value.rank == 0 or (constant is not None and not constant.size):
        return value
    axes = as_int32(scope, node, 1, inputs[1])
    if axes.data is not None:
        axes = scope.integers_constant(axes.data.reshape(-1), "axes")
    keep = node.attr_bool("keep_dims", False)
    return scope.emit(code, [value, axes], scope.output_shape(node), keep_dims=keep)


@lowering("ArgMax", "ArgMin")
def arg(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ARG_MAX or ARG_MIN."""
    need(inputs[:1], {*NUMBERS, DType.INT8, DType.UINT8, DType.BOOL})
    kind = node.attr_dtype("output_type", DType.INT64)
    if kind not in (DType.INT32, DType.INT64):
        msg = f"its indices are {kind.short}"
        raise CannotExpressError(msg, "let them be int32 or int64")
    axis = as_int32(scope, node, 1, inputs[1])
    code, shape = "ARG_MAX" if node.op == "ArgMax" else "ARG_MIN", scope.output_shape(node)
    return scope.emit(code, [inputs[0], axis], shape, kind, output_type=NAMES[kind])


@lowering("TopKV2")
def top_k(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need(inputs[:1], {*LONG_NUMBERS, DType.UINT8, DType.INT8})
    shape = scope.output_shape(node)
    outputs = [(shape, inputs[0].dtype), (shape, DType.INT32)]
    return scope.emit_many("TOPK_V2", inputs, outputs)


@lowering("L2Loss")
def l2_loss(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute sum(x * x) / 2."""
    need_float(inputs)
    value, work = inputs[0], Arithmetic(scope)
    axes = range(len(known_shape(value)))
    values = [work.one("SQUARE", value), scope.integers_constant(axes, "axes")]
    return work.mul(scope.emit("SUM", values, (), keep_dims=False), 0.5)

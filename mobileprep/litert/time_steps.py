"""Shorten the nodes that compute each time step of a sequence on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS
from mobileprep.graph.refs import Ref
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.time_axes import CUT, LAST, MIXES, Along, Mark, Steps

_WINDOW: Final = "begin the model after the convolution, and compute it in the app"
Result: TypeAlias = tuple[Node, Sequence[Mark]]
Rule: TypeAlias = Callable[[Steps, Node], Result]
_RULES: dict[str, Rule] = {}


def shorten(steps: Steps, node: Node) -> Result:
    """Return a node that reads time steps for fewer of them, and how its outputs depend on them.

    Raises:
        CannotExpressError: it may combine time steps.
    """
    rule = _RULES.get(node.op)
    if rule is None:
        raise CannotExpressError(MIXES, CUT)
    return rule(steps, node)


def _rule(*ops: str) -> Callable[[Rule], Rule]:
    def added(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, rule))
        return rule

    return added


def _along(steps: Steps, node: Node, index: int = 0) -> Along:
    """Return the axis of an operand; raise an error if only others have time steps."""
    mark = steps.mark(node.data_inputs[index])
    if not isinstance(mark, Along):
        raise CannotExpressError(MIXES, CUT)
    return mark


def _only(steps: Steps, node: Node, *indices: int) -> None:
    """Raise an error if other operands than the given ones have time steps."""
    others = [r for i, r in enumerate(node.data_inputs) if i not in indices]
    if any(steps.mark(ref) is not None for ref in others):
        raise CannotExpressError(MIXES, CUT)


_ELEMENTWISE: Final = (
    *IDENTITIES,
    *("Abs", "Neg", "Exp", "Expm1", "Log", "Log1p", "Sqrt", "Rsqrt", "Square", "Sign", "Sin"),
    *("Cos", "Tan", "Tanh", "Sigmoid", "Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign"),
    *("LeakyRelu", "Erf", "Floor", "Ceil", "Round", "Rint", "Cast", "LogicalNot", "Reciprocal"),
    *("Inv", "ZerosLike", "OnesLike", "IsNan", "IsInf", "IsFinite", "CheckNumerics", "AddN"),
    *("Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "DivNoNan", "MulNoNan", "FloorDiv"),
    *("FloorMod", "Mod", "Maximum", "Minimum", "Pow", "SquaredDifference", "Greater"),
    *("GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr"),
    *("SelectV2", "ClipByValue", "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars"),
    "FakeQuantWithMinMaxVarsPerChannel",
)


@_rule(*_ELEMENTWISE)
def _elementwise(steps: Steps, node: Node) -> Result:
    shapes = [steps.shape(ref) for ref in node.data_inputs]
    rank = max(map(len, shapes))
    marks = set()
    for ref, shape in zip(node.data_inputs, shapes, strict=True):
        mark = steps.mark(ref)
        if isinstance(mark, Along):
            marks.add(Along(mark.axis + rank - len(shape), mark.outer, mark.inner))
    if len(marks) != 1:
        raise CannotExpressError(MIXES, CUT)
    (mark,) = marks
    inputs = []
    for ref, shape in zip(node.data_inputs, shapes, strict=True):
        own = Along(mark.axis - rank + len(shape), mark.outer, mark.inner)
        is_free = steps.mark(ref) is None and own.axis >= 0 and shape[own.axis] != 1
        inputs.append(steps.shortened(node, ref, own) if is_free else ref)
    return node.with_inputs(tuple(inputs)), [mark]


@_rule("Select")
def _select(steps: Steps, node: Node) -> Result:
    if len({steps.shape(ref) for ref in node.data_inputs}) != 1:
        raise CannotExpressError(MIXES, CUT)
    return _elementwise(steps, node)


@_rule("BiasAdd")
def _bias_add(steps: Steps, node: Node) -> Result:
    mark, rank = _along(steps, node), len(steps.shape(node.data_inputs[0]))
    _only(steps, node, 0)
    channel = 1 if node.attr_str("data_format", "NHWC").startswith("NC") else rank - 1
    if mark.axis == channel:
        raise CannotExpressError(MIXES, CUT)
    return node, [mark]


@_rule("Reshape", "ExpandDims", "Squeeze")
def _reshape(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    before, after = steps.shape(node.data_inputs[0]), steps.shape(Ref(node.name))
    outer = math.prod(before[: mark.axis]) * mark.outer
    found = [
        Along(axis, outer // first, size // (outer // first) // steps.time)
        for axis, size in enumerate(after)
        if (first := math.prod(after[:axis])) and outer % first == 0
        if size and size % (outer // first * steps.time) == 0
    ]
    if not found:
        reason = "it splits the axis of the time steps"
        raise CannotExpressError(reason, CUT)
    new = min(found, key=lambda m: m.outer * m.inner)
    if node.op == "Reshape":
        sizes = [*after]
        sizes[new.axis] = steps.size(new)
        node = steps.with_constant(node, 1, np.array(sizes))
    if node.op == "Squeeze" and not node.attr_ints("squeeze_dims"):
        # The axis of time steps may have the size 1 now.
        removed = [i for i, size in enumerate(before) if size == 1]
        node = node.with_attrs(squeeze_dims=attr.integers(*removed))
    return node, [new]


@_rule("Transpose")
def _transpose(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    order = steps.axes(node.data_inputs[1], len(steps.shape(node.data_inputs[0])))
    return node, [Along(order.index(mark.axis), mark.outer, mark.inner)]


@_rule("Sum", "Mean", "Max", "Min", "Prod", "Any", "All", "ArgMax", "ArgMin")
def _reduce(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    axes = steps.axes(node.data_inputs[1], len(steps.shape(node.data_inputs[0])))
    if mark.axis in axes:
        reason = "it reduces all time steps to one value"
        raise CannotExpressError(reason, "end the model before this node, and reduce in the app")
    keeps = "keep_dims" in node.attrs and node.attr_bool("keep_dims", False)
    moved = 0 if keeps else sum(axis < mark.axis for axis in set(axes))
    return node, [Along(mark.axis - moved, mark.outer, mark.inner)]


@_rule("Softmax", "LogSoftmax", "TopKV2")
def _along_last(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    if mark.axis == len(steps.shape(node.data_inputs[0])) - 1:
        raise CannotExpressError(MIXES, CUT)
    return node, [mark, mark]


@_rule("Cumsum", "Cumprod", "ReverseV2")
def _along_axes(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    if mark.axis in steps.axes(node.data_inputs[1], len(steps.shape(node.data_inputs[0]))):
        if node.op == "ReverseV2":
            raise CannotExpressError(*_REVERSES)
        raise CannotExpressError(MIXES, CUT)
    return node, [mark]


_REVERSES: Final = (
    "it reverses the time steps, and a stream does not have its last step yet",
    "train without bidirectional and backward layers, or leave out 'streaming'",
)


@_rule("ReverseSequence")
def _reverse_sequence(steps: Steps, node: Node) -> Result:
    raise CannotExpressError(*_REVERSES)


@_rule("ConcatV2", "Pack")
def _join(steps: Steps, node: Node) -> Result:
    is_pack = node.op == "Pack"
    parts = node.data_inputs if is_pack else node.data_inputs[:-1]
    marks = {m for m in map(steps.mark, parts) if isinstance(m, Along)}
    rank = len(steps.shape(parts[0]))
    axis = node.attr_int("axis", 0) if is_pack else int(steps.constant(node.data_inputs[-1]))
    axis %= rank + is_pack
    mark = marks.pop()
    if marks or (axis == mark.axis and not is_pack):
        raise CannotExpressError(MIXES, CUT)
    inputs = [steps.shortened(node, ref, mark) if steps.mark(ref) is None else ref for ref in parts]
    moved = Along(mark.axis + (is_pack and axis <= mark.axis), mark.outer, mark.inner)
    return node.with_inputs((*inputs, *node.data_inputs[len(parts) :])), [moved]


@_rule("Split", "SplitV")
def _split(steps: Steps, node: Node) -> Result:
    value, place = (1, 0) if node.op == "Split" else (0, 2)
    mark = _along(steps, node, value)
    rank = len(steps.shape(node.data_inputs[value]))
    if mark.axis in steps.axes(node.data_inputs[place], rank):
        reason = "it splits the time steps"
        raise CannotExpressError(reason, CUT)
    return node, [mark] * node.attr_int("num_split")


@_rule("Unpack")
def _unpack(steps: Steps, node: Node) -> Result:
    mark, count = _along(steps, node), node.attr_int("num")
    rank = len(steps.shape(node.data_inputs[0]))
    axis = node.attr_int("axis", 0) % rank
    if axis == mark.axis:
        reason = "it takes single time steps"
        raise CannotExpressError(reason, _TAKE_LAST)
    return node, [Along(mark.axis - (axis < mark.axis), mark.outer, mark.inner)] * count


_TAKE_LAST: Final = "take all time steps, or the last one as in `x[:, -1]`"


@_rule("StridedSlice")
def _strided_slice(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    begin, end, strides = (steps.constant(ref).copy() for ref in node.data_inputs[1:4])
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {name: node.attr_int(f"{name}_mask", 0) for name in names}
    rank = len(steps.shape(node.data_inputs[0]))
    has = {name: [bool(mask >> i & 1) for i in range(len(begin))] for name, mask in masks.items()}
    named = sum(not (e or n) for e, n in zip(has["ellipsis"], has["new_axis"], strict=True))
    axis, output = 0, 0
    for i in range(len(begin)):
        if has["ellipsis"][i]:
            skipped = rank - named
            if axis <= mark.axis < axis + skipped:
                output += mark.axis - axis
                break
            axis, output = axis + skipped, output + skipped
        elif has["new_axis"][i]:
            output += 1
        elif axis == mark.axis:
            first = 0 if has["begin"][i] else int(begin[i])
            is_single = has["shrink_axis"][i]
            is_rest = (has["end"][i] or end[i] >= steps.time) and strides[i] == 1
            if first == 0 and is_rest and not is_single:
                node = node.with_attrs(end_mask=attr.integer(masks["end"] | 1 << i))
                break
            _check_last(steps, mark, first if is_rest or is_single else 0)
            begin[i], end[i] = steps.count - 1, steps.count
            node = steps.with_constant(steps.with_constant(node, 1, begin), 2, end)
            return node, [LAST]
        else:
            axis, output = axis + 1, output + (not has["shrink_axis"][i])
    else:
        output += mark.axis - axis
    return node, [Along(output, mark.outer, mark.inner)]


def _check_last(steps: Steps, mark: Along, index: int) -> None:
    """Raise an error unless an index is that of the last time step."""
    if index % steps.time != steps.time - 1 or mark.outer * mark.inner != 1:
        reason = "it takes some of the time steps"
        raise CannotExpressError(reason, _TAKE_LAST)


@_rule("Slice")
def _slice(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    begin, size = (steps.constant(ref).copy() for ref in node.data_inputs[1:3])
    total = mark.outer * steps.time * mark.inner
    if begin[mark.axis] == 0 and size[mark.axis] in (-1, total):
        size[mark.axis] = -1
        return steps.with_constant(node, 2, size), [mark]
    _check_last(steps, mark, int(begin[mark.axis]))
    begin[mark.axis] = steps.count - 1
    return steps.with_constant(node, 1, begin), [LAST]


@_rule("GatherV2", "Gather")
def _gather(steps: Steps, node: Node) -> Result:
    values, index = node.data_inputs[:2]
    if node.attr_int("batch_dims", 0):
        raise CannotExpressError(MIXES, CUT)
    rank = len(steps.shape(values))
    axis = 0 if node.op == "Gather" else steps.axes(node.data_inputs[2], rank)[0]
    if steps.mark(values) is None:
        mark = _along(steps, node, 1)
        return node, [Along(axis + mark.axis, mark.outer, mark.inner)]
    mark = _along(steps, node)
    _only(steps, node, 0)
    if axis != mark.axis:
        moved = len(steps.shape(index)) - 1 if axis < mark.axis else 0
        return node, [Along(mark.axis + moved, mark.outer, mark.inner)]
    number = steps.constant(index)
    if mark == Along(axis) and np.array_equal(number, np.arange(steps.time)):
        return steps.with_constant(node, 1, np.arange(steps.count)), [mark]
    if number.size != 1:
        reason = "it takes some of the time steps"
        raise CannotExpressError(reason, _TAKE_LAST)
    _check_last(steps, mark, int(number.reshape(())))
    return steps.with_constant(node, 1, np.full(number.shape, steps.count - 1)), [LAST]


@_rule("Tile", "Pad", "PadV2", "MirrorPad")
def _grow(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    amounts = steps.constant(node.data_inputs[1])[mark.axis]
    if np.any(amounts != (1 if node.op == "Tile" else 0)):
        reason = "it adds time steps, as before a causal convolution"
        raise CannotExpressError(reason, _WINDOW)
    return node, [mark]


@_rule("BroadcastTo")
def _broadcast_to(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    sizes = [*steps.shape(Ref(node.name))]
    axis = mark.axis + len(sizes) - len(steps.shape(node.data_inputs[0]))
    moved = Along(axis, mark.outer, mark.inner)
    sizes[axis] = steps.size(mark)
    return steps.with_constant(node, 1, np.array(sizes)), [moved]


@_rule("OneHot")
def _one_hot(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    axis = node.attr_int("axis", -1) % (len(steps.shape(node.data_inputs[0])) + 1)
    return node, [Along(mark.axis + (axis <= mark.axis), mark.outer, mark.inner)]


@_rule("MatMul", "BatchMatMul", "BatchMatMulV2")
def _matrix_product(steps: Steps, node: Node) -> Result:
    shapes = [steps.shape(ref) for ref in node.data_inputs]
    rank = max(map(len, shapes))
    names = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
    turned = [node.attr_bool(name, False) for name in names]
    # The axis of each operand that the product sums over.
    summed = [rank - 2 if turned[0] else rank - 1, rank - 1 if turned[1] else rank - 2]
    marks = [steps.mark(ref) for ref in node.data_inputs]
    axes = [
        mark.axis + rank - len(shape) if isinstance(mark, Along) else None
        for mark, shape in zip(marks, shapes, strict=True)
    ]
    if any(axis == s for axis, s in zip(axes, summed, strict=True)):
        reason = "it computes weighted sums of the time steps, as attention does"
        raise CannotExpressError(reason, "end the model before this node, or leave out 'streaming'")
    (axis, other), first = axes, next(m for m in marks if isinstance(m, Along))
    if None not in axes and (axis != other or marks[0] is None or _is_matrix(axis, rank)):
        reason = "it compares time steps with one another, as attention does"
        raise CannotExpressError(reason, "end the model before this node, or leave out 'streaming'")
    place = axis if axis is not None else other
    assert place is not None
    if _is_matrix(place, rank):
        place = rank - 2 if axis is not None else rank - 1
    elif None in axes:
        shape = shapes[axes.index(None)]
        if len(shape) > rank - 1 - place and shape[place - rank + len(shape)] != 1:
            raise CannotExpressError(MIXES, CUT)
    return node, [Along(place, first.outer, first.inner)]


def _is_matrix(axis: int | None, rank: int) -> bool:
    """Return whether an axis is one of the last two, of the matrices."""
    return axis is not None and axis >= rank - 2


_WINDOWS: Final = ("Conv2D", "DepthwiseConv2dNative", "MaxPool", "AvgPool")


@_rule(*_WINDOWS)
def _windows(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    if mark.axis == 0:
        return node, [mark]
    is_first = node.attr_str("data_format", "NHWC") == "NCHW"
    spatial = mark.axis - (2 if is_first else 1)
    strides = node.attr_ints("strides")
    if 0 <= spatial < 2 and strides[mark.axis] == 1:
        if node.op in ("MaxPool", "AvgPool"):
            size = node.attr_ints("ksize")[mark.axis]
        else:
            size = steps.shape(node.data_inputs[1])[spatial]
        if size == 1:
            return node, [mark]
    what = "pools" if node.op in ("MaxPool", "AvgPool") else "convolves"
    reason = f"it {what} over time, and a stream does not keep the time steps before"
    raise CannotExpressError(reason, _WINDOW)


_IMAGES: Final = ("LRN", "ResizeBilinear", "ResizeNearestNeighbor", "DepthToSpace", "SpaceToDepth")


@_rule("Conv3D", "MaxPool3D", "AvgPool3D", *_IMAGES)
def _images(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    if mark.axis != 0:
        raise CannotExpressError(MIXES, CUT)
    return node, [mark]


@_rule(*sorted(FUSED_BATCH_NORMS))
def _batch_norm(steps: Steps, node: Node) -> Result:
    mark = _along(steps, node)
    _only(steps, node, 0)
    channel = 1 if node.attr_str("data_format", "NHWC").startswith("NC") else -1
    if mark.axis == channel % len(steps.shape(node.data_inputs[0])):
        raise CannotExpressError(MIXES, CUT)
    return node, [mark]

"""Operators that together are one builtin, replaced by it where both compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.ir.tensor import Array
from mobileprep.litert.activation_patterns import between, gelu
from mobileprep.litert.program import Op, Program, Readers, Value, number_of

# Rounded to float32 by whoever wrote the graph, in one way or another.
_CLOSE: Final = 1e-6
_STRIDED: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_SAME: Final = "SAME"


def with_builtins(program: Program) -> Program:
    """The program with every pattern replaced; what it leaves unread is still there."""
    for pattern in _PATTERNS:
        readers = Readers(program)
        found = ((op, pattern(op, readers)) for op in program.ops)
        ops = [op if made is None else replace(made, node=op.node) for op, made in found]
        program = program.with_ops(ops)
    return program


def _hard_swish(op: Op, readers: Readers) -> Op | None:
    """x * relu6(x + 3) / 6, in any order of its products."""
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    for factors in _products(op, readers):
        numbers = [v for v in factors if number_of(v) is not None]
        others = [v for v in factors if number_of(v) is None]
        scale = float(np.prod([number_of(v) or 0.0 for v in numbers])) if numbers else 1.0
        if len(others) != 2 or abs(scale * 6 - 1) > _CLOSE:
            continue
        for x, clipped in (others, others[::-1]):
            if _shifted_by_3(clipped, readers) is x:
                return Op("HARD_SWISH", (x,), op.outputs, Options("HardSwishOptions"))
    return None


def _products(op: Op, readers: Readers) -> Iterator[list[Value]]:
    """The factors of a product, and those of one of the products in it."""
    given = [value for value in op.inputs if value is not None]
    yield given
    for index, value in enumerate(given):
        inner = readers.maker(value)
        if inner is not None and inner.code == "MUL" and readers.once(value):
            yield [*given[:index], *given[index + 1 :], *(v for v in inner.inputs if v is not None)]
        if inner is not None and inner.code == "DIV" and readers.once(value):
            over, under = inner.inputs
            divisor = number_of(under)
            if over is not None and under is not None and divisor:
                inverse = replace(under, data=np.float32(1 / divisor))
                yield [*given[:index], *given[index + 1 :], over, inverse]


def _shifted_by_3(value: Value, readers: Readers) -> Value | None:
    """The x of relu6(x + 3)."""
    clipped = readers.maker(value)
    if clipped is None or clipped.code != "RELU6":
        return None
    total = readers.maker(clipped.inputs[0])
    if total is None or total.code != "ADD":
        return None
    for x, three in (total.inputs, total.inputs[::-1]):
        if number_of(three) == 3:
            return x
    return None


def _prelu(op: Op, readers: Readers) -> Op | None:
    """max(x, 0) - slope * max(-x, 0), as Keras and others write PReLU."""
    if op.code not in ("ADD", "SUB") or op.outputs[0].dtype is not DType.FLOAT:
        return None
    pairs = [op.inputs] if op.code == "SUB" else [op.inputs, op.inputs[::-1]]
    for above, below in pairs:
        positive, scaled = readers.maker(above), readers.maker(below)
        if positive is None or scaled is None or (positive.code, scaled.code) != ("RELU", "MUL"):
            continue
        x = positive.inputs[0]
        for slope, part in (scaled.inputs, scaled.inputs[::-1]):
            if slope is None or slope.data is None or not _is_negative_part(part, x, readers):
                continue
            sign = -1 if op.code == "ADD" else 1
            return _prelu_op(op, x, slope, sign * slope.data)
    return None


def _prelu_op(op: Op, x: Value | None, slope: Value, values: Array) -> Op | None:
    if x is None or x.rank is None or values.ndim > x.rank or x.rank < 2:
        return None
    # One slope for each place of a sample; the runtime repeats those along sizes of 1.
    if values.ndim == x.rank and values.shape[0] == 1:
        values = values[0]
    shaped = values.reshape((1,) * max(x.rank - 1 - values.ndim, 0) + values.shape)
    if shaped.ndim != x.rank - 1:
        return None
    data = np.ascontiguousarray(shaped, np.float32)
    made = Value(f"{slope.name}_slope", DType.FLOAT, data.shape, data)
    return Op("PRELU", (x, made), op.outputs)


def _is_negative_part(value: Value | None, x: Value | None, readers: Readers) -> bool:
    """Whether a value is max(-x, 0)."""
    clipped = readers.maker(value)
    if clipped is None or clipped.code != "RELU":
        return False
    negated = readers.maker(clipped.inputs[0])
    return negated is not None and negated.code == "NEG" and negated.inputs[0] is x


def _l2_normalization(op: Op, readers: Readers) -> Op | None:
    """x * rsqrt(max(sum(x * x), epsilon)) along the last dimension."""
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    for x, factor in (op.inputs, op.inputs[::-1]):
        root = readers.maker(factor)
        if x is None or root is None or root.code != "RSQRT" or not x.rank:
            continue
        total = readers.maker(root.inputs[0])
        if total is not None and total.code == "MAXIMUM":
            least = [v for v in total.inputs if (number_of(v) or 1.0) <= _CLOSE]
            rest = [v for v in total.inputs if v not in least]
            total = readers.maker(rest[0]) if least and len(rest) == 1 else None
            if total is not None and _is_sum_of_squares(total, x, readers):
                return Op("L2_NORMALIZATION", (x,), op.outputs, Options("L2NormOptions"))
    return None


def _is_sum_of_squares(total: Op, x: Value, readers: Readers) -> bool:
    squares, axes = total.inputs[:2] if len(total.inputs) > 1 else (None, None)
    kept = total.options is not None and bool(total.options.values.get("keep_dims", False))
    if total.code != "SUM" or not kept or axes is None or axes.data is None:
        return False
    if [int(a) % (x.rank or 1) for a in axes.data.reshape(-1)] != [(x.rank or 1) - 1]:
        return False
    square = readers.maker(squares)
    if square is None:
        return False
    if square.code == "MUL":
        return square.inputs == (x, x)
    return square.code == "SQUARE" and square.inputs[0] is x


def _padding_as_same(op: Op, readers: Readers) -> Op | None:
    """A convolution behind PAD that pads as SAME does: zeros, in the same places."""
    options = op.options
    if op.code not in _STRIDED or options is None or options.values.get("padding") != "VALID":
        return None
    before = readers.maker(op.inputs[0])
    if before is None or before.code != "PAD" or not readers.once(before.outputs[0]):
        return None
    image, amounts = before.inputs[:2]
    weights = op.inputs[1]
    if image is None or amounts is None or amounts.data is None or weights is None:
        return None
    if image.rank != 4 or weights.shape is None or image.shape is None:
        return None
    wanted = [(0, 0)]
    for axis, side in ((1, "h"), (2, "w")):
        stride = _whole(options, f"stride_{side}")
        dilation = _whole(options, f"dilation_{side}_factor")
        wanted.append(_same(image.shape[axis], weights.shape[axis], stride, dilation))
    wanted.append((0, 0))
    if [tuple(map(int, pair)) for pair in amounts.data] != wanted:
        return None
    values = {**options.values, "padding": _SAME}
    inputs = (image, *op.inputs[1:])
    return replace(op, inputs=inputs, options=replace(options, values=values))


def _whole(options: Options, name: str) -> int:
    """An option that is a whole number, 1 where it is not given."""
    value = options.values.get(name, 1)
    assert isinstance(value, int)
    return value


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """What SAME adds before and behind; nothing that fits where the size is not known."""
    if size < 0:
        return (-1, -1)
    span = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return (total // 2, total - total // 2)


_PATTERNS: Final[tuple[Callable[[Op, Readers], Op | None], ...]] = (
    between,
    gelu,
    _hard_swish,
    _prelu,
    _l2_normalization,
    _padding_as_same,
)

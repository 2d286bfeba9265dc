"""Diagonals and bands of matrices, cumulative products, and Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.ops.conv import matrix_product
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, gather, known_size, reshaped, transposed
from mobileprep.litert.types import LONG_NUMBERS, need, need_float

_LEFT: Final = "LEFT_LEFT"
_BOOLS: Final = frozenset({DType.BOOL})
# Maximum length of a cumulative product, which multiplies its memory by the length.
_LONGEST: Final = 256


@lowering("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit MATRIX_DIAG for a main diagonal and zeros elsewhere, else GATHER and SELECT_V2."""
    diagonals = inputs[0]
    need([diagonals], LONG_NUMBERS)
    if not diagonals.rank:
        message = "its diagonal is a single number, or of unknown rank"
        raise CannotExpressError(message, "give a diagonal of one dimension or more")
    if node.op == "MatrixDiag" or _is_plain(scope, node, diagonals):
        return scope.emit("MATRIX_DIAG", [diagonals], scope.output_shape(node))
    work = IndexArithmetic(scope)
    band = _Band(work, node, inputs[1])
    longest = known_size(diagonals, -1)
    requested = [as_int32(scope, node, i, inputs[i]) for i in (2, 3)]
    least = [
        work.sub(longest, work.minimum(band.high, 0)),
        work.add(longest, work.maximum(band.low, 0)),
    ]
    is_open = [work.less(size, 0) for size in requested]
    square = work.maximum(*least)
    rows, columns = (
        work.select(
            is_open[i], work.select(is_open[1 - i], square, least[i]), work.maximum(requested[i], 0)
        )
        for i in (0, 1)
    )
    return _placed(work, node, diagonals, band, (rows, columns), inputs[4])


@lowering("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit MATRIX_SET_DIAG for the main diagonal, else GATHER and SELECT_V2."""
    matrices, diagonals = inputs[:2]
    need(inputs[:2], LONG_NUMBERS)
    offsets = None if node.op == "MatrixSetDiag" else scope.known_value(node, 2)
    if node.op == "MatrixSetDiag" or (offsets is not None and not np.any(offsets)):
        return scope.emit("MATRIX_SET_DIAG", inputs[:2], scope.output_shape(node))
    work = IndexArithmetic(scope)
    sizes = (work.number(known_size(matrices, -2)), work.number(known_size(matrices, -1)))
    return _placed(work, node, diagonals, _Band(work, node, inputs[2]), sizes, matrices)


@lowering("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """GATHER the diagonals, and SELECT_V2 the padding of shorter ones."""
    matrices = inputs[0]
    need([matrices], LONG_NUMBERS)
    rows, columns = known_size(matrices, -2), known_size(matrices, -1)
    work = IndexArithmetic(scope)
    band = _Band(work, node, inputs[1] if len(inputs) > 1 else work.number(0))
    longest = work.minimum(
        work.add(rows, work.minimum(band.high, 0)), work.sub(columns, work.maximum(band.low, 0))
    )
    offset, column = band.high, work.range(longest)
    if not band.is_single:
        count = work.add(work.sub(band.high, band.low), 1)
        offset = work.sub(band.high, work.reshaped(work.range(count), (-1, 1)))
    length = band.length(offset, rows, columns)
    place = work.sub(column, band.shift(offset, length, longest))
    row = work.add(place, work.maximum(work.sub(0, offset), 0))
    flat = work.add(work.mul(row, columns), work.add(place, work.maximum(offset, 0)))
    inside = work.both(work.less(-1, place), work.less(place, length))
    gathered = _gathered(work, matrices, flat, 2)
    if inside.data is not None and inside.data.all():
        return gathered
    padding = inputs[2] if len(inputs) > 2 else Arithmetic(scope, matrices.dtype).number(0)
    return _chosen(scope, node, inside, gathered, padding)


@lowering("MatrixBandPart")
def matrix_band_part(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit SELECT_V2 between the matrices and zero, or LOGICAL_AND for bool."""
    value = inputs[0]
    need([value], LONG_NUMBERS | _BOOLS)
    rows, columns = np.ogrid[: known_size(value, -2), : known_size(value, -1)]
    work = IndexArithmetic(scope)
    below, above = (work.reshaped(as_int32(scope, node, i, inputs[i]), ()) for i in (1, 2))
    distance = work.number(rows - columns)
    in_band = work.both(
        work.either(work.less(below, 0), work.less(distance, work.add(below, 1))),
        work.either(work.less(above, 0), work.less(work.sub(0, distance), work.add(above, 1))),
    )
    shape = scope.output_shape(node)
    if value.dtype is DType.BOOL:
        return scope.emit("LOGICAL_AND", [value, in_band], shape, DType.BOOL)
    return _selected(scope, in_band, value, 0, shape or ())


class _Band:
    """The diagonals that an op reads or writes, from the lowest to the highest offset.

    Source: the op definitions of MatrixDiagPartV3 and MatrixDiagV3 in TensorFlow.
    """

    def __init__(self, work: IndexArithmetic, node: Node, offsets: Value) -> None:
        self._work = work
        if offsets.shape is None or offsets.shape not in ((), (1,), (2,)):
            message = "the number of its diagonals is not known"
            raise CannotExpressError(message, "give one offset, or the lowest and the highest")
        self.is_single = offsets.shape != (2,)
        if offsets.data is not None:
            self.low, self.high = (work.number(offsets.data.reshape(-1)[i]) for i in (0, -1))
            self.is_single = self.is_single or bool(offsets.data[0] == offsets.data[1])
        elif self.is_single:
            self.low = self.high = work.reshaped(offsets, ())
        else:
            self.low, self.high = (work.element(offsets, i) for i in (0, 1))
        self._align = node.attr_str("align", "RIGHT_LEFT") if node.op.endswith("V3") else _LEFT

    def length(self, offset: Value, rows: Value | int, columns: Value | int) -> Value:
        """Return the number of elements of the diagonal at an offset."""
        work = self._work
        return work.minimum(
            work.add(rows, work.minimum(offset, 0)), work.sub(columns, work.maximum(offset, 0))
        )

    def shift(self, offset: Value, length: Value, longest: Value | int) -> Value:
        """Return the padding before a diagonal's first element, which depends on the alignment."""
        work = self._work
        right = work.sub(longest, length)
        if self._align == _LEFT:
            return work.number(0)
        if self._align == "RIGHT_RIGHT":
            return right
        is_right = work.less(0, offset) if self._align == "RIGHT_LEFT" else work.less(offset, 0)
        return work.select(is_right, right, work.number(0))


def _placed(
    work: IndexArithmetic,
    node: Node,
    diagonals: Value,
    band: _Band,
    sizes: tuple[Value, Value],
    otherwise: Value,
) -> Value:
    """Return matrices with the given diagonals and other values elsewhere."""
    rows, columns = sizes
    longest = known_size(diagonals, -1)
    count = 1 if band.is_single else known_size(diagonals, -2)
    row, column = work.reshaped(work.range(rows), (-1, 1)), work.range(columns)
    offset = work.sub(column, row)
    shift = band.shift(offset, band.length(offset, rows, columns), longest)
    place = work.add(work.minimum(row, column), shift)
    flat = work.add(work.mul(work.sub(band.high, offset), longest), place)
    last = count * longest - 1
    flat = work.maximum(work.minimum(flat, last), 0)
    inside = work.both(
        work.less(work.sub(band.low, 1), offset), work.less(offset, work.add(band.high, 1))
    )
    gathered = _gathered(work, diagonals, flat, 1 if band.is_single else 2)
    return _chosen(work.scope, node, inside, gathered, otherwise)


def _gathered(work: IndexArithmetic, value: Value, flat: Value, axes: int) -> Value:
    """GATHER elements of the flattened last axes, with indices clipped to the valid range."""
    sizes = value.shape or ()
    last = math.prod(sizes[-axes:]) - 1
    places = work.maximum(work.minimum(flat, last), 0)
    rest = sizes[:-axes]
    line = reshaped(work.scope, value, (*rest, last + 1)) if rest.count(-1) < 2 else None
    if line is None:
        message = "more than one of the sizes before its matrices is not known"
        raise CannotExpressError(message, GIVE_SHAPES)
    return gather(work.scope, line, places, len(rest))


def _chosen(scope: Scope, node: Node, inside: Value, value: Value, otherwise: Value) -> Value:
    # The runtime treats a tensor of one element as a scalar if the file does not record its rank.
    shape = value.shape if scope.output_shape(node) is None else scope.output_shape(node)
    values = [inside, value, otherwise]
    return scope.emit("SELECT_V2", values, shape, value.dtype)


def _is_plain(scope: Scope, node: Node, diagonal: Value) -> bool:
    """Return whether the result is a square matrix with a main diagonal and zeros elsewhere."""
    constants = [scope.known_value(node, i) for i in range(1, 5)]
    if any(values is None for values in constants):
        return False
    length = -1 if diagonal.shape is None else diagonal.shape[-1]
    offsets, *sizes, padding = (np.asarray(values) for values in constants)
    return (
        not np.any(offsets) and not np.any(padding) and all(size in (-1, length) for size in sizes)
    )


@lowering("Cumprod")
def cumprod(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """REDUCE_PROD the input for each position, with ones for excluded factors."""
    value = inputs[0]
    need([value], LONG_NUMBERS)
    (axis,) = scope.integers(node, 1, "axis")
    count = known_size(value, axis)
    if count > _LONGEST:
        message = f"it runs along {count} numbers, of at most {_LONGEST}"
        raise CannotExpressError(message, "cut the graph before it, and feed its output")
    sizes = value.shape or ()
    axis %= len(sizes)
    operands = [value, scope.integers_constant([axis], "axis")]
    apart = scope.emit("EXPAND_DIMS", operands, (*sizes[:axis], 1, *sizes[axis:]))
    reached = _reached(node, count).reshape(count, count, *(1,) * (len(sizes) - axis - 1))
    spread = (*sizes[:axis], count, *sizes[axis:])
    factors = _selected(scope, scope.constant(reached, "reached"), apart, 1, spread)
    along = scope.integers_constant([axis + 1], "axes")
    shape = scope.output_shape(node)
    return scope.emit("REDUCE_PROD", [factors, along], shape, keep_dims=False)


def _reached(node: Node, count: int) -> Array:
    """Return whether each position of a cumulative product includes the factor at each position."""
    here, there = np.ogrid[:count, :count]
    if node.attr_bool("reverse", False):
        here, there = there, here
    return np.asarray(there < here if node.attr_bool("exclusive", False) else there <= here)


def _selected(
    scope: Scope, chosen: Value, value: Value, otherwise: int, shape: tuple[int, ...]
) -> Value:
    """Select a value where a condition holds, and a number elsewhere."""
    values = [chosen, value, Arithmetic(scope, value.dtype).number(otherwise)]
    return scope.emit("SELECT_V2", values, shape, value.dtype)


_HINT = "write it as transpositions and products"


class _Labels(Struct, frozen=True):
    """The labels of an equation, by their role.

    Args:
        batch: in both operands and the result.
        lhs, rhs: in one operand and the result.
        summed: in both operands, but not in the result.
    """

    batch: str
    lhs: str
    rhs: str
    summed: str


@lowering("Einsum")
def einsum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit BATCH_MATMUL or FULLY_CONNECTED of transposed operands; for one, SUM and TRANSPOSE."""
    need_float(inputs)
    terms, result = _equation(node, inputs)
    if len(inputs) == 1:
        return _of_one(scope, inputs[0], terms[0], result)
    return _of_two(scope, inputs, terms, result)


def _equation(node: Node, inputs: Sequence[Value]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, with ellipses replaced by letters."""
    text = node.attr_str("equation").replace(" ", "")
    operands, arrow, result = text.partition("->")
    terms = operands.split(",")
    if not arrow or len(terms) != len(inputs) or len(terms) > 2:
        message = f"its equation {text!r} is not of one or two operands"
        raise CannotExpressError(message, _HINT)
    spare = [c for c in map(chr, range(65, 91)) if c not in text]
    shared = ""
    for index, term in enumerate(terms):
        rank = inputs[index].rank
        if rank is None:
            msg = "the rank of an input is not known"
            raise CannotExpressError(msg, GIVE_SHAPES)
        if "..." in term:
            dots = "".join(spare[: rank - len(term) + 3])
            if shared and dots != shared:
                message = "its operands have dots of several lengths"
                raise CannotExpressError(message, _HINT)
            terms[index], shared = term.replace("...", dots), dots
    result = result.replace("...", shared)
    if any(len(set(term)) != len(term) for term in (*terms, result)):
        msg = f"its equation {text!r} names a label twice"
        raise CannotExpressError(msg, _HINT)
    return terms, result


def _of_one(scope: Scope, value: Value, labels: str, result: str) -> Value:
    summed = [i for i, label in enumerate(labels) if label not in result]
    if summed:
        assert value.shape is not None
        shape = tuple(d for i, d in enumerate(value.shape) if i not in summed)
        axes = scope.integers_constant(summed, "axes")
        value = scope.emit("SUM", [value, axes], shape, keep_dims=False)
        labels = "".join(label for label in labels if label in result)
    return _turned(scope, value, labels, result)


def _of_two(scope: Scope, inputs: Sequence[Value], terms: Sequence[str], result: str) -> Value:
    values, labels = [], []
    for value, term, other in zip(inputs, terms, terms[::-1], strict=True):
        retained = "".join(label for label in term if label in other or label in result)
        values.append(_of_one(scope, value, term, retained))
        labels.append(retained)
    sizes = _sizes(values, labels)
    lhs, rhs = labels
    parts = _Labels(
        "".join(c for c in result if c in lhs and c in rhs),
        "".join(c for c in result if c in lhs and c not in rhs),
        "".join(c for c in result if c in rhs and c not in lhs),
        "".join(c for c in lhs if c in rhs and c not in result),
    )
    batch = [sizes[c] for c in parts.batch]
    rows, columns, depth = (
        math.prod(sizes[c] for c in part) if all(sizes[c] >= 0 for c in part) else -1
        for part in (parts.lhs, parts.rhs, parts.summed)
    )
    first = _turned(scope, values[0], lhs, parts.batch + parts.lhs + parts.summed)
    second = _turned(scope, values[1], rhs, parts.batch + parts.summed + parts.rhs)
    first = _grouped(scope, first, [*batch, rows, depth])
    second = _grouped(scope, second, [*batch, depth, columns])
    product = matrix_product(scope, first, second, (*batch, rows, columns))
    shape = [sizes[c] for c in parts.batch + parts.lhs + parts.rhs]
    whole = _grouped(scope, product, shape)
    return _turned(scope, whole, parts.batch + parts.lhs + parts.rhs, result)


def _sizes(values: Sequence[Value], labels: Sequence[str]) -> dict[str, int]:
    """Return the size of each label, or -1 if unknown."""
    sizes: dict[str, int] = {}
    for value, term in zip(values, labels, strict=True):
        assert value.shape is not None
        for label, size in zip(term, value.shape, strict=True):
            previous = sizes.get(label, -1)
            if previous >= 0 and size >= 0 and previous != size:
                message = f"its label {label!r} is {previous} here and {size} there"
                raise CannotExpressError(message, _HINT)
            sizes[label] = max(previous, size)
    return sizes


def _turned(scope: Scope, value: Value, labels: str, order: str) -> Value:
    """Transpose a value to the order of the wanted labels."""
    if labels == order:
        return value
    return transposed(scope, value, [labels.index(label) for label in order])


def _grouped(scope: Scope, value: Value, shape: Sequence[int]) -> Value:
    """Reshape a value to merge or split its dimensions."""
    if value.shape == tuple(shape):
        return value
    if list(shape).count(-1) > 1:
        msg = "several of its sizes are open"
        raise CannotExpressError(msg, GIVE_SHAPES)
    return reshaped(scope, value, shape)

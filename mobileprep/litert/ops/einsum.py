"""Einsum, as a product of matrices between transpositions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.litert.ops.conv import matrix_product
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import reshaped, transposed
from mobileprep.litert.types import need_float

_MEND = "write it as transpositions and products"


@dataclass(frozen=True)
class _Labels:
    """The labels of an equation, by what becomes of them.

    Args:
        batch: in both operands and in the result.
        left, right: in one operand and in the result.
        summed: in both operands alone.
    """

    batch: str
    left: str
    right: str
    summed: str


@lowering("Einsum")
def einsum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BATCH_MATMUL or FULLY_CONNECTED of operands that are turned; SUM and TRANSPOSE of one."""
    need_float(node, inputs)
    terms, wanted = _equation(node, inputs)
    if len(inputs) == 1:
        return _of_one(scope, inputs[0], terms[0], wanted)
    return _of_two(scope, inputs, terms, wanted)


def _equation(node: Node, inputs: Sequence[Value]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, with letters in place of dots."""
    text = node.attr_str("equation").replace(" ", "")
    given, arrow, wanted = text.partition("->")
    terms = given.split(",")
    if not arrow or len(terms) != len(inputs) or len(terms) > 2:
        message = f"its equation {text!r} is not of one or two operands"
        raise CannotExpressError(message, _MEND)
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
                raise CannotExpressError(message, _MEND)
            terms[index], shared = term.replace("...", dots), dots
    wanted = wanted.replace("...", shared)
    if any(len(set(term)) != len(term) for term in (*terms, wanted)):
        msg = f"its equation {text!r} names a label twice"
        raise CannotExpressError(msg, _MEND)
    return terms, wanted


def _of_one(scope: Scope, value: Value, labels: str, wanted: str) -> Value:
    summed = [i for i, label in enumerate(labels) if label not in wanted]
    if summed:
        assert value.shape is not None
        shape = tuple(d for i, d in enumerate(value.shape) if i not in summed)
        axes = scope.integers_constant(summed, "axes")
        table = "ReducerOptions"
        value = scope.emit("SUM", [value, axes], shape, DType.FLOAT, table, keep_dims=False)
        labels = "".join(label for label in labels if label in wanted)
    return _turned(scope, value, labels, wanted)


def _of_two(scope: Scope, inputs: Sequence[Value], terms: Sequence[str], wanted: str) -> Value:
    values, labels = [], []
    for value, term, other in zip(inputs, terms, terms[::-1], strict=True):
        kept = "".join(label for label in term if label in other or label in wanted)
        values.append(_of_one(scope, value, term, kept))
        labels.append(kept)
    sizes = _sizes(values, labels)
    left, right = labels
    parts = _Labels(
        "".join(c for c in wanted if c in left and c in right),
        "".join(c for c in wanted if c in left and c not in right),
        "".join(c for c in wanted if c in right and c not in left),
        "".join(c for c in left if c in right and c not in wanted),
    )
    batch = [sizes[c] for c in parts.batch]
    rows, columns, depth = (
        math.prod(sizes[c] for c in part) if all(sizes[c] >= 0 for c in part) else -1
        for part in (parts.left, parts.right, parts.summed)
    )
    first = _turned(scope, values[0], left, parts.batch + parts.left + parts.summed)
    second = _turned(scope, values[1], right, parts.batch + parts.summed + parts.right)
    first = _grouped(scope, first, [*batch, rows, depth])
    second = _grouped(scope, second, [*batch, depth, columns])
    product = matrix_product(scope, first, second, (*batch, rows, columns))
    shape = [sizes[c] for c in parts.batch + parts.left + parts.right]
    whole = _grouped(scope, product, shape)
    return _turned(scope, whole, parts.batch + parts.left + parts.right, wanted)


def _sizes(values: Sequence[Value], labels: Sequence[str]) -> dict[str, int]:
    """The size of each label, -1 where it is not known."""
    sizes: dict[str, int] = {}
    for value, term in zip(values, labels, strict=True):
        assert value.shape is not None
        for label, size in zip(term, value.shape, strict=True):
            known = sizes.get(label, -1)
            if known >= 0 and size >= 0 and known != size:
                message = f"its label {label!r} is {known} here and {size} there"
                raise CannotExpressError(message, _MEND)
            sizes[label] = max(known, size)
    return sizes


def _turned(scope: Scope, value: Value, labels: str, wanted: str) -> Value:
    """A value with its dimensions in the order of labels."""
    if labels == wanted:
        return value
    return transposed(scope, value, [labels.index(label) for label in wanted])


def _grouped(scope: Scope, value: Value, shape: Sequence[int]) -> Value:
    """A value under a shape with as many dimensions as wanted."""
    if value.shape == tuple(shape):
        return value
    if list(shape).count(-1) > 1:
        msg = "several of its sizes are open"
        raise CannotExpressError(msg, GIVE_SHAPES)
    return reshaped(scope, value, shape)

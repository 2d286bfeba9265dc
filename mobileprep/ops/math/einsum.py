"""Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mobileprep.core.limits import spend_products
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation, same_type
from mobileprep.ops.cost import Sizes, UnknownCostError, flop_rule
from mobileprep.ops.dims import UNKNOWN, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_MOST_INPUTS = 16
_LITTLE = 1 << 22
# Products take so many times as long where axes stay on both sides, and no library helps.
_COST = 8


@kernel("Einsum")
def einsum(node: Node, *inputs: Array) -> Array:
    """The sum of products that the attribute ``equation`` tells, such as "bij,bjk->bik"."""
    same_type(node, *inputs)
    equation = node.attr_str("equation").replace(" ", "")
    if len(inputs) > _MOST_INPUTS:
        message = f"{len(inputs)} inputs, more than {_MOST_INPUTS}"
        raise ValueError(message)
    shape, combinations = _sizes(equation, inputs)
    check_allocation(shape, inputs[0].dtype)
    spend_products(_COST * combinations, inputs[0].dtype)
    # Nothing on the way from several inputs to the result may be far larger than these are.
    largest = max(_LITTLE, math.prod(shape), *(x.size for x in inputs))
    path: Any = True if len(inputs) <= 2 else ("greedy", largest)
    if inputs[0].dtype.itemsize == 2 and inputs[0].dtype.kind not in "iu":
        wide = [x.astype(np.float32) for x in inputs]
        return np.asarray(np.einsum(equation, *wide, optimize=path)).astype(inputs[0].dtype)
    return np.asarray(np.einsum(equation, *inputs, optimize=path), dtype=inputs[0].dtype)


@shape_fn("Einsum")
def einsum_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The output's letters with the sizes that the inputs give them."""
    equation = args.node.attr_str("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or "..." in equation or len(terms) != len(args.shapes):
        return [None]
    sizes: dict[str, int] = {}
    for term, given in zip(terms, args.shapes, strict=True):
        for letter, size in zip(term, with_rank(given, len(term)), strict=True):
            sizes[letter] = merge_dim(sizes.get(letter, UNKNOWN), size)
    return [tuple(sizes.get(letter, UNKNOWN) for letter in right)]


@flop_rule("Einsum")
def einsum_flops(sizes: Sizes) -> float:
    """A multiplication and an addition for each combination of indices; of one tensor a sum."""
    left = sizes.node.attr_str("equation").replace(" ", "").split("->")[0]
    terms = left.split(",")
    if len(terms) != len(sizes.inputs) or "." in left:
        raise UnknownCostError
    extents: dict[str, int] = {}
    for index, term in enumerate(terms):
        extents.update(zip(term, sizes.input(index), strict=True))
    combinations = math.prod(extents.values())
    return 2 * combinations if len(terms) > 1 else max(combinations - sizes.made(), 0)


def _sizes(equation: str, inputs: tuple[Array, ...]) -> tuple[tuple[int, ...], int]:
    """The shape of the result, from the lengths of the labelled axes, and what it is summed of."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(inputs):
        message = f"the equation {equation!r} does not fit {len(inputs)} inputs"
        raise ValueError(message)
    lengths: dict[str, int] = {}
    broadcast: tuple[int, ...] = ()
    for term, x in zip(terms, inputs, strict=True):
        before, dots, after = term.partition("...")
        if len(before) + len(after) > x.ndim or (not dots and len(before) != x.ndim):
            message = f"{term!r} does not fit the shape {list(x.shape)}"
            raise ValueError(message)
        end = x.ndim - len(after)
        labelled = (*zip(before, x.shape, strict=False), *zip(after, x.shape[end:], strict=True))
        lengths.update((label, n) for label, n in labelled if lengths.get(label, 1) == 1)
        if dots:
            broadcast = np.broadcast_shapes(broadcast, x.shape[len(before) : end])
    before, dots, after = right.partition("...")
    unknown = set(before + after) - set(lengths)
    if unknown:
        message = f"the equation {equation!r} sums to unknown labels {sorted(unknown)}"
        raise ValueError(message)
    middle = broadcast if dots else ()
    shape = (*(lengths[c] for c in before), *middle, *(lengths[c] for c in after))
    return shape, math.prod(lengths.values()) * math.prod(broadcast)

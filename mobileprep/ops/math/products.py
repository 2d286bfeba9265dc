"""Products of matrices and einsum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.core.limits import spend_products
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation, same_type
from mobileprep.ops.kernel import Sizes, UnknownCostError, flop_rule, kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    broadcast,
    concatenate,
    merge,
    merge_dim,
    shape_fn,
    unknown_dims,
    with_rank,
)

# Operations of fused ops for each element after the product.
_AFTERWARDS = {
    b"BiasAdd": 1,
    b"Add": 1,
    b"Relu": 1,
    b"Relu6": 2,
    b"LeakyRelu": 2,
    b"Elu": 2,
    b"Tanh": 1,
    b"Sigmoid": 4,
    b"FusedBatchNorm": 2,
}


def product(x: Array, y: Array) -> Array:
    """Compute x @ y for two or more axes; half precision is summed in single precision."""
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        wide = product(x.astype(np.float32), y.astype(np.float32))
        return wide.astype(x.dtype)
    if x.shape[-1] == y.shape[-2]:
        lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        shape = (*lead, x.shape[-2], y.shape[-1])
        check_allocation(shape, x.dtype)
        spend_products(math.prod(shape) * x.shape[-1], x.dtype)
    out: Array = np.matmul(x, y)
    return out


@kernel("MatMul")
def mat_mul(node: Node, x: Array, y: Array) -> Array:
    """Multiply two matrices, each transposed if its attribute is set."""
    same_type(node, x, y)
    if x.ndim != 2 or y.ndim != 2:
        message = "both operands must be matrices"
        raise ValueError(message)
    lhs = x.T if node.attr_bool("transpose_a", False) else x
    rhs = y.T if node.attr_bool("transpose_b", False) else y
    return product(lhs, rhs)


@shape_fn("MatMul")
def matmul_shape(args: ShapeArgs) -> OutputShapes:
    """Return the rows of the first by the columns of the second matrix."""
    a, b = with_rank(args.shapes[0], 2), with_rank(args.shapes[1], 2)
    return [product_shape(args.node, a, b, ("transpose_a", "transpose_b"))]


def product_shape(
    node: Node, a: tuple[int, ...], b: tuple[int, ...], flags: tuple[str, str]
) -> tuple[int, int]:
    """Return the shape of the product of matrices, each transposed if its attribute is set."""
    rows, inner = reversed(a) if node.attr_bool(flags[0], False) else a
    other, columns = reversed(b) if node.attr_bool(flags[1], False) else b
    merge_dim(inner, other)
    return rows, columns


@flop_rule("MatMul")
def matrix_product_flops(sizes: Sizes) -> float:
    """Count a multiplication and an addition for each pair."""
    inner = sizes.input(0)[0 if sizes.node.attr_bool("transpose_a", False) else 1]
    return 2 * sizes.output_elements() * inner + fused_ops_flops(sizes)


def fused_ops_flops(sizes: Sizes) -> float:
    """Count the ops that a fused op runs after its product."""
    ops = sizes.node.attr_strings("fused_ops") if "fused_ops" in sizes.node.attrs else ()
    return sizes.output_elements() * sum(_AFTERWARDS.get(op, 1) for op in ops)


shape_fn("SparseMatMul")(matmul_shape)


@kernel("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul(node: Node, x: Array, y: Array) -> Array:
    """Multiply matrices in the last two axes, each adjoint if its attribute is set."""
    if x.ndim < 2 or y.ndim < 2:
        message = "both operands need two axes or more"
        raise ValueError(message)
    if node.op == "BatchMatMul" and x.shape[:-2] != y.shape[:-2]:
        message = "the leading axes must be equal"
        raise ValueError(message)
    lhs = _adjoint(x) if node.attr_bool("adj_x", False) else x
    rhs = _adjoint(y) if node.attr_bool("adj_y", False) else y
    if "Tout" not in node.attrs:
        same_type(node, x, y)
        return product(lhs, rhs)
    kind = node.attr_dtype("Tout").numpy
    if kind is None or kind.itemsize > 2:
        return product(lhs.astype(kind), rhs.astype(kind))
    return product(lhs, rhs).astype(kind)


@shape_fn("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of pairwise products; the first version does not broadcast."""
    a, b = at_least_rank(args.shapes[0], 2), at_least_rank(args.shapes[1], 2)
    both = a is not None and b is not None
    exact = args.node.op == "BatchMatMul"
    if not both and not exact:
        return [None]
    lhs, rhs = (unknown_dims(2) if shape is None else shape[-2:] for shape in (a, b))
    product = product_shape(args.node, lhs, rhs, ("adj_x", "adj_y"))
    batches = (None if a is None else a[:-2]), (None if b is None else b[:-2])
    batch = merge(*batches) if exact else broadcast(*batches)
    return [concatenate(batch, product)]


@flop_rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_product_flops(sizes: Sizes) -> float:
    """Count a matrix product for each pair."""
    inner = sizes.input(0)[-2 if sizes.node.attr_bool("adj_x", False) else -1]
    return 2 * sizes.output_elements() * inner


def _adjoint(x: Array) -> Array:
    swapped = np.swapaxes(x, -1, -2)
    return np.conj(swapped) if x.dtype.kind == "c" else swapped


_MOST_INPUTS = 16
_LITTLE = 1 << 22
# Slowdown of products with axes that stay on both sides, which BLAS does not support.
_COST = 8


@kernel("Einsum")
def einsum(node: Node, *inputs: Array) -> Array:
    """Compute the sum of products in the attribute ``equation``, such as "bij,bjk->bik"."""
    same_type(node, *inputs)
    equation = node.attr_str("equation").replace(" ", "")
    if len(inputs) > _MOST_INPUTS:
        message = f"{len(inputs)} inputs, more than {_MOST_INPUTS}"
        raise ValueError(message)
    shape, combinations = _sizes(equation, inputs)
    check_allocation(shape, inputs[0].dtype)
    spend_products(_COST * combinations, inputs[0].dtype)
    # No intermediate result may be much larger than the inputs and the result.
    largest = max(_LITTLE, math.prod(shape), *(x.size for x in inputs))
    path: Any = True if len(inputs) <= 2 else ("greedy", largest)
    if inputs[0].dtype.itemsize == 2 and inputs[0].dtype.kind not in "iu":
        wide = [x.astype(np.float32) for x in inputs]
        return np.asarray(np.einsum(equation, *wide, optimize=path)).astype(inputs[0].dtype)
    return np.asarray(np.einsum(equation, *inputs, optimize=path), dtype=inputs[0].dtype)


@shape_fn("Einsum")
def einsum_shape(args: ShapeArgs) -> OutputShapes:
    """Return the sizes of the output's letters from the inputs."""
    equation = args.node.attr_str("equation").replace(" ", "")
    lhs, arrow, rhs = equation.partition("->")
    terms = lhs.split(",")
    if not arrow or "..." in equation or len(terms) != len(args.shapes):
        return [None]
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, args.shapes, strict=True):
        for letter, size in zip(term, with_rank(shape, len(term)), strict=True):
            sizes[letter] = merge_dim(sizes.get(letter, UNKNOWN), size)
    return [tuple(sizes.get(letter, UNKNOWN) for letter in rhs)]


@flop_rule("Einsum")
def einsum_flops(sizes: Sizes) -> float:
    """Count a product and a sum for each index combination; with one input, only sums."""
    lhs = sizes.node.attr_str("equation").replace(" ", "").split("->")[0]
    terms = lhs.split(",")
    if len(terms) != len(sizes.inputs) or "." in lhs:
        raise UnknownCostError
    extents: dict[str, int] = {}
    for index, term in enumerate(terms):
        extents.update(zip(term, sizes.input(index), strict=True))
    combinations = math.prod(extents.values())
    return 2 * combinations if len(terms) > 1 else max(combinations - sizes.output_elements(), 0)


def _sizes(equation: str, inputs: tuple[Array, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape of the result and the number of summed products."""
    lhs, arrow, rhs = equation.partition("->")
    terms = lhs.split(",")
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
        labeled = (*zip(before, x.shape, strict=False), *zip(after, x.shape[end:], strict=True))
        lengths.update((label, n) for label, n in labeled if lengths.get(label, 1) == 1)
        if dots:
            broadcast = np.broadcast_shapes(broadcast, x.shape[len(before) : end])
    before, dots, after = rhs.partition("...")
    unknown = set(before + after) - set(lengths)
    if unknown:
        message = f"the equation {equation!r} sums to unknown labels {sorted(unknown)}"
        raise ValueError(message)
    middle = broadcast if dots else ()
    shape = (*(lengths[c] for c in before), *middle, *(lengths[c] for c in after))
    return shape, math.prod(lengths.values()) * math.prod(broadcast)

"""Numbers of operations by op."""

from __future__ import annotations

import pytest

from mobileprep.graph.node import Node
from mobileprep.ops.kernel import (
    Sizes,
    context_kernel_names,
    count_flops,
    counted_ops,
    kernel_names,
)
from tests.transforms.graphs import conv, node

IMAGE, FILTER = (1, 8, 8, 3), (3, 3, 3, 16)


def flops(op: Node | str, inputs: list, outputs: list) -> int | None:
    return count_flops(Sizes(op if isinstance(op, Node) else node("n", op), inputs, outputs))


def test_every_op_with_a_kernel_has_a_cost() -> None:
    missing = {*kernel_names(), *context_kernel_names()} - set(counted_ops())
    assert not missing, "add a cost rule next to the kernel"


def test_convolutions() -> None:
    out = (1, 8, 8, 16)
    assert flops(conv("n", ""), [IMAGE, FILTER], [out]) == 2 * 8 * 8 * 16 * 27
    depthwise = conv("n", "", op="DepthwiseConv2dNative")
    assert flops(depthwise, [IMAGE, (3, 3, 3, 2)], [(1, 8, 8, 6)]) == 2 * 8 * 8 * 6 * 9
    transposed = conv("n", "", op="Conv2DBackpropInput")
    assert flops(transposed, [(4,), (2, 2, 5, 3), IMAGE], [(1, 16, 16, 5)]) == 2 * 192 * 20


def test_matrix_products() -> None:
    product = node("n", "MatMul", transpose_a=True, transpose_b=False)
    assert flops(product, [(4, 2), (4, 3)], [(2, 3)]) == 2 * 2 * 3 * 4
    batch = node("n", "BatchMatMulV2", adj_x=False, adj_y=False)
    assert flops(batch, [(5, 2, 4), (5, 4, 3)], [(5, 2, 3)]) == 5 * 2 * 2 * 3 * 4
    einsum = node("n", "Einsum", equation="bij,bjk->bik", N=2)
    assert flops(einsum, [(5, 2, 4), (5, 4, 3)], [(5, 2, 3)]) == 5 * 2 * 2 * 3 * 4


def test_fused_ops_are_counted() -> None:
    from mobileprep.graph.attrs import AttrValue

    fused = conv("n", "", op="_FusedConv2D").with_attrs(
        fused_ops=AttrValue("list(string)", (b"BiasAdd", b"Relu6"))
    )
    plain = 2 * 8 * 8 * 16 * 27
    assert flops(fused, [IMAGE, FILTER, (16,)], [(1, 8, 8, 16)]) == plain + 3 * 8 * 8 * 16


@pytest.mark.parametrize(
    ("op", "factor"),
    [("Relu", 1), ("Relu6", 2), ("Add", 1), ("Rsqrt", 2), ("Sigmoid", 4), ("Softmax", 5)],
)
def test_elementwise_ops(op: str, factor: int) -> None:
    assert flops(op, [(2, 3), (2, 3)], [(2, 3)]) == factor * 6


def test_reductions() -> None:
    assert flops("Sum", [(2, 10), (1,)], [(2,)]) == 18
    assert flops("Mean", [(2, 10), (1,)], [(2,)]) == 20
    pool = node("n", "AvgPool", ksize=(1, 3, 3, 1), strides=(1, 1, 1, 1), padding="SAME")
    assert flops(pool, [IMAGE], [IMAGE]) == 9 * 192


def test_sums_of_several_tensors() -> None:
    assert flops("AddN", [(4,)] * 3, [(4,)]) == 8


def test_data_dependent_sizes() -> None:
    assert flops("SegmentMean", [(4, 3), (4,)], [(2, 3)]) == 12 + 6
    assert flops("SparseSegmentMean", [(7, 3), (4,), (4,)], [(2, 3)]) == 12 + 6
    assert flops("RaggedRange", [(3,), (3,), (3,)], [(4,), (9,)]) == 18


def test_batch_normalization() -> None:
    assert flops(node("n", "FusedBatchNormV3", is_training=False), [IMAGE], [IMAGE]) == 384
    assert flops(node("n", "FusedBatchNormV3", is_training=True), [IMAGE], [IMAGE]) == 6 * 192


def test_transpose_costs_nothing() -> None:
    assert flops("Transpose", [IMAGE, (4,)], [(1, 3, 8, 8)]) == 0


@pytest.mark.parametrize("shape", [None, (1, -1, 8, 3)])
def test_unknown_shapes_have_unknown_costs(shape) -> None:
    assert flops("Relu", [shape], [shape]) is None
    assert flops(conv("n", ""), [IMAGE, shape], [(1, 8, 8, 16)]) is None


def test_unknown_ops_have_unknown_costs() -> None:
    assert flops("Frobnicate", [IMAGE], [IMAGE]) is None
    assert flops("NonMaxSuppressionV2", [(9, 4), (9,), (), ()], [(-1,)]) is None

"""Ops, attributes, and kernels that a release lacks."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.release_gaps import ReleaseGap, release_gaps, spare_attributes
from tests.transforms.graphs import node


@pytest.mark.parametrize(
    ("op_node", "expected"),
    [
        (node("n", "Relu", "x"), []),
        (node("n", "AccumulateNV2", "x", N=1), []),
        (node("n", "Nobodys", "x"), [ReleaseGap("op")]),
        (node("n", "Relu", "x", _class="loc:@x"), []),
        (node("n", "GatherNd", "x x", T=None, bad_indices_policy="IGNORE"),
         [ReleaseGap("attribute", "bad_indices_policy=IGNORE"),
          ReleaseGap("kernel", "its attributes")]),
        (node("n", "Pow", "x x", T=DType.INT8), [ReleaseGap("value", "T=int8")]),
        (node("n", "MaxPool", "x", explicit_paddings=()),
         [ReleaseGap("default attribute", "explicit_paddings")]),
        (node("n", "MaxPool", "x", explicit_paddings=(0, 1)),
         [ReleaseGap("attribute", "explicit_paddings=[0, 1]")]),
    ],
)  # fmt: skip
def test_gaps_of_an_old_release(op_node: Node, expected: list[ReleaseGap]) -> None:
    assert list(release_gaps(op_node, "1.15")) == expected


def test_release_of_the_graph_has_no_gaps() -> None:
    pool = node("n", "MaxPool", "x", explicit_paddings=(0, 1), padding="EXPLICIT")
    assert list(release_gaps(pool, "2.21")) == []


def test_gradient_attributes_are_spare() -> None:
    assert spare_attributes(node("n", "MatMul", "x x", grad_a=True), "1.15") == {"grad_a"}
    assert spare_attributes(node("n", "MatMul", "x x", grad_a=True), "2.21") == frozenset()
    assert spare_attributes(node("n", "Nobodys", "x", a=1), "1.15") == frozenset()
    pool = node("n", "FusedBatchNorm", "x", exponential_avg_factor=0.5)
    assert spare_attributes(pool, "1.15") == frozenset()

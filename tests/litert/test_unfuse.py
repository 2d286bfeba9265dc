"""Fused ops are split into the ops that they combine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.litert.graphs import codes, const, feed, model, op
from tests.litert.one_op import check_graph, numbers

SIZES = (1, 6, 6, 2)
CONVOLUTION = {"strides": [1, 1, 1, 1], "padding": "SAME", "T": DType.FLOAT}
MIRRORED = {"mode": "REFLECT", **CONVOLUTION}
STATISTICS = [
    *(
        const(name, numbers(4, seed=seed))
        for name, seed in (("scale", 1), ("offset", 2), ("mean", 3))
    ),
    const("variance", np.abs(numbers(4, seed=4)) + 0.3),
]
NORM = ["scale", "offset", "mean", "variance"]


def fused(kind: str, inputs: Sequence[str], ops: Sequence[str], **attrs: object) -> Node:
    node = op("y", kind, inputs, **attrs)
    return node.with_attrs(fused_ops=AttrValue("list(string)", tuple(o.encode() for o in ops)))


def convolution(ops: Sequence[str], operands: Sequence[str], **attrs: object) -> Node:
    return fused("_FusedConv2D", ["x", "w", *operands], ops, **CONVOLUTION, **attrs)


CASES: dict[str, tuple[Node, list[str]]] = {
    "bias and activation": (convolution(["BiasAdd", "Relu6"], ["bias"]), ["CONV_2D"]),
    "bias and LeakyRelu": (
        convolution(["BiasAdd", "LeakyRelu"], ["bias"], leakyrelu_alpha=0.3),
        ["CONV_2D", "LEAKY_RELU"],
    ),
    "norm": (convolution(["FusedBatchNorm", "Relu"], NORM, epsilon=0.001), ["CONV_2D"]),
    "sum": (convolution(["BiasAdd", "Add", "Relu"], ["bias", "side"]), ["CONV_2D", "ADD"]),
    "filters in another order": (
        fused(
            "_FusedConv2D",
            ["x", "oihw", "bias"],
            ["BiasAdd"],
            **CONVOLUTION,
            filter_format="OIHW",
        ),
        ["CONV_2D"],
    ),
    "depthwise": (
        fused(
            "_FusedDepthwiseConv2dNative", ["x", "dw", "bias"], ["BiasAdd", "Elu"], **CONVOLUTION
        ),
        ["DEPTHWISE_CONV_2D", "ELU"],
    ),
    "batch norm": (
        op(
            "y",
            "_FusedBatchNormEx",
            ["side", *NORM, "side"],
            T=DType.FLOAT,
            is_training=False,
            epsilon=0.001,
            activation_mode="Relu",
        ),
        [],
    ),
    "padding": (
        op("y", "FusedPadConv2D", ["x", "paddings", "w"], **MIRRORED),
        ["MIRROR_PAD", "CONV_2D"],
    ),
    "resizing and padding": (
        op(
            "y",
            "FusedResizeAndPadConv2D",
            ["x", "size", "paddings", "w"],
            mode="REFLECT",
            **CONVOLUTION,
        ),
        ["RESIZE_BILINEAR", "MIRROR_PAD", "CONV_2D"],
    ),
}


def graph(node: Node) -> Graph:
    weights = numbers(3, 3, 2, 4, seed=5)
    return Graph(
        [
            feed("x", SIZES),
            const("w", weights),
            const("oihw", weights.transpose(3, 2, 0, 1)),
            const("dw", numbers(3, 3, 2, 2, seed=6)),
            const("bias", numbers(4, seed=7)),
            const("side", numbers(1, 6, 6, 4, seed=8)),
            const("paddings", np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)),
            const("size", np.array([4, 9], np.int32)),
            *STATISTICS,
            node,
        ]
    )


@pytest.mark.parametrize("name", CASES)
def test_fused_op(name: str) -> None:
    node, operators = CASES[name]
    feeds = {"x": numbers(*SIZES, seed=9)} if "x" in map(str, node.inputs) else {}
    assert codes(check_graph(graph(node), feeds, tolerance=1e-5)) == operators


def test_fused_matmul() -> None:
    node = fused(
        "_FusedMatMul", ["x", "w", "bias"], ["BiasAdd", "Tanh"], T=DType.FLOAT, transpose_b=True
    )
    nodes = [
        feed("x", (2, 5)),
        const("w", numbers(3, 5, seed=1)),
        const("bias", numbers(3, seed=2)),
    ]
    record = check_graph(Graph([*nodes, node]), {"x": numbers(2, 5, seed=3)}, tolerance=1e-5)
    assert codes(record) == ["FULLY_CONNECTED", "TANH"]


@pytest.mark.parametrize("ops", [["BiasAdd", "Swirl"], ["BiasAdd", "Add"], ["FusedBatchNorm"]])
def test_unknown_fusion_is_refused(ops: list[str]) -> None:
    with pytest.raises(UnsupportedError, match="_FusedConv2D 'y'"):
        model(graph(convolution(ops, ["bias"])), ["x"], ["y"])

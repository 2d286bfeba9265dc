"""optimize."""

from __future__ import annotations

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import transform_names
from mobileprep.transforms.optimize import ORDER
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown


def training_leftovers() -> Graph:
    """A convolution with an identity, a batch norm in pieces, dropout's leftovers, a duplicate."""
    return Graph(
        [
            placeholder(),
            node("same", "Identity", "x"),
            const("weights", normal(3, 3, 2, 4)),
            node("read", "Identity", "weights"),
            conv("conv", "same read"),
            const("scale", np.array([0.5, 2, 1, 3])),
            const("shift", np.array([1, 2, 3, 4])),
            node("scaled", "Mul", "conv scale"),
            node("shifted", "Add", "scaled shift"),
            node("relu", "Relu", "shifted"),
            node("relu_again", "Relu", "shifted"),
            node("out", "Add", "relu relu_again"),
            node("unused", "Neg", "relu"),
        ]
    )


def test_outputs_do_not_change() -> None:
    before = training_leftovers()
    after = apply("optimize", before).graph
    x = normal(1, 5, 5, 2, seed=1)
    expected = run(before, x)
    np.testing.assert_allclose(run(after, x), expected, rtol=1e-5, atol=1e-5)


def test_unneeded_nodes_are_removed() -> None:
    done = apply("optimize", training_leftovers())
    ops = sorted(n.op for n in done.graph)
    assert ops == ["Add", "BiasAdd", "Const", "Const", "Conv2D", "Placeholder", "Relu"]
    assert done.matched > 0


def test_a_second_time_changes_nothing() -> None:
    once = apply("optimize", training_leftovers()).graph
    assert apply("optimize", once).graph is once


def test_the_golden_text() -> None:
    assert shown(apply("optimize", training_leftovers()).graph) == GOLDEN


def test_its_steps_are_transforms() -> None:
    assert set(ORDER) <= set(transform_names())


GOLDEN = """\
x = Placeholder()
weights = Const() value=float32[3, 3, 2, 4]
conv = Conv2D(x, weights) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
conv/bias = Const() value=float32[4]
shifted = BiasAdd(conv, conv/bias) T=float32 data_format=NHWC
relu = Relu(shifted) T=float32
out = Add(relu, relu) T=float32"""

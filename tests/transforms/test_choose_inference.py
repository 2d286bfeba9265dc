"""choose_inference: of a phase's two branches the one for inference stays."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, shown

IMAGE = (2, 4, 4, 3)


def _stats():
    names = ("gamma", "beta", "mean", "variance")
    return [const(n, np.abs(normal(3, seed=i)) + 0.5) for i, n in enumerate(names)]


def _norm(name, branch, training):
    """A fused batch normalization in a branch, as tf.layers builds it."""
    ends = [f"{name}/s{i}" for i in range(5)]
    sources = ["layer", "gamma", "beta", "mean", "variance"]
    switches = [node(e, "Switch", f"{s} phase") for e, s in zip(ends, sources, strict=True)]
    inputs = " ".join(f"{e}:{branch}" if branch else e for e in ends)
    return [*switches, node(name, "FusedBatchNorm", inputs, is_training=training, epsilon=0.001)]


def _graph(phase=None, *, training_branch=1, more=(), outputs="infer train"):
    return Graph(
        [
            placeholder(),
            *(phase or [placeholder("phase", DType.BOOL)]),
            const("w", normal(3, 3, 3, 3)),
            conv("layer", "x w"),
            *_stats(),
            *_norm("train", training_branch, training=True),
            *_norm("infer", 1 - training_branch, training=False),
            node("merge", "Merge", outputs, N=2),
            *more,
            node("out", "Relu", "merge"),
        ]
    )


@pytest.mark.parametrize("branch", [0, 1])
def test_the_branch_that_uses_averages_stays(branch):
    graph = _graph(training_branch=branch)
    result = apply("choose_inference", graph, inputs=("x", "phase"))
    assert result.matched == 1
    assert "train" not in result.graph
    assert {n.op for n in result.graph if n.name != "phase"} == {
        "Placeholder", "Const", "Conv2D", "Identity", "FusedBatchNorm", "Relu"
    }  # fmt: skip
    x = normal(*IMAGE, seed=9)
    feeds = {"x": x, "phase": np.array(branch == 0)}
    expected = Interpreter(graph).run(["out"], feeds)[0]
    np.testing.assert_array_equal(Interpreter(result.graph).run(["out"], feeds)[0], expected)


def test_unfed_phase_is_removed():
    result = apply("choose_inference", _graph())
    assert "phase" not in result.graph
    assert apply("optimize", result.graph).graph["infer"].op == "BiasAdd"


@pytest.mark.parametrize("value", [False, True])
def test_unfed_default_decides(value):
    """As the learning phase of Keras; what it chooses between need be no batch norm."""
    phase = [
        const("default", value, bool),
        node("phase", "PlaceholderWithDefault", "default", T=None, dtype=DType.BOOL),
    ]
    graph = Graph(
        [
            placeholder(),
            *phase,
            node("switch", "Switch", "x phase"),
            node("then", "Exp", "switch:1"),
            node("out", "Merge", "switch then", N=2),
        ]
    )
    result = apply("choose_inference", graph)
    assert result.matched == 1
    assert ("then" in result.graph) == value
    x = normal(2, 3)
    expected = Interpreter(graph).run(["out"], {"x": x})[0]
    np.testing.assert_array_equal(Interpreter(result.graph).run(["out"], {"x": x})[0], expected)
    fed = apply("choose_inference", graph, inputs=("x", "phase"))
    assert fed.graph is graph
    assert list(fed.skipped) == ["its branches do not show which of them is for inference"]


LEFT = {
    "an output is in the training branch": (_graph(), ("out", "train")),
    "the branch decision is used": (
        _graph(more=[node("which", "Identity", "merge:1", T=DType.INT32)]),
        ("out", "which"),
    ),
}


@pytest.mark.parametrize("reason", LEFT)
def test_undecided_branches_are_skipped(reason):
    graph, outputs = LEFT[reason]
    result = apply("choose_inference", graph, outputs=outputs)
    assert result.graph is graph
    assert [reason in r for r in result.skipped] == [True]


def test_contradicting_branches_are_skipped():
    other = [*_norm("again", 0, training=True), node("seen", "Relu", "again")]
    graph = _graph(more=other)
    result = apply("choose_inference", graph)
    assert result.graph is graph
    assert list(result.skipped) == ["its branches do not show which of them is for inference"]


def test_a_graph_without_branches_comes_back():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    assert apply("choose_inference", graph).graph is graph


def test_golden():
    phase = [
        const("default", False, bool),
        node("phase", "PlaceholderWithDefault", "default", T=None, dtype=DType.BOOL),
    ]
    graph = Graph(
        [
            placeholder(),
            *phase,
            node("pivot", "Switch", "phase phase", T=DType.BOOL),
            node("else", "Identity", "pivot", T=DType.BOOL),
            const("two", 2.0, inputs="^else"),
            node("switch", "Switch", "x phase"),
            node("scaled", "Mul", "switch two"),
            node("out", "Merge", "scaled switch:1", N=2),
        ]
    )
    assert shown(apply("choose_inference", graph).graph) == (
        "x = Placeholder()\n"
        "default = Const() value=bool[]:0\n"
        "phase/inference = Const() value=bool[]:0\n"
        "pivot = Identity(phase/inference) T=bool\n"
        "else = Identity(pivot) T=bool\n"
        "two = Const(^else) value=float32[]:2\n"
        "switch = Identity(x) T=float32\n"
        "scaled = Mul(switch, two) T=float32\n"
        "out = Identity(scaled) T=float32"
    )


@pytest.mark.parametrize("value", [False, True])
def test_a_merge_that_loses_no_input_stays_one(value):
    graph = Graph(
        [
            placeholder(),
            const("default", value, bool),
            node("phase", "PlaceholderWithDefault", "default", T=None, dtype=DType.BOOL),
            node("switch", "Switch", "x phase"),
            node("out", "Merge", "switch switch:1", N=2),
            node("only", "Merge", "x", N=1),
            node("sum", "Add", "out only"),
        ]
    )
    result = apply("choose_inference", graph, outputs=("sum",))
    assert result.graph["only"] == graph["only"]
    assert result.graph["out"].op == "Identity"

"""fold_batch_norms: a constant factor a channel goes into the layer's weights."""

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown


def _graph(layer, weights, factors, *more, before=()):
    out = more or (node("out", "Identity", "mul"),)
    return Graph(
        [placeholder(), *before, weights, layer, factors, node("mul", "Mul", "layer factors"), *out]
    )


def _conv2d(factors, *more, **attrs):
    return _graph(
        conv("layer", "x w", **attrs),
        const("w", normal(3, 3, 4, 5)),
        const("factors", factors),
        *more,
    )


def _matmul(factors, *more, **attrs):
    layer = node("layer", "MatMul", "x w", **attrs)
    return _graph(layer, const("w", normal(4, 4)), const("factors", factors), *more)


FACTORS = normal(5, seed=1)
MATCHES = {
    "Conv2D": (_conv2d(FACTORS), (1, 6, 6, 4)),
    "DepthwiseConv2dNative": (
        _graph(
            conv("layer", "x w", op="DepthwiseConv2dNative"),
            const("w", normal(3, 3, 4, 2)),
            const("factors", normal(8, seed=1)),
        ),
        (1, 6, 6, 4),
    ),
    "MatMul": (_matmul(normal(4, seed=1)), (3, 4)),
    "MatMul, transposed weights": (_matmul(normal(4, seed=1), transpose_b=True), (3, 4)),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", MATCHES)
def test_the_folded_layer_gives_the_same_numbers(case, tf115):
    graph, shape = MATCHES[case]
    result = apply("fold_batch_norms", graph, tf115=tf115)
    assert result.matched == 1
    assert [n.op for n in result.graph].count("Mul") == 0
    x = normal(*shape, seed=2)
    # One rounding of each weight, where before there was one of each result.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("graph", "shape"),
    [
        (_conv2d(FACTORS.reshape(1, 1, 1, 5)), (1, 6, 6, 4)),
        (_conv2d(FACTORS.reshape(1, 5)), (1, 6, 6, 4)),
        (_conv2d(np.float32(3)), (1, 6, 6, 4)),
        (_matmul(normal(1, 4)), (3, 4)),
    ],
    ids=["[1, 1, 1, C]", "[1, C]", "scalar", "MatMul [1, C]"],
)
def test_a_recipe_folds_factors_of_other_shapes_that_the_original_refuses(graph, shape):
    result = apply("fold_batch_norms", graph)
    assert result.matched == 1
    x = normal(*shape, seed=2)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-5, atol=1e-5)
    with pytest.raises(TransformError, match=r"'mul'.* bad shape"):
        apply("fold_batch_norms", graph, tf115=True)


def test_a_recipe_folds_all_layers_that_share_an_input_and_the_original_one_of_them():
    branches = [
        n
        for i in "ab"
        for n in (
            const(f"w{i}", normal(4, 4)),
            node(f"layer{i}", "MatMul", f"x w{i}"),
            const(f"f{i}", normal(4)),
            node(f"mul{i}", "Mul", f"layer{i} f{i}"),
        )
    ]
    graph = Graph([placeholder(), *branches, node("out", "Add", "mula mulb")])
    assert apply("fold_batch_norms", graph).matched == 2
    assert apply("fold_batch_norms", graph, tf115=True).matched == 1


RELU = node("relu", "Relu", "layer")
NEAR_MISSES = {
    "layer used elsewhere": (
        _conv2d(FACTORS, RELU, node("out", "Add", "mul relu")),
        "used elsewhere",
    ),
    "weights used elsewhere": (
        _conv2d(FACTORS, conv("other", "x w"), node("out", "Add", "mul other")),
        "used elsewhere",
    ),
    "factors used elsewhere": (
        _conv2d(FACTORS, node("out", "Add", "mul factors")),
        "used elsewhere",
    ),
    "factors along the width": (
        _conv2d(FACTORS, data_format="NCHW"),
        "not one for each output channel",
    ),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", NEAR_MISSES)
def test_unfoldable_layer_is_skipped_with_a_reason(case, tf115):
    graph, reason = NEAR_MISSES[case]
    result = apply("fold_batch_norms", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert {n.name: n for n in result.graph} == dict(graph.by_name)


def test_fetched_layer_is_skipped():
    result = apply("fold_batch_norms", _conv2d(FACTORS), outputs=("out", "layer"))
    assert result.matched == 0
    assert sum(result.skipped.values()) == 1


@pytest.mark.parametrize("shape", [(6,), (5, 1), (1, 1, 1, 1, 5), (2, 1, 1, 5)])
def test_a_recipe_leaves_factors_that_do_not_run_along_the_channels(shape):
    result = apply("fold_batch_norms", _conv2d(np.ones(shape)))
    assert result.matched == 0
    assert list(result.skipped) == ["the factors are not one for each output channel"]


def test_factors_before_the_layer_do_not_match():
    graph = Graph(
        [
            placeholder(),
            const("w", normal(4, 4)),
            const("factors", normal(4)),
            node("layer", "MatMul", "x w"),
            node("out", "Mul", "factors layer"),
        ]
    )
    result = apply("fold_batch_norms", graph)
    assert result.graph is graph
    assert ["the factors come first" in reason for reason in result.skipped] == [True]


def test_weights_behind_an_identity_are_reported():
    graph = Graph(
        [
            placeholder(),
            const("w", normal(4, 4)),
            node("read", "Identity", "w"),
            const("factors", normal(4)),
            node("layer", "MatMul", "x read"),
            node("out", "Mul", "layer factors"),
        ]
    )
    result = apply("fold_batch_norms", graph)
    assert result.graph is graph
    assert ["weights or factors are still computed" in r for r in result.skipped] == [True]


def test_control_edge_to_a_no_op_is_not_another_use():
    """As TensorFlow 2 exports networks: each weight read, and one NoOp after all of that."""
    graph = Graph(
        [
            placeholder(),
            const("w", normal(4, 4)),
            const("factors", normal(4)),
            node("wait", "NoOp", "^w ^factors", T=None),
            node("layer", "MatMul", "x w"),
            node("scaled", "Mul", "layer factors"),
            node("out", "Identity", "scaled ^wait"),
        ]
    )
    result = apply("fold_batch_norms", graph)
    assert result.matched == 1
    assert sorted(result.graph.by_name) == ["out", "scaled", "w", "x"]
    tf115 = apply("fold_batch_norms", graph, tf115=True)
    assert tf115.skipped == {"the layer, its weights or the factors are used elsewhere": 1}


@pytest.mark.parametrize("kind", [np.float64, np.float16])
def test_other_floating_types_keep_their_type_in_a_recipe(kind):
    weights, factors = normal(4, 4).astype(kind), normal(4).astype(kind)
    graph = Graph(
        [
            placeholder(kind=DType.DOUBLE),
            const("w", weights, kind),
            node("layer", "MatMul", "x w"),
            const("factors", factors, kind),
            node("out", "Mul", "layer factors"),
        ]
    )
    folded = apply("fold_batch_norms", graph).graph["w"].attr_tensor("value").array()
    assert folded.dtype == kind
    np.testing.assert_array_equal(folded, weights * factors)
    with pytest.raises(TransformError, match="float32"):
        apply("fold_batch_norms", graph, tf115=True)


def test_channels_first_takes_factors_of_shape_c_1_1():
    graph = _conv2d(FACTORS.reshape(5, 1, 1), data_format="NCHW")
    result = apply("fold_batch_norms", graph)
    assert result.matched == 1
    expected = graph["w"].attr_tensor("value").array() * FACTORS
    np.testing.assert_array_equal(result.graph["w"].attr_tensor("value").array(), expected)
    assert result.graph["mul"].attr_str("data_format") == "NCHW"


def _with_controls(gate):
    return Graph(
        [
            placeholder(),
            node("gate", gate, "x"),
            const("w", normal(4, 4), inputs="^gate"),
            node("layer", "MatMul", "x w"),
            const("factors", normal(4)),
            node("out", "Mul", "layer factors ^gate"),
        ]
    )


def test_a_recipe_keeps_control_inputs():
    folded = apply("fold_batch_norms", _with_controls("Relu")).graph
    assert [str(r) for r in folded["w"].inputs] == ["^gate"]
    assert [str(r) for r in folded["out"].inputs] == ["x", "w", "^gate"]


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("waits_for", ["layer", "factors", "w"])
def test_control_inputs_of_removed_nodes_are_removed(waits_for, tf115):
    graph = _conv2d(FACTORS)
    mul = node("mul", "Mul", f"layer factors ^x ^{waits_for}")
    graph = graph.with_nodes(mul if n.name == "mul" else n for n in graph)
    result = apply("fold_batch_norms", graph, tf115=tf115)
    assert result.matched == 1
    kept = ["x", "w", "^x"] + ["^w"] * (waits_for == "w" and tf115)
    assert [str(r) for r in result.graph["mul"].inputs] == kept


@pytest.mark.parametrize("tf115", [True, False])
def test_a_recipe_folds_weights_that_others_wait_for(tf115):
    graph = _conv2d(FACTORS, node("out", "Relu", "mul ^w"))
    result = apply("fold_batch_norms", graph, tf115=tf115)
    assert result.matched == (not tf115)
    x = normal(1, 6, 6, 4)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-5, atol=1e-5)


def test_a_constant_of_a_loop_stays_in_its_frame():
    """The original drops its control input, and with it the loop's frame."""
    tied = apply("fold_batch_norms", _with_controls("Enter"), tf115=True).graph
    assert [str(r) for r in tied["w"].inputs] == ["^gate"]
    free = apply("fold_batch_norms", _with_controls("Relu"), tf115=True).graph
    assert not free["w"].inputs


def test_golden():
    assert shown(apply("fold_batch_norms", _conv2d(FACTORS)).graph) == (
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "x = Placeholder()\n"
        "mul = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1\n"
        "out = Identity(mul) T=float32"
    )

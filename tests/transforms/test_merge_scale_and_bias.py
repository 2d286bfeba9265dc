"""merge_scale_and_bias: constants multiplied with and added to an output go into its layer."""

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

A, B, C = (const(name, normal(5, seed=i) + 2) for i, name in enumerate("abc"))
SHAPE = (2, 6, 6, 4)


def _graph(*chain, layer=None, weights=None):
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 5)) if weights is None else weights,
            A,
            B,
            C,
            layer or conv("layer", "x w"),
            *chain,
        ]
    )


MATCHES = {
    "Mul": [node("out", "Mul", "layer a")],
    "factor first": [node("out", "Mul", "a layer")],
    "RealDiv": [node("out", "RealDiv", "layer a")],
    "a single Add": [node("out", "Add", "layer a")],
    "a single Sub": [node("out", "Sub", "layer a")],
    "Mul, Add": [node("m", "Mul", "layer a"), node("out", "Add", "m b")],
    "Add, Mul": [node("m", "AddV2", "layer a"), node("out", "Mul", "m b")],
    "Sub, Mul, Sub": [
        node("m", "Sub", "layer a"),
        node("n", "Mul", "m b"),
        node("out", "Sub", "n c"),
    ],
    "Sub from a constant, Mul": [node("m", "Sub", "a layer"), node("out", "Mul", "m b")],
    "BiasAdd, Add": [
        node("m", "BiasAdd", "layer a", data_format="NHWC"),
        node("out", "Add", "b m"),
    ],
    "a single number": [const("one", 3.0), node("out", "Mul", "layer one")],
    "all dimensions": [const("four", normal(1, 1, 1, 5)), node("out", "Mul", "layer four")],
}


@pytest.mark.parametrize(
    ("chain", "kept"),
    [
        ([node("out", "Mul", "layer a ^layer ^x")], ["x", "w", "^x"]),
        (
            [node("m", "Mul", "layer a ^layer"), node("out", "Add", "m b ^m ^x")],
            ["layer", "layer/bias", "^layer", "^x"],
        ),
    ],
)
def test_control_inputs_of_removed_nodes_are_removed(chain, kept):
    graph = _graph(*chain)
    result = apply("merge_scale_and_bias", graph)
    assert result.matched == 1
    assert [str(r) for r in result.graph["out"].inputs] == kept


@pytest.mark.parametrize("case", MATCHES)
def test_the_layer_gives_the_same_numbers(case):
    graph = _graph(*MATCHES[case])
    result = apply("merge_scale_and_bias", graph)
    assert result.matched == 1
    assert {n.op for n in result.graph} <= {"Placeholder", "Const", "Conv2D", "BiasAdd"}
    x = normal(*SHAPE, seed=9)
    # Rounded once in the weights, where before every result was rounded.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


LEFT = {
    "a single bias": ([node("out", "BiasAdd", "layer a", data_format="NHWC")], {}),
    "two tensors": ([node("out", "Mul", "layer layer")], {}),
    "another layer's output": ([conv("y", "x w"), node("out", "Mul", "layer y")], {}),
    "what it divides by": ([node("out", "RealDiv", "a layer")], {}),
    "places": (
        [const("p", normal(6, 1)), node("out", "Mul", "layer p")],
        {"its constant is not one number for each channel": 1},
    ),
    "used elsewhere": (
        [node("r", "Relu", "layer"), node("m", "Mul", "layer a"), node("out", "AddV2", "m r")],
        {"its input has other consumers": 1},
    ),
    "division by zero": (
        [const("z", np.zeros(5)), node("out", "RealDiv", "layer z")],
        {"its statistics do not come to numbers": 1},
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_unmergeable_nodes_stay(case):
    chain, skipped = LEFT[case]
    graph = _graph(*chain)
    result = apply("merge_scale_and_bias", graph)
    assert result.graph is graph
    assert result.skipped == skipped


def test_a_chain_ends_where_the_user_looks():
    graph = _graph(node("m", "Mul", "layer a"), node("out", "Add", "m b"))
    merged = apply("merge_scale_and_bias", graph, outputs=("m", "out")).graph
    assert [n.op for n in merged if n.op != "Const"] == ["Placeholder", "Conv2D", "Add"]
    assert merged["m"].op == "Conv2D"


def test_a_normalization_op_ends_the_chain():
    """It is fuse_batch_norms' to fuse."""
    stats = [const(n, np.ones(5)) for n in ("g", "be", "me", "v")]
    norm = node("out", "FusedBatchNorm", "m g be me v", is_training=False)
    result = apply("merge_scale_and_bias", _graph(node("m", "Mul", "layer a"), *stats, norm))
    assert result.matched == 1
    assert result.graph["out"].op == "FusedBatchNorm"


def test_shared_weights_do_not_keep_biases_from_being_merged():
    chain = [
        conv("y", "x w"),
        node("m", "Add", "layer a"),
        node("n", "Add", "m b"),
        node("out", "AddV2", "n y"),
    ]
    result = apply("merge_scale_and_bias", _graph(*chain))
    assert result.matched == 1
    assert result.graph["n"].op == "BiasAdd"


def test_weights_that_another_layer_uses_too_are_copied():
    chain = [conv("y", "x w"), node("m", "Mul", "layer a"), node("out", "AddV2", "m y")]
    graph = _graph(*chain)
    result = apply("merge_scale_and_bias", graph)
    assert result.matched == 1
    assert [str(r) for r in result.graph["y"].inputs] == ["x", "w"]
    assert [str(r) for r in result.graph["m"].inputs] == ["x", "layer/weights"]
    x = normal(*SHAPE, seed=9)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


def test_half_precision_stays():
    weights = const("w", normal(4, 5), np.float16)
    chain = [const("h", normal(5), np.float16), node("out", "Mul", "layer h")]
    graph = _graph(*chain, weights=weights, layer=node("layer", "MatMul", "x w"))
    merged = apply("merge_scale_and_bias", graph).graph["w"].attr_tensor("value").array()
    assert merged.dtype == np.float16


def test_golden():
    graph = _graph(node("m", "Mul", "layer a"), node("out", "Add", "m b"))
    assert shown(apply("merge_scale_and_bias", graph).graph) == (
        "x = Placeholder()\n"
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "c = Const() value=float32[5]\n"
        "layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1\n"
        "layer/bias = Const() value=float32[5]\n"
        "out = BiasAdd(layer, layer/bias) T=float32 data_format=NHWC"
    )

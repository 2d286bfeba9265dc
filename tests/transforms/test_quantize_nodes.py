"""quantize_nodes: float ops compute in eight bits."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import (
    apply,
    const,
    conv,
    node,
    normal,
    op_counts,
    placeholder,
    pool,
    run,
    shown,
    with_taken,
)

NAME = "quantize_nodes"


def _layer(*more, **attrs):
    return Graph(
        [placeholder(), const("w", normal(3, 3, 4, 5)), conv("layer", "x w", **attrs), *more]
    )


def _fake_quant(name, source, low=-1.0, high=6.0):
    return [
        const(f"{name}_min", low),
        const(f"{name}_max", high),
        node(
            name, "FakeQuantWithMinMaxVars", f"{source} {name}_min {name}_max", T=None, num_bits=8
        ),
    ]


RELU = node("relu", "Relu", "layer")
OUT = node("out", "Softmax", "relu")


def test_golden():
    graph = Graph([placeholder(), node("out", "Relu", "x")])
    lines = shown(apply(NAME, graph, tf115=True).graph).split("\n")
    assert sorted(lines) == [
        "out = Dequantize(out/eightbit:0, out/eightbit:1, out/eightbit:2) T=quint8 mode=MIN_FIRST",
        (
            "out/eightbit = QuantizedRelu(out_eightbit/x/quantize:0, out_eightbit/x/quantize:1,"
            " out_eightbit/x/quantize:2) Tinput=quint8"
        ),
        (
            "out_eightbit/x/max = Max(out_eightbit/x/reshape, out_eightbit/x/reduction_dims)"
            " T=float32 keep_dims=False"
        ),
        (
            "out_eightbit/x/min = Min(out_eightbit/x/reshape, out_eightbit/x/reduction_dims)"
            " T=float32 keep_dims=False"
        ),
        (
            "out_eightbit/x/quantize = QuantizeV2(x, out_eightbit/x/min, out_eightbit/x/max)"
            " T=quint8 mode=MIN_FIRST"
        ),
        "out_eightbit/x/reduction_dims = Const(^x) value=int32[1]:0",
        "out_eightbit/x/reshape = Reshape(x, out_eightbit/x/reshape_dims) T=float32",
        "out_eightbit/x/reshape_dims = Const(^x) value=int32[1]:-1",
        "x = Placeholder()",
    ]


@pytest.mark.parametrize("tf115", [True, False])
def test_eight_bit_ops_that_follow_one_another_are_connected(tf115):
    result = apply(NAME, _layer(RELU, OUT), tf115=tf115)
    check_graph(result.graph, "test")
    assert result.matched == 2
    assert [str(r) for r in result.graph["relu/eightbit"].inputs] == [
        f"layer/eightbit/requantize:{i}" for i in range(3)
    ]
    assert result.graph["out"].op == "Softmax"
    assert result.graph["relu"].op == "Dequantize"


OPS = {
    "Add": (node("out", "Add", "x y"), "QuantizedAdd", 6),
    "AvgPool": (pool("out", "x", "AvgPool"), "QuantizedAvgPool", 3),
    "BiasAdd": (node("out", "BiasAdd", "x y"), "QuantizedBiasAdd", 6),
    "Concat": (node("out", "Concat", "axis x y", N=2), "QuantizedConcat", 7),
    "Conv2D": (conv("out", "x y"), "QuantizedConv2D", 6),
    "MatMul": (node("out", "MatMul", "x y", transpose_b=True), "QuantizedMatMul", 6),
    "MaxPool": (pool("out", "x"), "QuantizedMaxPool", 3),
    "Mul": (node("out", "Mul", "x y"), "QuantizedMul", 6),
    "Relu": (node("out", "Relu", "x"), "QuantizedRelu", 3),
    "Relu6": (node("out", "Relu6", "x"), "QuantizedRelu6", 3),
    "Reshape": (node("out", "Reshape", "x axis"), "QuantizedReshape", 4),
    "ResizeBilinear": (node("out", "ResizeBilinear", "x axis"), "QuantizedResizeBilinear", 4),
}


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_its_eight_bit_form(op):
    out, eightbit, inputs = OPS[op]
    graph = Graph([placeholder(), placeholder("y"), const("axis", [1], np.int32), out])
    result = apply(NAME, graph, inputs=("x", "y"), tf115=True)
    check_graph(result.graph, "test")
    assert result.graph["out/eightbit"].op == eightbit
    assert len(result.graph["out/eightbit"].inputs) == inputs
    widens = op in ("Add", "BiasAdd", "Conv2D", "MatMul", "Mul")
    assert op_counts(result.graph)["Requantize"] == widens


def test_the_ranges_of_a_concatenation_come_apart():
    graph = Graph([placeholder(), placeholder("y"), const("axis", 1, np.int32), OPS["Concat"][0]])
    inputs = apply(NAME, graph, inputs=("x", "y"), tf115=True).graph["out/eightbit"].inputs
    x, y = "out_eightbit/x/quantize", "out_eightbit/y/quantize"
    assert [str(r) for r in inputs] == [
        "axis", f"{x}:0", f"{y}:0", f"{x}:1", f"{y}:1", f"{x}:2", f"{y}:2",
    ]  # fmt: skip


NEAR_MISSES = {
    "not a float32 op": _layer(T=DType.HALF),
    "channels first": _layer(data_format="NCHW"),
    "dilations": _layer(dilations=(1, 2, 2, 1)),
    "explicit padding": _layer(padding="EXPLICIT", explicit_paddings=(0, 0, 1, 1, 1, 1, 0, 0)),
    "not have the inputs of its op": Graph([placeholder(), node("layer", "Mul", "x")]),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_a_node_without_an_eight_bit_form_stays_float(reason, tf115):
    """The original forgets what the eight-bit form does not have."""
    result = apply(NAME, NEAR_MISSES[reason], outputs=("layer",), tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == NEAR_MISSES[reason].by_name


def test_ops_can_be_excluded():
    result = apply(NAME, _layer(RELU, OUT), ignore_op=("Conv2D",), tf115=True)
    assert result.graph["layer"].op == "Conv2D"
    assert result.matched == 1


@pytest.mark.parametrize("tf115", [True, False])
def test_attributes_lost_by_the_original_are_kept(tf115):
    resize = node("r", "ResizeBilinear", "layer size", half_pixel_centers=True, align_corners=False)
    reshape = node("out", "Reshape", "r shape", Tshape=DType.INT64)
    sizes = [const("size", [4, 4], np.int32), const("shape", [-1], np.int64)]
    graph = apply(NAME, _layer(*sizes, resize, reshape), tf115=tf115).graph
    assert graph["r/eightbit"].attr_bool("half_pixel_centers")
    assert graph["out/eightbit"].attr_dtype("Tshape") is DType.INT64


@pytest.mark.parametrize("tf115", [True, False])
def test_control_inputs_are_not_tensors(tf115):
    """The original quantizes them."""
    graph = apply(NAME, _layer(node("out", "Relu", "layer ^x")), tf115=tf115).graph
    assert str(graph["out/eightbit"].inputs[-1]) == "^x"
    assert not any("hat" in n.name for n in graph)


def test_tensor_used_twice_fails_only_with_tf115():
    graph = _layer(node("out", "Mul", "layer layer"))
    with pytest.raises(TransformError, match="'out' takes one tensor twice"):
        apply(NAME, graph, tf115=True)
    inputs = apply(NAME, graph).graph["out/eightbit"].inputs
    assert str(inputs[0]) == str(inputs[1]) == "layer/eightbit/requantize:0"


def test_outputs_of_a_node_are_distinguished():
    graph = Graph([placeholder(), node("out", "Add", "x:1 x:0")])
    result = apply(NAME, graph, tf115=True).graph
    assert {"out_eightbit/x__port__1/quantize", "out_eightbit/x__port__0/quantize"} <= set(
        result.by_name
    )


def test_a_fallback_range_takes_the_place_of_measuring():
    result = apply(NAME, _layer(RELU, OUT), fallback_min=-3.0, fallback_max=5.5)
    assert "RequantizationRange" not in op_counts(result.graph)
    ends = [result.graph[f"layer/eightbit/fallback_{end}"] for end in ("min", "max")]
    assert [float(n.attr_tensor("value").array()) for n in ends] == [-3.0, 5.5]


@pytest.mark.parametrize("tf115", [True, False])
def test_placeholders_may_take_eight_bits(tf115):
    labels = placeholder("labels", kind=DType.INT32)
    graph = Graph([*_layer(RELU, OUT), labels])
    result = apply(NAME, graph, input_min=-1.0, input_max=1.0, tf115=tf115).graph
    assert result["x"].attr_dtype("dtype") is DType.QUINT8
    # The original makes every placeholder one of eight-bit numbers.
    assert result["labels"].attr_dtype("dtype") is DType.INT32
    assert [str(r) for r in result["x_eightbit/dequantize"].inputs] == [
        "x", "x_eightbit/min", "x_eightbit/max",
    ]  # fmt: skip
    assert [str(r) for r in result["layer/eightbit"].inputs[:1]] == ["x"]


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_min": 1.0}, "input_min and input_max"),
        ({"fallback_max": 1.0}, "fallback_min and fallback_max"),
        ({"input_min": 3.0, "input_max": 1.0}, "is empty"),
        ({"fallback_min": 0.0, "fallback_max": 0.0}, "is empty"),
        ({"fallback_min": 1.0, "fallback_max": 2.0}, "hold zero"),
        ({"fallback_min": float("nan"), "fallback_max": 2.0}, "is empty"),
    ],
)
def test_ranges_that_no_run_would_take_are_refused(options, message, tf115):
    """The original makes graphs that fail when they run."""
    with pytest.raises(TransformError, match=message) as error:
        apply(NAME, _layer(RELU, OUT), tf115=tf115, **options)
    assert error.value.hint


@pytest.mark.parametrize("tf115", [True, False])
def test_learnt_ranges_take_the_place_of_measured_ones(tf115):
    chain = [RELU, pool("pool", "relu"), *_fake_quant("fq", "pool"), node("out", "Softmax", "fq")]
    result = apply(NAME, _layer(*chain), tf115=tf115)
    check_graph(result.graph, "test")
    assert "FakeQuantWithMinMaxVars" not in op_counts(result.graph)
    # Moved up to the convolution, whose 32-bit result it narrows.
    (narrow,) = (n for n in result.graph if n.op == "Requantize")
    assert [str(r) for r in narrow.inputs] == [
        "layer/eightbit:0", "layer/eightbit:1", "layer/eightbit:2", "fq_min", "fq_max",
    ]  # fmt: skip


@pytest.mark.parametrize("tf115", [True, False])
def test_a_learnt_range_is_not_moved_before_an_op_that_changes_it(tf115):
    """The original moves it before a sigmoid as well."""
    chain = [node("s", "Sigmoid", "layer"), *_fake_quant("fq", "s"), node("out", "Softmax", "fq")]
    graph = apply(NAME, _layer(*chain), tf115=tf115).graph
    assert [str(r) for r in graph["s"].inputs] == ["layer"]


@pytest.mark.parametrize("tf115", [True, False])
def test_a_learnt_range_is_not_moved_before_a_node_that_is_used_elsewhere(tf115):
    chain = [RELU, pool("pool", "relu"), *_fake_quant("fq", "pool")]
    out = node("out", "AddN", "fq pool", N=2)
    graph = apply(NAME, _layer(*chain, out), tf115=tf115).graph
    assert graph["pool"].op == "Dequantize"
    assert "fq_hoisted_eightbit/quantize" not in graph


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("ends", [(1.0, 2.0), (3.0, 3.0), (2.0, -2.0)])
def test_a_learnt_range_that_no_run_would_take_stays_a_fake_quantization(ends, tf115):
    chain = [*_fake_quant("fq", "layer", *ends), node("out", "Softmax", "fq")]
    result = apply(NAME, _layer(*chain), tf115=tf115)
    assert result.graph["fq"].op == "FakeQuantWithMinMaxVars"
    assert any("empty or above zero" in reason for reason in result.skipped)


@pytest.mark.parametrize("tf115", [True, False])
def test_fake_quantization_does_not_pass_range_changes(tf115):
    """The original cuts what goes into the Softmax to the range of what comes out."""
    graph = _layer(node("s", "Softmax", "layer"), *_fake_quant("out", "s", 0.0, 1.0))
    result = apply(NAME, graph, tf115=tf115).graph
    assert result["s"].op == "Softmax"
    x = normal(1, 6, 6, 4)
    np.testing.assert_allclose(run(result, x), run(graph, x), atol=0.1)


def test_a_recipe_lets_learnt_ranges_share_their_constants():
    shared = [
        const("low", -1.0),
        const("high", 6.0),
        node("a", "FakeQuantWithMinMaxVars", "layer low high", T=None),
        node("s", "Sigmoid", "a"),
        node("out", "FakeQuantWithMinMaxVars", "s low high", T=None),
    ]
    assert op_counts(apply(NAME, _layer(*shared)).graph)["FakeQuantWithMinMaxVars"] == 0
    assert op_counts(apply(NAME, _layer(*shared), tf115=True).graph)["FakeQuantWithMinMaxVars"] == 1


def test_a_recipe_leaves_small_ops_that_no_eight_bit_op_feeds():
    """What the original does to them makes unrolled networks grow many times over."""
    small = [
        node("scaled", "Mul", "x half"),
        conv("layer", "scaled w"),
        node("bias", "BiasAdd", "layer b"),
        node("s", "Sigmoid", "bias"),
        node("out", "Mul", "s s2"),
        node("s2", "Tanh", "bias"),
    ]
    constants = [const("w", normal(3, 3, 4, 5)), const("b", normal(5)), const("half", 0.5)]
    graph = Graph([placeholder(), *constants, *small])
    recipe = apply(NAME, graph)
    assert (recipe.graph["scaled"].op, recipe.graph["out"].op) == ("Mul", "Mul")
    assert recipe.graph["bias/eightbit"].op == "QuantizedBiasAdd"
    assert list(recipe.skipped.values()) == [2]
    tf115 = apply(NAME, graph, tf115=True)
    assert tf115.graph["out/eightbit"].op == "QuantizedMul"
    assert len(recipe.graph) < len(tf115.graph)


def test_a_recipe_shares_the_constants_that_ranges_are_measured_with():
    recipe = apply(NAME, _layer(RELU, OUT)).graph
    tf115 = apply(NAME, _layer(RELU, OUT), tf115=True).graph
    assert op_counts(recipe)["Const"] == 3
    assert op_counts(tf115)["Const"] > 3


def test_a_loop_keeps_its_constants():
    body = [
        node("enter", "Enter", "x", frame_name="loop"),
        conv("layer", "enter w"),
        node("out", "Exit", "layer"),
    ]
    graph = apply(NAME, Graph([placeholder(), const("w", normal(3, 3, 4, 5)), *body])).graph
    assert [str(r) for r in graph["layer_eightbit/enter/reshape_dims"].inputs] == ["^enter"]


@pytest.mark.parametrize("tf115", [True, False])
def test_floats_that_the_user_fetches_stay(tf115):
    result = apply(NAME, _layer(RELU, OUT), outputs=("layer", "out"), tf115=tf115)
    assert result.graph["layer"].op == "Dequantize"


@pytest.mark.parametrize("tf115", [True, False])
def test_a_fetched_node_before_a_fake_quantization_stays(tf115):
    """The original takes it away."""
    graph = _layer(*_fake_quant("out", "layer"))
    result = apply(NAME, graph, outputs=("layer", "out"), tf115=tf115).graph
    assert result["layer"].op == "Dequantize"
    x = normal(1, 6, 6, 4)
    for fetched in ("layer", "out"):
        expected = run(graph, x, fetched)
        np.testing.assert_allclose(run(result, x, fetched), expected, atol=0.02 * np.ptp(expected))


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize(
    ("kind", "mode"), [(DType.QINT8, "MIN_FIRST"), (DType.QUINT8, "MIN_COMBINED")]
)
def test_other_integer_types_are_not_used_directly(kind, mode, tf115):
    """The original connects them all the same."""
    graph = Graph(
        [
            placeholder(kind=kind),
            const("low", -1.0),
            const("high", 1.0),
            node("floats", "Dequantize", "x low high", T=kind, mode=mode),
            const("w", normal(3, 3, 4, 5)),
            conv("out", "floats w"),
        ]
    )
    result = apply(NAME, graph, tf115=tf115).graph
    assert str(result["out/eightbit"].inputs[0]) == "out_eightbit/floats/quantize:0"


def test_a_recipe_without_anything_to_quantize_gives_the_same_object():
    graph = Graph([placeholder(), node("out", "Softmax", "x")])
    assert apply(NAME, graph).graph is graph


def _summed(kind, x=None, y=None):
    fed = [
        replace(placeholder(n), attrs={**placeholder(n).attrs, "shape": attr.shape(s)})
        for n, s in (("x", x), ("y", y))
    ]
    return Graph(
        [*fed, const("w", normal(1, 1, 4, 4)), conv("layer", "x w"), node("out", kind, "layer y")]
    )


@pytest.mark.parametrize(
    ("x", "y", "is_eightbit"),
    [
        ((1, 8, 8, 4), (1, 8, 8, 4), True),
        ((-1, 8, 8, 4), (4,), True),
        ((-1, 8, 8, 4), (-1, 8, 8, 4), True),
        ((-1, 8, 8, 4), (1,), True),
        ((1, 8, 8, 4), (8, 1, 4), False),
        ((-1, -1, -1, 4), (-1, -1, -1, 4), False),
        ((1, 8, 8, 4), None, False),
    ],
)
@pytest.mark.parametrize("kind", ["Add", "AddV2", "Mul"])
def test_a_recipe_leaves_sums_float_that_tensorflow_may_not_broadcast(kind, x, y, is_eightbit):
    graph = _summed(kind, x=x, y=y)
    result = apply(NAME, graph, inputs=("x", "y"))
    assert ("out/eightbit" in result.graph) == is_eightbit
    assert any("broadcast" in reason for reason in result.skipped) != is_eightbit


def test_a_recipe_quantizes_the_newer_sum_as_the_older_one():
    graph = apply(NAME, _summed("AddV2", x=(1, 8, 8, 4), y=(4,)), inputs=("x", "y")).graph
    assert graph["out/eightbit"].op == "QuantizedAdd"
    assert apply(NAME, _summed("AddV2"), inputs=("x", "y"), tf115=True).graph["out"].op == "AddV2"


@pytest.mark.parametrize(("axis", "is_eightbit"), [(3, True), (-1, False)])
def test_a_recipe_quantizes_the_newer_concatenation_as_the_older_one(axis, is_eightbit):
    """The eight-bit form counts axes from the front alone."""
    joined = node("out", "ConcatV2", "layer layer axis", N=2, Tidx=DType.INT32)
    result = apply(NAME, _layer(const("axis", axis, np.int32), joined)).graph
    assert ("out/eightbit" in result) == is_eightbit
    if is_eightbit:
        main = result["out/eightbit"]
        assert (main.op, str(main.inputs[0])) == ("QuantizedConcat", "axis")
        check_graph(result, "test")


def test_a_recipe_leaves_convolutions_float_that_tensorflow_does_otherwise():
    graph = _layer(strides=(1, 2, 1, 1))
    assert apply(NAME, graph, outputs=("layer",)).graph is graph
    assert "layer/eightbit" in apply(NAME, graph, outputs=("layer",), tf115=True).graph


def test_a_recipe_leaves_convolutions_of_groups_float():
    """TensorFlow 2 runs them; its eight-bit kernel refuses filters of fewer channels."""
    images = replace(
        placeholder(), attrs={**placeholder().attrs, "shape": attr.shape((1, 4, 4, 4))}
    )
    graph = Graph([images, const("w", normal(1, 1, 2, 6)), conv("out", "x w")])
    assert apply(NAME, graph).graph is graph
    unknown = Graph([placeholder(), *graph.nodes[1:]])
    assert "out/eightbit" in apply(NAME, unknown).graph
    assert "out/eightbit" in apply(NAME, graph, tf115=True).graph


def test_an_empty_tensor_of_a_branch_has_a_range_in_a_recipe():
    """The least of no elements is infinity, the greatest minus infinity."""
    chain = [
        placeholder(),
        placeholder("on", DType.BOOL),
        node("way", "Switch", "x on"),
        const("w", normal(1, 1, 4, 5)),
        conv("layer", "way:1 w"),
        node("out", "Relu", "layer"),
    ]
    graph = apply(NAME, Graph(chain), inputs=("x", "on")).graph
    empty = {"x": np.empty((0, 4, 4, 4), np.float32), "on": np.True_}
    (found,) = Interpreter(graph).run(["out"], empty)
    assert found.shape == (0, 4, 4, 5)


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("options", [{}, {"fallback_min": -9.0, "fallback_max": 9.0}])
def test_new_names_are_free(options, tf115):
    """The original makes two nodes of one name."""
    tail = [*_fake_quant("learnt", "relu"), node("out", "Neg", "learnt")]
    graph = _layer(RELU, *tail)
    given = {"outputs": ("out", "other"), "tf115": tf115, **options}
    made = [n.name for n in apply(NAME, graph, **given).graph if n.name not in graph]
    assert len(made) > 10
    x = normal(1, 8, 8, 4)
    plain = apply(NAME, with_taken(graph, "free"), **given).graph
    for name in made:
        after = apply(NAME, with_taken(graph, name), **given).graph
        check_graph(after, "")
        assert after[name].op == "Exp"
        assert np.array_equal(run(after, x, "other"), run(plain, x, "other")), name


@pytest.mark.parametrize("tf115", [True, False])
def test_new_names_of_placeholders_are_free(tf115):
    taken = [const(f"x_eightbit/{part}", 5.0) for part in ("min", "max", "dequantize")]
    graph = Graph([placeholder(), *taken, node("out", "Neg", "x")])
    after = apply(NAME, graph, input_min=0.0, input_max=1.0, tf115=tf115).graph
    check_graph(after, "")
    assert after["x_eightbit/dequantize_1"].op == "Dequantize"


@pytest.mark.parametrize("tf115", [True, False])
def test_a_fake_quantization_moves_under_a_name_that_is_free(tf115):
    pooling = pool("pool", "relu")
    graph = _layer(RELU, pooling, *_fake_quant("learnt", "pool"), node("out", "Neg", "learnt"))
    taken = Graph([*graph, node("learnt_hoisted", "Exp", "out")])
    outputs = ("out", "learnt_hoisted")
    after = apply(NAME, taken, outputs=outputs, tf115=tf115).graph
    check_graph(after, "")
    x = normal(1, 8, 8, 4)
    wanted = run(apply(NAME, graph, tf115=tf115).graph, x)
    assert np.array_equal(run(after, x, "learnt_hoisted"), np.exp(wanted))


@pytest.mark.parametrize("tf115", [True, False])
def test_a_network_is_quantized_in_two_steps(tf115):
    tail = [
        pool("pool", "relu"),
        node("joined", "ConcatV2", "pool pool last", N=2, Tidx=DType.INT32),
        const("w2", normal(1, 1, 10, 3, seed=1)),
        conv("out", "joined w2"),
    ]
    graph = _layer(RELU, const("last", 3, "int32"), *tail)
    once = apply(NAME, graph, ranges="dynamic", ignore_op=("MaxPool",), tf115=tf115).graph
    twice = apply(NAME, once, tf115=tf115).graph
    check_graph(twice, "")
    x = normal(1, 8, 8, 4)
    wanted = run(graph, x)
    assert np.abs(run(twice, x) - wanted).max() < np.ptp(wanted) / 20

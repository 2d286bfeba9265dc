"""insert_fake_quant: ranges for training, where contrib.quantize places them.

``tests/reference/test_fake_quant.py`` compares places, gradients, and ranges with the original.
"""

import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from tests.transforms.graphs import apply, const, conv, node, placeholder

REFS = {"T": None, "dtype": DType.FLOAT}


def variable(name, *shape, op="VariableV2"):
    made = node(name, op, **REFS)
    made = made.with_attrs(shape=attr.shape(shape))
    read = "ReadVariableOp" if op == "VarHandleOp" else "Identity"
    typed = {"T": None, "dtype": DType.FLOAT} if op == "VarHandleOp" else {}
    return [made, node(f"{name}/read", read, name, **typed)]


def layer(scope="conv", source="x", *, act="Relu", op="Conv2D", weights=(3, 3, 2, 4)):
    """A layer with biases and an activation."""
    return [
        *variable(f"{scope}/w", *weights),
        *variable(f"{scope}/b", weights[-1]),
        conv(f"{scope}/conv", f"{source} {scope}/w/read", op),
        node(f"{scope}/bias", "BiasAdd", f"{scope}/conv {scope}/b/read"),
        node(f"{scope}/act", act, f"{scope}/bias"),
    ]


EXAMPLE_NODES = layer("more", weights=(3, 3, 4, 2))


def network(*more, **options):
    return Graph([placeholder(), *layer(**options), node("out", "Softmax", "conv/act"), *more])


def rounded(graph):
    """The tensor that each fake quantization rounds."""
    return {n.name: str(n.inputs[0]) for n in graph if n.op.startswith("FakeQuant")}


def sources(graph, name):
    return [str(r) for r in graph[name].inputs]


def test_weights_and_activations_are_rounded():
    result = apply("insert_fake_quant", network())
    graph = result.graph
    assert result.matched == 2
    assert rounded(graph) == {
        "conv/weights_quant/FakeQuantWithMinMaxVars": "conv/w/read",
        "conv/act_quant/FakeQuantWithMinMaxVars": "conv/act",
    }
    assert sources(graph, "conv/conv") == ["x", "conv/weights_quant/FakeQuantWithMinMaxVars"]
    assert sources(graph, "out") == ["conv/act_quant/FakeQuantWithMinMaxVars"]
    weights = graph["conv/weights_quant/FakeQuantWithMinMaxVars"]
    assert (weights.attr_int("num_bits"), weights.attr_bool("narrow_range")) == (8, True)
    activation = graph["conv/act_quant/FakeQuantWithMinMaxVars"]
    assert (activation.attr_int("num_bits"), activation.attr_bool("narrow_range")) == (8, False)
    assert sources(graph, weights.name)[1:] == [
        "conv/weights_quant/AssignMinLast",
        "conv/weights_quant/AssignMaxLast",
    ]


def test_new_variables_have_initializers():
    graph = apply("insert_fake_quant", network()).graph
    new = [n.name for n in graph if n.op == "VariableV2" and "_quant/" in n.name]
    assert len(new) == 2 + 6  # minimum and maximum; two more for each moving average
    initial = {name: graph[f"{name}/Initializer/Const"].attr_tensor("value") for name in new}
    for name, value in initial.items():
        assert sources(graph, f"{name}/Assign") == [name, f"{name}/Initializer/Const"]
        assert graph[name].attr_shape("shape") == value.shape == ()
    assert float(initial["conv/weights_quant/min"].array()) == -6
    assert float(initial["conv/act_quant/min"].array()) == 0
    assert float(initial["conv/act_quant/max"].array()) == 6


def test_inference_reads_the_variables():
    graph = apply("insert_fake_quant", network(), mode="eval").graph
    for scope in ("weights_quant", "act_quant"):
        name = f"conv/{scope}/FakeQuantWithMinMaxVars"
        assert sources(graph, name)[1:] == [f"conv/{scope}/min/read", f"conv/{scope}/max/read"]
    assert not any(n.op in ("AssignSub", "AssignAdd", "Min", "Max") for n in graph)
    assert sum(n.op == "VariableV2" for n in graph) == 2 + 4


def test_learned_ranges_are_marked_for_the_optimizer():
    graph = apply("insert_fake_quant", network(), ranges="learned").graph
    marked = [n.name for n in graph if "_trainable" in n.attrs]
    assert marked == [f"conv/{q}_quant/{m}" for q in ("weights", "act") for m in ("min", "max")]
    assert "Min" not in {n.op for n in graph}
    after = apply("insert_fake_quant", network(), ranges="learned", mode="eval").graph
    assert not [n for n in after if "_trainable" in n.attrs]


def test_bits_and_ranges_for_each_channel():
    options = {"weight_bits": 4, "activation_bits": 6, "granularity": "channel"}
    graph = apply("insert_fake_quant", network(), **options).graph
    weights = graph["conv/weights_quant/FakeQuantWithMinMaxVarsPerChannel"]
    assert weights.attr_int("num_bits") == 4
    assert graph["conv/weights_quant/min"].attr_shape("shape") == (4,)
    assert graph["conv/weights_quant/values/shape"].attr_tensor("value").array().tolist() == [-1, 4]
    assert graph["conv/act_quant/FakeQuantWithMinMaxVars"].attr_int("num_bits") == 6


def test_depthwise_weights_keep_one_range():
    graph = network(op="DepthwiseConv2dNative", weights=(3, 3, 2, 2))
    after = apply("insert_fake_quant", graph, granularity="channel").graph
    assert "conv/weights_quant/FakeQuantWithMinMaxVars" in after


def test_delay_selects_the_exact_tensor_at_first():
    graph = apply("insert_fake_quant", network(), quant_delay=100).graph
    assert sources(graph, "out") == ["conv/act_quant/delayed_quant"]
    assert sources(graph, "conv/act_quant/delayed_quant") == [
        "fake_quantization_step/GreaterEqual",
        "conv/act_quant/FakeQuantWithMinMaxVars",
        "conv/act",
    ]
    assert int(graph["fake_quantization_step/delay"].attr_tensor("value").array()) == 100


def test_symmetric_range_of_activations_is_that_of_twos_complement():
    graph = apply("insert_fake_quant", network(), symmetric=True).graph
    factors = {
        name: float(graph[f"conv/{name}/factor"].attr_tensor("value").array())
        for name in ("weights_quant/negative_max", "act_quant/negative_max")
    }
    assert factors["weights_quant/negative_max"] == -1
    assert factors["act_quant/negative_max"] == pytest.approx(-256 / 254)


@pytest.mark.parametrize("op", ["VariableV2", "VarHandleOp", "Variable"])
def test_every_kind_of_variable(op):
    graph = network()
    nodes = [n for n in graph if n.name not in ("conv/w", "conv/w/read")]
    after = apply("insert_fake_quant", Graph([*variable("conv/w", 3, 3, 2, 4, op=op), *nodes]))
    assert after.graph["conv/weights_quant/FakeQuantWithMinMaxVars"].inputs[0] == Ref("conv/w/read")


def test_other_scopes_stay():
    graph = Graph([placeholder(), *layer("a"), *layer("b", "a/act"), node("out", "Neg", "b/act")])
    after = apply("insert_fake_quant", graph, scope="b").graph
    assert set(rounded(after).values()) == {"b/w/read", "b/act"}
    assert apply("insert_fake_quant", graph, scope="other").graph is graph


def test_consumed_input_of_a_layer_without_variables_stays():
    graph = Graph(
        [placeholder(), *variable("v"), const("w", [[1.0]]), node("out", "MatMul", "x w")]
    )
    result = apply("insert_fake_quant", graph)
    assert (result.graph, result.matched) == (graph, 0)


def test_a_second_run_changes_nothing():
    graph = apply("insert_fake_quant", network()).graph
    again = apply("insert_fake_quant", graph)
    assert (again.graph, again.matched) == (graph, 0)


def norm(training, source="conv/conv", **attrs):
    names = ("gamma", "beta", "mean", "variance")
    inputs = " ".join(f"bn/{name}/read" for name in names)
    if training:
        inputs = "bn/gamma/read bn/beta/read none none"
    return [
        const("none", []),
        *(n for name in names for n in variable(f"bn/{name}", 4)),
        node(
            "bn/norm", "FusedBatchNormV3", f"{source} {inputs}", **attrs,
            epsilon=0.001, is_training=training, data_format="NHWC",
        ),
    ]  # fmt: skip


def normalized(training, *more):
    nodes = [*variable("conv/w", 3, 3, 2, 4), conv("conv/conv", "x conv/w/read"), *norm(training)]
    return Graph([placeholder(), *nodes, node("out", "Relu6", "bn/norm"), *more])


def test_inference_folds_batch_normalizations_into_weights():
    result = apply("insert_fake_quant", normalized(False), mode="eval")
    graph = result.graph
    assert rounded(graph) == {
        "conv/weights_quant/FakeQuantWithMinMaxVars": "conv/mul_fold",
        "conv/act_quant/FakeQuantWithMinMaxVars": "out",
    }
    assert sources(graph, "conv/mul_fold") == ["conv/w/read", "conv/BatchNorm_Fold/mul"]
    assert sources(graph, "out") == ["conv/add_fold"]
    assert "bn/norm" not in graph
    assert "conv/conv" not in graph


UPDATE = [
    node("bn/gap", "Sub", "bn/variance/read bn/norm:2"),
    node("bn/update", "AssignSub", "bn/variance bn/gap"),
]


def test_training_corrects_to_the_variance_of_the_batch():
    graph = apply("insert_fake_quant", normalized(True, *UPDATE)).graph
    assert sources(graph, "conv/mul_fold")[0] == "conv/correction_mult"
    assert sources(graph, "conv/BatchNorm_Fold/moving_variance/add")[0] == "bn/variance/read"
    assert sources(graph, "conv/add_fold") == ["conv/post_conv_mul", "conv/BatchNorm_Fold/bias"]
    assert "bn/norm" in graph, "the moving averages need its outputs"
    assert sources(graph, "conv/conv") == ["x", "conv/w/read"]


def test_training_without_a_moving_variance_is_refused():
    with pytest.raises(TransformError, match=r"nothing updates a moving variance of .*'bn/norm'"):
        apply("insert_fake_quant", normalized(True))


def test_a_normalization_of_something_else_is_counted():
    graph = Graph([*network(), *norm(False, "conv/act"), node("end", "Neg", "bn/norm")])
    result = apply("insert_fake_quant", graph, mode="eval")
    reason = "a batch normalization does not follow a layer with variables"
    assert result.skipped == {reason: 1}
    assert result.matched == 2


@pytest.mark.parametrize(
    ("name", "op"),
    [("gradients/conv_grad/x", "Conv2DBackpropFilter"), ("Adam/step", "ApplyAdam"),
     ("step", "ResourceApplyGradientDescent"), ("step", "SparseApplyMomentum")],
)  # fmt: skip
def test_a_graph_with_gradients_is_refused(name, op):
    graph = network(Node(name, op, (Ref("x"),)))
    with pytest.raises(TransformError, match=f"gradients already, such as node '{name}'") as error:
        apply("insert_fake_quant", graph)
    assert "before the optimizer adds them" in error.value.hint


def test_a_frozen_graph_is_refused():
    graph = Graph([placeholder(), const("w", [[1.0]]), node("out", "MatMul", "x w")])
    with pytest.raises(TransformError, match="has no variables"):
        apply("insert_fake_quant", graph)


def test_layers_of_other_types_and_in_loops_stay():
    entered = node("entered", "Enter", "conv/w/read", frame_name="loop")
    nodes = [n for n in network() if n.name != "conv/conv"]
    loop = Graph([*nodes, entered, conv("conv/conv", "x entered")])
    half = Graph([*nodes, conv("conv/conv", "x conv/w/read", T=DType.HALF)])
    for graph in (loop, half):
        assert apply("insert_fake_quant", graph).graph is graph


def unfused(product, weights, *more, size=4):
    """A product, normalized by averages with ops of their own."""
    names = ("variance", "gamma", "shift")
    return Graph(
        [
            placeholder(),
            *variable("d/w", *weights),
            product,
            *(n for name in names for n in variable(f"bn/{name}", size)),
            const("epsilon", 0.001),
            node("raised", "AddV2", "bn/variance/read epsilon"),
            node("root", "Rsqrt", "raised"),
            node("scale", "Mul", "root bn/gamma/read"),
            node("scaled", "Mul", "d/product scale"),
            node("sum", "AddV2", "scaled bn/shift/read"),
            node("out", "Relu", "sum"),
        ]
    )


def test_formulas_of_batch_normalizations_are_folded():
    product = node("d/product", "MatMul", "x d/w/read")
    graph = apply("insert_fake_quant", unfused(product, (3, 4)), mode="eval").graph
    assert sources(graph, "d/mul_fold") == ["d/w/read", "scale"]
    assert sources(graph, "d/add_fold") == ["d/product_Fold", "bn/shift/read"]
    assert sources(graph, "out") == ["d/add_fold"]
    assert set(rounded(graph).values()) == {"d/mul_fold", "out"}


def test_scales_of_transposed_weights_and_of_whole_tensors_are_not_folded():
    transposed = node("d/product", "MatMul", "x d/w/read", transpose_b=True)
    plain = node("d/product", "MatMul", "x d/w/read")
    scalar = [n for n in unfused(plain, (3, 4)) if n.name not in ("bn/variance", "bn/gamma")]
    whole = [*variable("bn/variance")[:1], *variable("bn/gamma")[:1], *scalar]
    for graph in (unfused(transposed, (4, 3)), Graph(whole)):
        after = apply("insert_fake_quant", graph, mode="eval").graph
        assert "d/mul_fold" not in after

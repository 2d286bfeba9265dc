"""quantize_nodes: rules for single layers, and ranges that were learnt in training."""

import numpy as np
import pytest

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from tests.transforms.graphs import apply, const, conv, node, normal, op_counts, placeholder, run

NAME = "quantize_nodes"
X = normal(1, 6, 6, 4, seed=5)


def _network():
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 6, seed=1) / 8),
            const("d", normal(3, 3, 6, 1, seed=2) / 2),
            const("v", normal(1, 1, 6, 5, seed=3) / 3),
            conv("block/conv", "x w"),
            conv("block/depthwise", "block/conv d", op="DepthwiseConv2dNative"),
            node("block/relu", "Relu", "block/depthwise"),
            conv("logits", "block/relu v"),
            node("out", "Tanh", "logits"),
        ]
    )


def _apply(*rules, **options):
    return apply(NAME, _network(), ranges="dynamic", rule=rules, **options)


RULES = {
    ("mode=float nodes=^block/",): ("Conv2D", "QuantizedConv2D"),
    ("mode=float ops=Conv2D",): ("Conv2D", "Conv2D"),
    ("mode=float nodes=logits ops=MatMul,Conv2D",): ("QuantizedConv2D", "Conv2D"),
    ("mode=float nodes=^conv",): ("QuantizedConv2D", "QuantizedConv2D"),
    ("mode=float", "mode=nodes nodes=^block/"): ("QuantizedConv2D", "Conv2D"),
    ("mode=nodes nodes=^block/", "mode=float"): ("Conv2D", "Conv2D"),
}


@pytest.mark.parametrize("rules", RULES)
def test_the_last_rule_that_fits_a_layer_decides(rules):
    graph = _apply(*rules).graph

    def op(name):
        return "QuantizedConv2D" if f"{name}/eightbit" in graph else graph[name].op

    assert (op("block/conv"), op("logits")) == RULES[rules]


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_weights_alone_are_stored_in_eight_bits(granularity):
    """Each weight is off by a step at most, which is a 255th of their range, in three layers."""
    graph = _network()
    result = _apply(f"mode=weights granularity={granularity}")
    check_graph(result.graph, "test")
    assert result.matched == 3
    assert op_counts(result.graph)["Dequantize"] == 3
    assert op_counts(result.graph)["Mul"] == (3 if granularity == "channel" else 0)
    assert not [n for n in result.graph if n.op.startswith("Quantize")]
    assert np.abs(run(result.graph, X) - run(graph, X)).max() < 0.03


def test_rule_stores_weights_of_float_layers():
    result = _apply("granularity=channel ops=DepthwiseConv2dNative")
    assert result.matched == 3
    assert result.graph["block/depthwise"].op == "DepthwiseConv2dNative"
    weights = result.graph["block/depthwise"].inputs[1].node
    assert result.graph[weights].op == "Mul"


def test_fewer_bits_use_fewer_numbers():
    graph = _apply("bits=4 granularity=tensor").graph
    stored = [n.attr_tensor("value") for n in graph if n.op == "Const"]
    eightbit = [t.array() for t in stored if t.dtype is DType.QUINT8]
    assert all(values.max() <= 15 for values in eightbit)
    assert np.abs(run(graph, X) - run(_network(), X)).max() < 0.5


def test_less_squared_error_than_of_the_whole_range():
    wide = normal(1, 1, 64, 4, seed=9)
    wide[0, 0, 0] = 12
    graph = Graph([placeholder(), const("w", wide), conv("out", "x w")])
    errors = []
    for method in ("min_max", "mse", "percentile percentile=98", "entropy"):
        rule = (f"mode=weights bits=4 granularity=channel method={method}",)
        result = apply(NAME, graph, ranges="dynamic", rule=rule).graph
        eye = np.eye(64, dtype=np.float32).reshape(1, 8, 8, 64)
        errors.append(np.square(run(result, eye) - run(graph, eye)).sum())
    assert errors[1] < 0.9 * errors[0]
    # These cut more off, for the sake of the weights that there are more of.
    assert min(errors[2:]) > errors[1]


def test_ops_that_have_no_eight_bit_form_say_so():
    result = _apply("mode=nodes ops=DepthwiseConv2dNative")
    assert [reason for reason in result.skipped if "depthwise" in reason]


def test_a_layer_that_a_rule_leaves_float_is_counted():
    assert _apply("mode=float ops=Conv2D").skipped["a rule leaves it float"] == 2


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("", "has no effect"),
        ("nodes=x", "has no effect"),
        ("mode=int8", "mode the value 'int8'"),
        ("bits=9", "bits the value '9'"),
        ("mode=float mode=nodes", "is not understood"),
        ("modes=float", "'modes=float', which is not understood"),
        ("float", "is not understood"),
        ("mode=float nodes=(", "is not understood"),
        ("method=percentile percentile=49", "percentile the value '49'"),
        ("method=percentile percentile=nan", "percentile the value 'nan'"),
        ("method=percentile percentile=most", "percentile the value 'most'"),
        ("method=mse percentile=99", "percentile without its method"),
    ],
)
def test_a_rule_that_is_not_understood_is_refused(rule, message):
    with pytest.raises(TransformError, match=message) as error:
        _apply(rule)
    assert error.value.hint


# Fake quantization, as training leaves it.

LOW, HIGH = -0.7, 2.2


def _fake(name, source, op="FakeQuantWithMinMaxVars", low=LOW, high=HIGH, **attrs):
    ends = [const(f"{name}_low", low), const(f"{name}_high", high)]
    return [*ends, node(name, op, f"{source} {name}_low {name}_high", T=None, **attrs)]


def _round_trip(name, source, version, **attrs):
    if version == 1:
        given = {"input_min": LOW, "input_max": HIGH, "num_bits": 8, "range_given": True, **attrs}
        return [node(name, "QuantizeAndDequantize", source, **given)]
    ends = [const(f"{name}_low", LOW), const(f"{name}_high", HIGH)]
    op = f"QuantizeAndDequantizeV{version}"
    inputs = f"{source} {name}_low {name}_high"
    if version in (2, 4):
        return [*ends, node(name, op, inputs, num_bits=8, range_given=True, **attrs)]
    bits = const(f"{name}_bits", 8, np.int32)
    return [*ends, bits, node(name, op, f"{inputs} {name}_bits", range_given=True, **attrs)]


def _trained(*fake, weights="w"):
    return Graph(
        [
            placeholder(),
            *fake,
            const("w", normal(1, 1, 4, 5, seed=1) / 2),
            conv("out", f"fake {weights}"),
        ]
    )


FAKES = {
    "vars": _fake("fake", "x"),
    "narrow": _fake("fake", "x", narrow_range=True),
    "five bits": _fake("fake", "x", num_bits=5),
    "args": [node("fake", "FakeQuantWithMinMaxArgs", "x", T=None, min=LOW, max=HIGH, num_bits=8)],
    **{f"round trip {v}": _round_trip("fake", "x", v) for v in (1, 2, 3, 4)},
    "unsigned": _round_trip("fake", "x", 2, signed_input=False),
    "narrow round trip": _round_trip("fake", "x", 2, narrow_range=True),
}


@pytest.mark.parametrize("kind", FAKES)
def test_learnt_steps_are_those_of_the_eight_bits(kind):
    """Only the weights are rounded anew: fake quantization has done so with the input."""
    graph = _trained(*FAKES[kind])
    result = apply(NAME, graph, ranges="trained")
    check_graph(result.graph, "test")
    assert result.matched == 1
    assert not {"Min", "Max"} & op_counts(result.graph).keys()
    # Of the input, an identity for weights tells what is left.
    eye = Graph(
        [n for n in graph if n.name not in ("w", "out")]
        + [const("w", np.eye(4).reshape(1, 1, 4, 4)), conv("out", "fake w")]
    )
    got, want = run(apply(NAME, eye, ranges="trained").graph, X), run(eye, X)
    # Halves between two steps may go either way: up at one, to even at the other.
    step = (HIGH - LOW) / 15
    assert np.mean(np.abs(got - want) > 1e-5) < 0.02
    assert np.abs(got - want).max() < step


def test_full_ranges_take_the_place_of_fake_quantization():
    full = apply(NAME, _trained(*FAKES["vars"]), ranges="trained").graph
    partial = apply(NAME, _trained(*FAKES["five bits"]), ranges="trained").graph
    assert "fake" not in full
    assert partial["fake"].op == "FakeQuantWithMinMaxVars"


def test_learnt_ranges_count_only_where_they_are_asked_for():
    result = apply(NAME, _trained(*FAKES["vars"]), ranges="dynamic").graph
    assert result["fake"].op == "FakeQuantWithMinMaxVars"
    assert op_counts(result)["Min"] == 1


def test_a_layer_that_was_trained_with_more_bits_stays_float():
    graph = _trained(*_fake("fake", "x", num_bits=12))
    result = apply(NAME, graph, ranges="trained")
    assert result.graph is graph
    assert result.skipped == {"it was trained with more than 8 bits": 1}


@pytest.mark.parametrize("ends", [(2.0, -2.0), (float("nan"), 1.0)])
def test_a_learnt_range_that_is_none_leaves_the_layer_float(ends):
    graph = _trained(*_fake("fake", "x", low=ends[0], high=ends[1]))
    result = apply(NAME, graph, ranges="trained")
    assert result.graph is graph
    assert result.skipped == {"its trained range is empty or reversed": 1}


LEARNT_WEIGHTS = {
    "vars": _fake("fw", "w", low=-1.0, high=0.9),
    "narrow": _fake("fw", "w", low=-1.0, high=1.0, narrow_range=True),
    "four bits": _fake("fw", "w", low=-1.0, high=0.9, num_bits=4),
    "by channel": _fake(
        "fw",
        "w",
        "FakeQuantWithMinMaxVarsPerChannel",
        -np.linspace(0.5, 1.5, 5, dtype=np.float32),
        np.linspace(0.5, 1.5, 5, dtype=np.float32),
        narrow_range=True,
    ),
    "round trip": _round_trip("fw", "w", 2),
}


@pytest.mark.parametrize("kind", LEARNT_WEIGHTS)
def test_trained_weight_steps_are_kept(kind):
    """What is stored are the very weights that the network was trained with."""
    fake = [node("fake", "Identity", "x"), *LEARNT_WEIGHTS[kind]]
    graph = _trained(*fake, weights="fw")
    result = apply(NAME, graph, ranges="trained", rule=("mode=weights",)).graph
    assert "fw" not in result
    np.testing.assert_allclose(run(result, X), run(graph, X), rtol=0, atol=2e-6)


def test_uneven_trained_steps_are_rounded_again():
    low = -np.linspace(0.1, 1.0, 5, dtype=np.float32)
    fake = _fake("fw", "w", "FakeQuantWithMinMaxVarsPerChannel", low, np.full(5, 1, np.float32))
    graph = _trained(node("fake", "Identity", "x"), *fake, weights="fw")
    result = apply(NAME, graph, ranges="trained", rule=("mode=weights",)).graph
    assert 0 < np.abs(run(result, X) - run(graph, X)).max() < 0.03

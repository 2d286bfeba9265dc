"""quantize_weights: eight-bit constants with their range, and Dequantize in their place."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _graph(values, **more):
    return Graph([placeholder(), const("w", values, **more), node("out", "Add", "x w")])


def _parts(graph):
    """The eight-bit numbers and the range of "w"."""
    values = [graph[f"w_quantized_{p}"].attr_tensor("value") for p in ("const", "min", "max")]
    assert [v.dtype for v in values] == [DType.QUINT8, DType.FLOAT, DType.FLOAT]
    return [v.array() for v in values]


@BOTH
def test_golden(tf115):
    result = apply("quantize_weights", _graph(np.linspace(-1, 3, 1024)), tf115=tf115)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "w_quantized_const = Const() value=quint8[1024]\n"
        "w_quantized_min = Const() value=float32[]:-1\n"
        "w_quantized_max = Const() value=float32[]:3\n"
        "w = Dequantize(w_quantized_const, w_quantized_min, w_quantized_max) "
        "T=quint8 mode=MIN_FIRST\n"
        "out = Add(x, w) T=float32"
    )


@BOTH
def test_every_element_is_off_by_half_a_step_at_most(tf115):
    weights = normal(32, 64)
    graph = _graph(weights)
    after = apply("quantize_weights", graph, tf115=tf115).graph
    step = (weights.max() - weights.min()) / 255
    off = np.abs(run(after, np.zeros((32, 64), np.float32)) - weights)
    # The range is shifted so that zero is a step, by up to half of one.
    assert off.max() <= step * 1.001
    assert off.mean() <= step / 2


@BOTH
def test_zero_is_always_in_the_range(tf115):
    for values, low, high in ((np.full(1024, 5.0), 0, 5), (np.full(1024, -5.0), -5, 0)):
        numbers, least, greatest = _parts(
            apply("quantize_weights", _graph(values), tf115=tf115).graph
        )
        assert (least, greatest) == (low, pytest.approx(high, abs=1e-30))
        assert set(numbers) == {255 if low == 0 else 0}


@BOTH
@pytest.mark.parametrize("value", [0.0, 1e-39, -1e-37])
def test_a_constant_of_zeros_keeps_a_range_that_can_be_divided_by(value, tf115):
    """The original's range is 0 to 1.2e-38, from which Dequantize makes NaN."""
    after = apply("quantize_weights", _graph(np.full(1024, value)), tf115=tf115).graph
    numbers, least, greatest = _parts(after)
    assert (least, greatest, numbers.any()) == (0, 1, False)
    assert not run(after, np.zeros(1024, np.float32)).any()


@BOTH
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_nonfinite_constants_stay(value, tf115):
    """The original makes NaN of all of it."""
    graph = _graph([value, *[1.0] * 1023])
    result = apply("quantize_weights", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"it holds infinity or NaN, or spans more than float32 can": 1}


@BOTH
def test_a_range_beyond_float32_stays(tf115):
    graph = _graph([3e38, -3e38, *[1.0] * 1022])
    assert apply("quantize_weights", graph, tf115=tf115).graph is graph


@BOTH
def test_small_constants_and_those_of_other_types_stay(tf115):
    graph = Graph([const("small", np.ones(1023)), const("whole", np.ones(1024), np.int32)])
    result = apply("quantize_weights", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"fewer elements than minimum_size": 1}


@BOTH
def test_minimum_size_draws_the_line(tf115):
    graph = Graph([const("w", np.ones(9)), const("v", np.ones(10))])
    after = apply("quantize_weights", graph, minimum_size=10, tf115=tf115).graph
    assert [n.name for n in after if n.op == "Dequantize"] == ["v"]
    assert apply("quantize_weights", graph, minimum_size=-1, tf115=tf115).graph is graph


def _normalized(op, **attrs):
    inputs = "x gamma beta mean variance/read"
    ones = np.linspace(0.001, 1, 1024)
    return Graph(
        [
            placeholder(),
            *(const(n, ones) for n in ("gamma", "beta", "mean", "variance", "epsilon")),
            node("variance/read", "Identity", "variance"),
            node("sum", "AddV2", "variance/read epsilon"),
            node("rsqrt", "Rsqrt", "sum"),
            node("out", op, inputs, T=DType.FLOAT, **attrs),
        ]
    )


@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV3", "Custom"])
def test_a_recipe_keeps_variances_that_are_not_folded(op):
    """Small variances weigh the most, and eight bits tell them from zero no more."""
    graph = _normalized(op)
    result = apply("quantize_weights", graph)
    reason = "a variance, where small values weigh the most"
    assert result.skipped == {reason: 2}
    assert {result.graph["variance"].op, result.graph["epsilon"].op} == {"Const"}
    assert result.graph["gamma"].op == "Dequantize"


def test_a_recipe_keeps_variances_that_come_through_a_conditional():
    ones = np.linspace(0.001, 1, 1024)
    graph = Graph(
        [
            placeholder("training", DType.BOOL),
            const("variance", ones),
            const("batch", ones),
            node("switch", "Switch", "variance training", T=DType.FLOAT),
            node("merge", "Merge", "switch batch", T=DType.FLOAT, N=2),
            node("sum", "AddV2", "merge merge"),
            node("rsqrt", "Rsqrt", "sum"),
        ]
    )
    result = apply("quantize_weights", graph)
    assert {result.graph["variance"].op, result.graph["batch"].op} == {"Const"}


def test_the_original_quantizes_variances_too():
    result = apply("quantize_weights", _normalized("FusedBatchNorm"), tf115=True)
    assert result.matched == 5


def test_device_and_control_inputs_stay_in_a_recipe_alone():
    weights = replace(const("w", np.ones(1024), inputs="^x"), device="/cpu:0")
    graph = Graph([placeholder(), weights, node("out", "Add", "x w")])
    kept = apply("quantize_weights", graph).graph
    assert {n.device for n in kept if n.name.startswith("w")} == {"/cpu:0"}
    assert [str(r) for r in kept["w_quantized_min"].inputs] == ["^x"]
    lost = apply("quantize_weights", graph, tf115=True).graph
    assert {n.device for n in lost} == {""}
    assert not lost["w_quantized_min"].inputs


@BOTH
def test_constants_of_a_branch_stay_tied_to_it(tf115):
    """The original lets them run whichever branch is taken."""
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            const("w", np.ones(1024), inputs="^switch"),
        ]
    )
    after = apply("quantize_weights", graph, tf115=tf115).graph
    assert [str(r) for r in after["w_quantized_const"].inputs] == ["^switch"]


@BOTH
def test_new_names_are_free(tf115):
    """The original makes two nodes of one name."""
    taken = [const("w_quantized_min", 1.0), const("w", np.ones(1024))]
    after = apply("quantize_weights", Graph(taken), tf115=tf115).graph
    check_graph(after, "")
    assert "w_quantized_min_1" in after


def test_a_constant_without_a_value_is_an_error():
    with pytest.raises(TransformError, match="the constant 'w' has no attribute 'value'"):
        apply("quantize_weights", Graph([node("w", "Const", T=None, dtype=DType.FLOAT)]))


@BOTH
def test_zero_halfway_between_two_steps_comes_back_as_zero(tf115):
    """Of ranges from -x to x the original gets some back one step off."""
    off = []
    for end in np.linspace(0.5, 4, 200, dtype=np.float32):
        values = np.zeros(1024, np.float32)
        values[:2] = -end, end
        graph = _graph(values)
        after = apply("quantize_weights", graph, tf115=tf115).graph
        off.append(np.abs(run(after, np.zeros(1024, np.float32)) - values).max() * 255 / (2 * end))
    assert (max(off) > 1) == tf115
    # A step off of the half that an end may be off by, and what the range is wider by.
    assert max(off) <= (1.51 if tf115 else 0.51)

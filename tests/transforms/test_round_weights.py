"""round_weights: few different values, each the middle of its bucket."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _rounded(values, **options):
    graph = Graph([const("w", values)])
    return apply("round_weights", graph, **options).graph["w"].attr_tensor("value").array()


@BOTH
def test_golden(tf115):
    graph = Graph([placeholder(), const("w", np.arange(16.0)), node("out", "Add", "x w")])
    result = apply("round_weights", graph, num_steps=3, tf115=tf115)
    assert result.matched == 1
    assert shown(result.graph) == shown(graph)
    expected = np.repeat([2.5, 7.5, 12.5], [5, 5, 6])
    if tf115:
        expected[15] = 17.5
    np.testing.assert_array_equal(result.graph["w"].attr_tensor("value").array(), expected)


@BOTH
def test_every_element_is_off_by_half_a_bucket_at_most(tf115):
    values = normal(1 << 17)
    width = (values.max() - values.min()) / 256
    assert np.abs(_rounded(values, tf115=tf115) - values).max() <= width * 0.50001


def test_a_recipe_has_num_steps_values_and_the_original_one_more():
    values = normal(5000)
    assert len(np.unique(_rounded(values, num_steps=7))) == 7
    assert len(np.unique(_rounded(values, num_steps=7, tf115=True))) == 8


def test_a_recipe_rounds_within_the_range_of_negative_constants():
    """The original lets every range end at zero or above."""
    values = np.linspace(-1001, -1000, 5000)
    assert np.abs(_rounded(values) - values).max() < 0.003
    assert np.abs(_rounded(values, tf115=True) - values).max() > 1


def test_a_recipe_leaves_constants_of_equal_elements_and_the_original_moves_them():
    graph = Graph([const("w", np.full(16, 5.0))])
    result = apply("round_weights", graph)
    assert result.graph is graph
    assert result.skipped == {"all its elements are equal": 1}
    moved = _rounded(np.full(16, 5.0), tf115=True)
    np.testing.assert_array_equal(moved, np.float32(5 + 5 / 256 / 2))
    tiny = _rounded(np.full(16, 5e-7), tf115=True)
    np.testing.assert_allclose(tiny, 5e-7 + 1 / 512, rtol=1e-6)


@BOTH
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_nonfinite_constants_stay(value, tf115):
    graph = Graph([const("w", [value, *[1.0] * 15])])
    result = apply("round_weights", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"it holds infinity or NaN, or spans more than float32 can": 1}


@BOTH
def test_small_constants_and_those_of_other_types_stay(tf115):
    graph = Graph([const("small", np.arange(15)), const("whole", np.arange(16), np.int32)])
    result = apply("round_weights", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"fewer than 16 elements": 1}


@BOTH
def test_constants_of_a_branch_stay_tied_to_it(tf115):
    """The original lets them run whichever branch is taken."""
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            const("w", np.arange(16), inputs="^switch"),
        ]
    )
    after = apply("round_weights", graph, tf115=tf115).graph
    assert [str(r) for r in after["w"].inputs] == ["^switch"]


def test_device_and_control_inputs_stay_in_a_recipe_alone():
    weights = replace(const("w", np.arange(16), inputs="^x"), device="/cpu:0")
    graph = Graph([placeholder(), weights])
    kept = apply("round_weights", graph).graph["w"]
    lost = apply("round_weights", graph, tf115=True).graph["w"]
    assert (kept.device, kept.inputs) == (weights.device, weights.inputs)
    assert (lost.device, lost.inputs) == ("", ())


@pytest.mark.parametrize("transform", ["round_weights", "quantize_weights"])
@pytest.mark.parametrize("size", [2000, 1 << 15])
def test_two_nodes_of_one_name_keep_their_own_values(transform, size):
    pair = [const("w", np.linspace(0, 1, size)), const("w", np.linspace(0, 9, size))]
    both = apply(transform, Graph(pair)).graph.nodes
    alone = [apply(transform, Graph([one])).graph.nodes for one in pair]
    values = [
        [n.attr_tensor("value").array().tolist() for n in nodes if n.op == "Const"]
        for nodes in (both, [*alone[0], *alone[1]])
    ]
    assert values[0] == values[1]


@BOTH
def test_a_node_with_the_name_of_a_constant_stays(tf115):
    graph = Graph([const("w", np.arange(16.0)), replace(placeholder(), name="w")])
    assert [n.op for n in apply("round_weights", graph, tf115=tf115).graph] == [
        "Const",
        "Placeholder",
    ]

"""merge_duplicate_nodes: one of equal nodes, and of those that become equal by it."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.numerics.hashes import hash64
from mobileprep.transforms.tf115 import combine
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _graph():
    return Graph(
        [
            placeholder(),
            const("c", 2.0),
            const("d", 2.0),
            node("a", "Mul", "x c"),
            node("b", "Mul", "x d"),
            node("out", "Add", "a b"),
        ]
    )


def test_golden():
    result = apply("merge_duplicate_nodes", _graph())
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "c = Const() value=float32[]:2\n"
        "a = Mul(x, c) T=float32\n"
        "out = Add(a, a) T=float32"
    )


@BOTH
def test_it_computes_the_same(tf115):
    x = normal(2, 3)
    after = apply("merge_duplicate_nodes", _graph(), tf115=tf115).graph
    assert len(after) == 4
    np.testing.assert_array_equal(run(after, x), run(_graph(), x))


def test_golden_of_the_tf115_order():
    """The original's hashes order the nodes; this is what the original tool gave."""
    after = apply("merge_duplicate_nodes", _graph(), tf115=True).graph
    assert [n.name for n in after] == ["x", "a", "out", "c"]


def test_indexed_output_has_the_original_position():
    """By the hash of a node without a name; the one of the nodes that are named has it."""
    split = node("s", "Split", "axis x", num_split=2)
    graph = Graph([placeholder(), const("axis", 0, np.int32), split, node("out", "Relu", "s")])
    orders = [
        [n.name for n in apply("merge_duplicate_nodes", graph, tf115=True, outputs=o).graph]
        for o in (("out", "s"), ("out", "s:1"), ("out",))
    ]
    assert orders[1] == orders[2] != orders[0]


def test_a_number_that_was_worked_out_is_one_with_a_number_of_the_file():
    worked_out = Tensor.of(np.float32(5))
    read = Tensor(worked_out.dtype, (), values=np.array([5], np.float32))
    graph = Graph([constant("a", read), constant("b", worked_out), node("out", "Add", "a b")])
    assert len(apply("merge_duplicate_nodes", graph, tf115=True).graph) == 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x81769421199F9E3B),
        (b"Placeholder", 0x8C64E3E392D97D09),
        (bytes(range(100)), 0x4F012C823B7674ED),
    ],
)
def test_the_hash_is_that_of_tensorflow(data, expected):
    assert hash64(data) == expected


@BOTH
@pytest.mark.parametrize(
    "other",
    [
        const("d", 3.0),
        const("d", [2.0]),
        const("d", 2.0, np.float64),
        const("d", 2.0, inputs="^x"),
        node("d", "Const", dtype=DType.FLOAT, T=None, value=const("", 2.0).attrs["value"], other=1),
    ],
    ids=["value", "shape", "type", "control input", "attribute"],
)
def test_nodes_that_differ_stay(other, tf115):
    graph = Graph([placeholder(), const("c", 2.0), other, node("out", "Add", "c d")])
    result = apply("merge_duplicate_nodes", graph, tf115=tf115)
    assert result.matched == 0
    assert tf115 or result.graph is graph


@BOTH
def test_attributes_of_equal_values_and_other_names_make_other_nodes(tf115):
    """The original hashes values without names, and merges these two."""
    left = node("a", "MatMul", "x x", transpose_a=True)
    right = node("b", "MatMul", "x x", transpose_b=True)
    graph = Graph([placeholder(), left, right, node("out", "Sub", "a b")])
    assert apply("merge_duplicate_nodes", graph, tf115=tf115).matched == 0


@BOTH
def test_inputs_and_outputs_stay(tf115):
    graph = Graph([placeholder(), node("a", "Relu", "x"), node("b", "Relu", "x")])
    result = apply("merge_duplicate_nodes", graph, outputs=("a:0", "b"), tf115=tf115)
    assert len(result.graph) == 3


@BOTH
def test_nodes_with_a_state_stay(tf115):
    shape = const("shape", [2], np.int32)
    random = [
        node(n, "RandomUniform", "shape", T=DType.INT32, dtype=DType.FLOAT) for n in ("a", "b")
    ]
    graph = Graph([shape, *random, node("out", "Sub", "a b")])
    result = apply("merge_duplicate_nodes", graph, tf115=tf115)
    assert result.matched == 0
    assert result.skipped == {"it has a state of its own": 1}


@BOTH
def test_unnamed_placeholders_stay(tf115):
    """The original merges them, and the value for one is lost."""
    graph = Graph([placeholder("a"), placeholder("b"), node("out", "Sub", "a b")])
    result = apply("merge_duplicate_nodes", graph, inputs=(), tf115=tf115)
    assert result.matched == 0
    assert result.skipped == {"it is fed by itself": 1}


@BOTH
def test_unknown_ops_stay(tf115):
    """The original refuses the graph."""
    graph = Graph([placeholder(), node("a", "Mine", "x"), node("b", "Mine", "x"), _out("a b")])
    result = apply("merge_duplicate_nodes", graph, tf115=tf115)
    assert result.matched == 0
    assert result.skipped == {"its op is unknown, so it may have state": 1}


def _out(inputs):
    return node("out", "Add", inputs)


@BOTH
def test_output_zero_is_the_same_spelt_out_or_not(tf115):
    graph = Graph([placeholder(), node("a", "Relu", "x"), node("b", "Relu", "x:0"), _out("a b:0")])
    after = apply("merge_duplicate_nodes", graph, tf115=tf115).graph
    assert [str(r) for r in after["out"].inputs] == ["a", "a:0"]


def test_only_the_original_keeps_duplicate_control_inputs():
    doubles = [node("a", "Relu", "x"), node("b", "Relu", "x")]
    graph = Graph([placeholder(), *doubles, node("out", "Neg", "x ^a ^b")])
    inputs = {
        tf115: apply("merge_duplicate_nodes", graph, tf115=tf115).graph["out"].inputs
        for tf115 in (True, False)
    }
    assert [str(r) for r in inputs[True]] == ["x", "^a", "^a"]
    assert [str(r) for r in inputs[False]] == ["x", "^a"]


@BOTH
def test_colocation_follows_the_node_that_stays(tf115):
    """TensorFlow does not load a graph in which a node is to stand by an unknown one."""
    doubles = [node("a", "Relu", "x"), node("b", "Relu", "x")]
    by_b = node("out", "Add", "a b", _class=AttrValue("list(string)", (b"loc:@b",)))
    graph = Graph([placeholder(), *doubles, by_b])
    after = apply("merge_duplicate_nodes", graph, tf115=tf115).graph
    assert after["out"].attrs["_class"].value == (b"loc:@a",)


@BOTH
def test_two_long_equal_chains_become_one(tf115):
    nodes = [placeholder()]
    for chain in ("a", "b"):
        nodes.append(node(f"{chain}0", "Relu", "x"))
        nodes += [node(f"{chain}{i}", "Relu", f"{chain}{i - 1}") for i in range(1, 300)]
    nodes.append(_out("a299 b299"))
    assert apply("merge_duplicate_nodes", Graph(nodes), tf115=tf115).matched == 300


def test_hashes_combine_as_tensorflow_does():
    assert combine(1, 2) == 1 ^ (2 + 0x9E3779B97F4A7800 + (1 << 10) + 0)
    assert combine((1 << 64) - 1, (1 << 64) - 1) < 1 << 64

"""add_default_attributes: what nodes leave at its default, written out."""

import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrDef, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from tests.transforms.graphs import apply, node, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


@BOTH
def test_golden(tf115):
    graph = Graph(
        [placeholder(), node("out", "MatMul", "x x", transpose_b=True), node("r", "Relu", "out")]
    )
    result = apply("add_default_attributes", graph, tf115=tf115)
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder() shape=None\n"
        "out = MatMul(x, x) T=float32 transpose_a=False transpose_b=True\n"
        "r = Relu(out) T=float32"
    )


def test_a_full_graph_is_the_same_object():
    graph = Graph([node("r", "Relu", "")])
    assert apply("add_default_attributes", graph).graph is graph


def test_attributes_are_those_that_tensorflow_1_15_knows():
    """The newest MatMul has attributes that the oldest release refuses."""
    after = apply("add_default_attributes", Graph([node("out", "MatMul", "")])).graph
    assert sorted(after["out"].attrs) == ["T", "transpose_a", "transpose_b"]


def test_ops_that_only_newer_releases_have_get_their_defaults():
    after = apply("add_default_attributes", Graph([node("out", "XlaReplicaId", "", T=None)])).graph
    assert after["out"].op == "XlaReplicaId"
    newer = apply("add_default_attributes", Graph([node("out", "SparseToDense", "")])).graph
    assert "validate_indices" in newer["out"].attrs


def test_calls_by_name_get_the_defaults_of_their_function():
    signature = OpDef("mine", attrs=(AttrDef("deep", "int", attr.integer(3)),))
    library = Library({"mine": Function(signature)})
    graph = Graph([node("out", "mine", "", T=None)], library)
    assert apply("add_default_attributes", graph).graph["out"].attr_int("deep") == 3


@BOTH
def test_unknown_ops_are_skipped_with_a_reason(tf115):
    """The original refuses the graph."""
    graph = Graph([node("out", "Mine", "")])
    result = apply("add_default_attributes", graph, tf115=tf115)
    assert result.graph is graph
    assert result.skipped == {"its op is unknown": 1}

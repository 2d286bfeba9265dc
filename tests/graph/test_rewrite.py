"""Replacing matches, as in ReplaceMatchingOpTypes of the original tool."""

import pytest
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.graph import Graph
from mobileprep.graph.pattern import op
from mobileprep.graph.refs import Ref, control, parse_ref
from mobileprep.graph.rewrite import Leave, Renames, Rule, rename_inputs, rewrite, rewrite_all
from tests.transforms.graphs import node, placeholder


def _names(graph):
    return [n.name for n in graph]


def _merge(match):
    """Replace Neg of Relu by one node with the name of the Neg."""
    inner, source = match["inner"], match["source"]
    return [source, replace(match.node, op="NegRelu", inputs=inner.inputs)]


PATTERN = op("Neg", op("Relu", op("*", label="source"), label="inner"))
RULE = Rule(PATTERN, _merge)
CHAIN = Graph(
    [
        node("out", "Identity", "neg"),
        node("neg", "Neg", "relu"),
        node("relu", "Relu", "x"),
        placeholder(),
    ]
)


def test_new_nodes_replace_the_head_of_the_match():
    result = rewrite(CHAIN, RULE)
    assert _names(result.graph) == ["out", "x", "neg"]
    assert result.graph["neg"].op == "NegRelu"
    assert (result.matched, result.skipped) == (1, {})


def test_graph_without_a_match_is_returned_as_is():
    assert rewrite(CHAIN, Rule(op("Softmax"), _merge)).graph is CHAIN


def test_match_with_a_node_needed_elsewhere_is_skipped():
    graph = Graph([*CHAIN.nodes, node("other", "Tanh", "relu")])
    result = rewrite(graph, RULE)
    assert result.matched == 0
    assert list(result.skipped) == ["a node that something else needs would be lost"]
    assert result.graph.by_name == graph.by_name
    # As in the original, the nodes of the match are written back breadth first at its head.
    assert _names(result.graph) == ["out", "neg", "relu", "x", "other"]


def test_match_with_a_protected_node_is_skipped():
    assert rewrite(CHAIN, RULE, protected={"relu"}).matched == 0


def test_inconsistencies_can_be_allowed():
    graph = Graph([*CHAIN.nodes, node("other", "Tanh", "relu")])
    result = rewrite(graph, replace(RULE, allow_inconsistencies=True))
    assert result.matched == 1
    assert "relu" not in result.graph


def test_skipping_a_match_sets_a_reason_and_an_order():
    rule = Rule(PATTERN, lambda m: Leave("no", (m["source"], m["inner"], m.node)))
    result = rewrite(CHAIN, rule)
    assert result.skipped == {"no": 1}
    assert _names(result.graph) == ["out", "x", "relu", "neg"]


def test_failed_check_keeps_the_graph():
    result = rewrite(CHAIN, replace(RULE, check=lambda m: "no"))
    assert result.graph is CHAIN
    assert result.skipped == {"no": 1}


def test_duplicate_new_node_is_added_once():
    rule = Rule(PATTERN, lambda m: [m["source"], *_merge(m)])
    assert _names(rewrite(CHAIN, rule).graph) == ["out", "x", "neg"]


def test_two_new_nodes_with_one_name_skip_the_match():
    rule = Rule(PATTERN, lambda m: [*_merge(m), node("x", "Const")])
    result = rewrite(CHAIN, rule)
    assert result.matched == 0
    assert list(result.skipped) == ["two of the new nodes would have one name"]


def test_new_node_with_an_existing_name_is_refused():
    rule = Rule(PATTERN, lambda m: [*_merge(m), node("out", "Const")])
    with pytest.raises(InvalidGraphError, match="'out'"):
        rewrite(CHAIN, rule)


def test_repeated_rewriting_finds_overlapping_matches():
    branches = [n for i in "abc" for n in (node(f"r{i}", "Relu", "x"), node(i, "Neg", f"r{i}"))]
    graph = Graph([placeholder(), *branches])
    assert rewrite(graph, RULE).matched == 1
    result = rewrite_all(graph, RULE)
    assert result.matched == 3
    assert sorted(_names(result.graph)) == ["a", "b", "c", "x"]


def test_repeated_rewriting_counts_a_skipped_match_once():
    result = rewrite_all(CHAIN, replace(RULE, check=lambda m: "no"))
    assert (result.graph, result.matched, result.skipped) == (CHAIN, 0, {"no": 1})


def _renamed(inputs, renames, ignored=()):
    graph = Graph([node("n", "Any", inputs), *(placeholder(i) for i in "abc")])
    return " ".join(str(r) for r in rename_inputs(graph, renames, ignored)["n"].inputs)


def test_node_is_renamed_with_its_outputs_and_control_inputs():
    renames = Renames()
    renames.node("a", "b")
    assert _renamed("a a:1 ^a c", renames) == "b b:1 ^b c"


def test_tensor_is_renamed_without_its_node():
    renames = Renames()
    renames.tensor(Ref("a", 1), parse_ref("b:2"))
    assert _renamed("a a:1 ^a", renames) == "a b:2 ^a"


def test_explicit_first_output_is_the_same_tensor():
    renames = Renames()
    renames.tensor(parse_ref("a:0"), parse_ref("b:0"))
    assert _renamed("a a:0", renames) == "b:0 b:0"


def test_chained_renames_are_followed():
    renames = Renames()
    renames.node("a", "b")
    renames.tensor(Ref("b"), Ref("c", 3))
    assert _renamed("a b a:1", renames) == "c:3 c:3 b:1"
    assert renames.resolve(control("a")) == control("b")


def test_circular_renames_are_refused():
    renames = Renames()
    renames.node("a", "b")
    renames.node("b", "a")
    with pytest.raises(InvalidGraphError, match="circle"):
        _renamed("a", renames)


def test_inputs_of_ignored_nodes_are_not_renamed():
    renames = Renames()
    renames.node("a", "b")
    assert _renamed("a", renames, ignored={"n"}) == "a"


def test_graph_without_renames_is_returned_as_is():
    assert rename_inputs(CHAIN, Renames()) is CHAIN

"""Replacing matches, with the semantics of the original's ReplaceMatchingOpTypes."""

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
    """Neg of Relu becomes one node of the head's name; the input stays."""
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


def test_new_nodes_stand_where_the_head_stood():
    done = rewrite(CHAIN, RULE)
    assert _names(done.graph) == ["out", "x", "neg"]
    assert done.graph["neg"].op == "NegRelu"
    assert (done.matched, done.skipped) == (1, {})


def test_without_a_match_the_graph_is_the_same_object():
    assert rewrite(CHAIN, Rule(op("Softmax"), _merge)).graph is CHAIN


def test_a_replacement_that_loses_a_node_needed_elsewhere_is_not_made():
    graph = Graph([*CHAIN.nodes, node("other", "Tanh", "relu")])
    done = rewrite(graph, RULE)
    assert done.matched == 0
    assert list(done.skipped) == ["a node that something else needs would be lost"]
    assert done.graph.by_name == graph.by_name
    # The match's nodes are put back at its head, level by level, as the original does.
    assert _names(done.graph) == ["out", "neg", "relu", "x", "other"]


def test_a_protected_node_is_not_lost_either():
    assert rewrite(CHAIN, RULE, protected={"relu"}).matched == 0


def test_inconsistencies_may_be_allowed():
    graph = Graph([*CHAIN.nodes, node("other", "Tanh", "relu")])
    done = rewrite(graph, replace(RULE, allow_inconsistencies=True))
    assert done.matched == 1
    assert "relu" not in done.graph


def test_leaving_gives_a_reason_and_an_order():
    rule = Rule(PATTERN, lambda m: Leave("no", (m["source"], m["inner"], m.node)))
    done = rewrite(CHAIN, rule)
    assert done.skipped == {"no": 1}
    assert _names(done.graph) == ["out", "x", "relu", "neg"]


def test_a_check_leaves_everything_in_its_place():
    done = rewrite(CHAIN, replace(RULE, check=lambda m: "no"))
    assert done.graph is CHAIN
    assert done.skipped == {"no": 1}


def test_a_node_given_twice_is_put_in_once():
    rule = Rule(PATTERN, lambda m: [m["source"], *_merge(m)])
    assert _names(rewrite(CHAIN, rule).graph) == ["out", "x", "neg"]


def test_two_different_nodes_of_one_name_leave_the_match():
    rule = Rule(PATTERN, lambda m: [*_merge(m), node("x", "Const")])
    done = rewrite(CHAIN, rule)
    assert done.matched == 0
    assert list(done.skipped) == ["two of the new nodes would have one name"]


def test_a_new_node_may_not_take_a_name_of_the_graph():
    rule = Rule(PATTERN, lambda m: [*_merge(m), node("out", "Const")])
    with pytest.raises(InvalidGraphError, match="'out'"):
        rewrite(CHAIN, rule)


def test_rewriting_again_finds_what_shares_a_node():
    branches = [n for i in "abc" for n in (node(f"r{i}", "Relu", "x"), node(i, "Neg", f"r{i}"))]
    graph = Graph([placeholder(), *branches])
    assert rewrite(graph, RULE).matched == 1
    done = rewrite_all(graph, RULE)
    assert done.matched == 3
    assert sorted(_names(done.graph)) == ["a", "b", "c", "x"]


def test_rewriting_again_counts_what_is_left_once():
    done = rewrite_all(CHAIN, replace(RULE, check=lambda m: "no"))
    assert (done.graph, done.matched, done.skipped) == (CHAIN, 0, {"no": 1})


def _renamed(inputs, renames, ignored=()):
    graph = Graph([node("n", "Any", inputs), *(placeholder(i) for i in "abc")])
    return " ".join(str(r) for r in rename_inputs(graph, renames, ignored)["n"].inputs)


def test_a_node_is_renamed_with_its_outputs_and_control_inputs():
    renames = Renames()
    renames.node("a", "b")
    assert _renamed("a a:1 ^a c", renames) == "b b:1 ^b c"


def test_a_tensor_is_renamed_alone():
    renames = Renames()
    renames.tensor(Ref("a", 1), parse_ref("b:2"))
    assert _renamed("a a:1 ^a", renames) == "a b:2 ^a"


def test_an_output_spelt_out_is_the_same_tensor():
    renames = Renames()
    renames.tensor(parse_ref("a:0"), parse_ref("b:0"))
    assert _renamed("a a:0", renames) == "b:0 b:0"


def test_renames_are_followed_to_the_end():
    renames = Renames()
    renames.node("a", "b")
    renames.tensor(Ref("b"), Ref("c", 3))
    assert _renamed("a b a:1", renames) == "c:3 c:3 b:1"
    assert renames.resolve(control("a")) == control("b")


def test_renames_in_a_circle_are_refused():
    renames = Renames()
    renames.node("a", "b")
    renames.node("b", "a")
    with pytest.raises(InvalidGraphError, match="circle"):
        _renamed("a", renames)


def test_ignored_nodes_keep_their_inputs():
    renames = Renames()
    renames.node("a", "b")
    assert _renamed("a", renames, ignored={"n"}) == "a"


def test_without_renames_the_graph_is_the_same_object():
    assert rename_inputs(CHAIN, Renames()) is CHAIN

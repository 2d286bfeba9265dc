"""Nodes as the importer of 1.15 leaves them."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.transforms.tf115 import import_order, imported_nodes
from tests.transforms.graphs import node, placeholder


def plain(name: str, inputs: str = "", op: str = "Op") -> Node:
    return Node(name, op, tuple(parse_ref(i) for i in inputs.split()))


def order(*nodes: Node) -> str:
    return " ".join(n.name for n in import_order(Graph(nodes)))


def test_a_node_comes_after_all_that_it_takes() -> None:
    assert order(plain("c", "b ^a"), plain("b", "a a:1"), plain("a")) == "a b c"


def test_of_those_that_may_come_the_first_listed_does() -> None:
    assert order(plain("d", "b"), plain("a"), plain("c", "a"), plain("b")) == "a c b d"


LOOP = [
    plain("merge", "enter next ^first", op="Merge"),
    plain("next", "body", op="NextIteration"),
    plain("body", "merge"),
    plain("enter"),
    plain("first"),
]


def test_a_merge_waits_for_no_turn_of_its_loop_but_for_control_inputs() -> None:
    assert order(*LOOP) == "enter first merge body next"


def test_a_merge_of_branches_waits_for_both() -> None:
    assert order(plain("m", "a b", op="Merge"), plain("a"), plain("b")) == "a b m"


def test_other_consumers_of_next_iteration_wait() -> None:
    assert order(plain("after", "next"), *LOOP) == "enter first merge body next after"


def test_cycle_error_has_count_and_example() -> None:
    circle = [plain("free"), plain("a", "b free"), plain("b", "a")]
    with pytest.raises(InvalidGraphError, match="2 nodes feed each other in a circle, as 'a'"):
        order(*circle)


def test_missing_attributes_get_defaults() -> None:
    given = node("y", "MatMul", "x x", transpose_a=True)
    _, found = imported_nodes(Graph([placeholder(), given]))
    assert found.attrs["transpose_b"] == AttrValue("bool", False)
    assert found.attrs["transpose_a"] == AttrValue("bool", True)
    assert found.attrs["T"].value is DType.FLOAT


def test_recorded_shapes_go() -> None:
    shapes = AttrValue("list(shape)", ((2,),))
    _, found = imported_nodes(Graph([placeholder(), node("y", "Relu", "x", _output_shapes=shapes)]))
    assert set(found.attrs) == {"T"}


def test_inputs_are_spelt_shortly_and_control_inputs_sorted_each_once() -> None:
    nodes = [plain(n) for n in "abc"] + [plain("y", "b:0 a:1 ^c ^a ^c")]
    found = imported_nodes(Graph(nodes))[-1]
    assert [str(r) for r in found.inputs] == ["b", "a:1", "^a", "^c"]


def test_complete_node_is_not_copied() -> None:
    relu = node("y", "Relu", "x")
    unknown = plain("z", "y", op="MyOwnOp")
    assert imported_nodes(Graph([placeholder(), relu, unknown]))[1:] == [relu, unknown]
    assert imported_nodes(Graph([placeholder(), relu, unknown]))[1] is relu


def test_a_merge_that_loops_waits_for_each_of_its_control_inputs() -> None:
    waits = plain("merge", "enter next ^first ^second", op="Merge")
    assert order(waits, *LOOP[1:], plain("second")) == "enter first second merge body next"

"""Which nodes of two graphs are the same."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.compare import compare_graphs
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import FreshNames
from mobileprep.inspection import differing
from mobileprep.inspection.differing import matching_nodes, renamed
from tests.transforms.graphs import const, node, placeholder


def layers(weights: list[float], extra: str = "") -> Graph:
    """Layers that scale by a number and add the same constant to each."""
    nodes, last = [placeholder()], "x"
    for i, weight in enumerate(weights):
        nodes += [const(f"w{i}", weight), const(f"b{i}", 1.0)]
        nodes += [
            node(f"scale{i}", "Mul", f"{last} w{i}"),
            node(f"add{i}", "Add", f"scale{i} b{i}"),
        ]
        last = f"add{i}"
        if extra == last:
            nodes.append(node("more", "Relu", last))
            last = "more"
    return Graph(nodes)


def hidden(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph in another order under names that say nothing, the true names by the new ones."""
    fresh = FreshNames(())
    names = {n.name: "x" if n.name == "x" else fresh.name("n") for n in reversed(graph.nodes)}
    other = renamed(graph, names)
    return other.with_nodes(reversed(other.nodes)), names


def test_a_graph_is_found_again_whatever_its_names_and_order() -> None:
    graph = layers([2.0, 3.0, 2.0])
    other, names = hidden(graph)
    assert matching_nodes(graph, other) == names
    assert matching_nodes(other, graph) == {v: k for k, v in names.items()}


def test_behind_a_changed_constant_all_is_found_again() -> None:
    graph = layers([2.0, 3.0, 4.0])
    other, names = hidden(layers([5.0, 3.0, 4.0]))
    found = matching_nodes(graph, other)
    assert found == names
    (changed,) = compare_graphs(renamed(graph, found), other)
    assert (changed.name, changed.kind, changed.largest) == (names["w0"], "constant", 3.0)


def test_names_decide_where_a_node_was_put_between() -> None:
    found = matching_nodes(layers([2.0, 3.0]), layers([2.0, 3.0], extra="add0"))
    assert found == {n.name: n.name for n in layers([2.0, 3.0])}


def test_all_constants_changed_and_all_names() -> None:
    graph = layers([2.0, 3.0, 4.0])
    other, names = hidden(layers([5.0, 6.0, 7.0]))
    assert matching_nodes(graph, other) == names


def test_a_renamed_input_is_found() -> None:
    graph = layers([2.0])
    names = {n.name: f"other_{n.name}" for n in graph}
    assert matching_nodes(graph, renamed(graph, names)) == names


def test_no_node_is_matched_twice_and_only_nodes_of_one_op() -> None:
    a = Graph([placeholder(), node("p", "Relu", "x"), node("q", "Relu", "x")])
    b = Graph([placeholder(), node("p", "Relu6", "x"), node("r", "Relu", "x")])
    found = matching_nodes(a, b)
    assert len(set(found.values())) == len(found) == 2
    assert all(a[n].op == b[o].op for n, o in found.items())


def test_equal_branches_keep_together() -> None:
    nodes = [placeholder()]
    for name in "pq":
        nodes += [const(f"{name}/c", np.zeros(3)), node(f"{name}/sum", "Add", f"x {name}/c")]
    nodes.append(node("out", "Sub", "p/sum q/sum"))
    graph = Graph(nodes)
    other, names = hidden(graph)
    found = matching_nodes(graph, other)
    assert found == names
    assert compare_graphs(renamed(graph, found), other) == []


def test_constraints_on_places_are_renamed_with_their_nodes() -> None:
    beside = attr.AttrValue("list(string)", (b"loc:@x",))
    placed = node("y", "Relu", "x").with_attrs(_class=beside)
    graph = renamed(Graph([placeholder(), placed]), {"x": "in"})
    assert graph["y"].attrs["_class"] == attr.AttrValue("list(string)", (b"loc:@in",))


def test_inputs_of_a_node_of_many_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    branches = [node(f"r{i}", "Relu", "x") for i in range(count)]
    joined = node("y", "AddN", " ".join(b.name for b in branches))
    graph = Graph([placeholder(), *branches, joined])
    looked_at = []
    users = differing._users
    monkeypatch.setattr(
        differing, "_users", lambda uses, done: users(looked_at.extend(uses) or uses, done)
    )
    names = {n.name: n.name for n in graph}
    assert matching_nodes(graph, graph) == names
    assert len(looked_at) <= 10 * count

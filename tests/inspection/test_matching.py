"""Matching of the nodes of two graphs."""

from __future__ import annotations

import numpy as np

from mobileprep.graph import attrs as attr
from mobileprep.graph.compare import compare_graphs
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import FreshNames
from mobileprep.inspection.differing import matching_nodes, renamed
from tests.transforms.graphs import const, node, placeholder
from tests.work import lines_run


def layers(weights: list[float], extra: str = "") -> Graph:
    """Layers that multiply by a weight and add a constant."""
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


def anonymized(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph in another order under meaningless names, and the map from its names to them."""
    fresh = FreshNames(())
    names = {n.name: "x" if n.name == "x" else fresh.name("n") for n in reversed(graph.nodes)}
    other = renamed(graph, names)
    return other.with_nodes(reversed(other.nodes)), names


def test_nodes_match_despite_other_names_and_order() -> None:
    graph = layers([2.0, 3.0, 2.0])
    other, names = anonymized(graph)
    assert matching_nodes(graph, other) == names
    assert matching_nodes(other, graph) == {v: k for k, v in names.items()}


def test_nodes_after_a_changed_constant_match() -> None:
    graph = layers([2.0, 3.0, 4.0])
    other, names = anonymized(layers([5.0, 3.0, 4.0]))
    matches = matching_nodes(graph, other)
    assert matches == names
    (changed,) = compare_graphs(renamed(graph, matches), other)
    assert (changed.name, changed.kind, changed.largest) == (names["w0"], "constant", 3.0)


def test_names_decide_around_an_inserted_node() -> None:
    matches = matching_nodes(layers([2.0, 3.0]), layers([2.0, 3.0], extra="add0"))
    assert matches == {n.name: n.name for n in layers([2.0, 3.0])}


def test_nodes_match_if_all_constants_and_names_changed() -> None:
    graph = layers([2.0, 3.0, 4.0])
    other, names = anonymized(layers([5.0, 6.0, 7.0]))
    assert matching_nodes(graph, other) == names


def test_renamed_input_matches() -> None:
    graph = layers([2.0])
    names = {n.name: f"other_{n.name}" for n in graph}
    assert matching_nodes(graph, renamed(graph, names)) == names


def test_each_node_matches_at_most_one_of_the_same_op() -> None:
    a = Graph([placeholder(), node("p", "Relu", "x"), node("q", "Relu", "x")])
    b = Graph([placeholder(), node("p", "Relu6", "x"), node("r", "Relu", "x")])
    matches = matching_nodes(a, b)
    assert len(set(matches.values())) == len(matches) == 2
    assert all(a[n].op == b[o].op for n, o in matches.items())


def test_equal_branches_match_as_a_whole() -> None:
    nodes = [placeholder()]
    for name in "pq":
        nodes += [const(f"{name}/c", np.zeros(3)), node(f"{name}/sum", "Add", f"x {name}/c")]
    nodes.append(node("out", "Sub", "p/sum q/sum"))
    graph = Graph(nodes)
    other, names = anonymized(graph)
    matches = matching_nodes(graph, other)
    assert matches == names
    assert compare_graphs(renamed(graph, matches), other) == []


def test_colocation_constraints_are_renamed_with_their_nodes() -> None:
    colocation = attr.AttrValue("list(string)", (b"loc:@x",))
    placed = node("y", "Relu", "x").with_attrs(_class=colocation)
    graph = renamed(Graph([placeholder(), placed]), {"x": "in"})
    assert graph["y"].attrs["_class"] == attr.AttrValue("list(string)", (b"loc:@in",))


def test_work_is_linear_in_the_inputs_of_a_node() -> None:
    def work(count: int) -> int:
        branches = [node(f"r{i}", "Relu", "x") for i in range(count)]
        joined = node("y", "AddN", " ".join(b.name for b in branches))
        graph = Graph([placeholder(), *branches, joined])
        assert matching_nodes(graph, graph) == {n.name: n.name for n in graph}
        return lines_run(lambda: matching_nodes(graph, graph))

    assert work(300) < 4 * work(100)

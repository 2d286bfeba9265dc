"""Changes of nodes by a step."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.inspection import node_table as module
from mobileprep.inspection.node_table import step_changes
from tests.building.stages.jobs import classifier, op, placeholder


def test_equal_graphs_have_no_changes() -> None:
    graph = classifier()
    assert step_changes(graph, graph).changes == ()
    assert step_changes(graph, classifier()).changes == ()


def test_changes_have_the_values_before_and_after() -> None:
    before = Graph([placeholder((1, 3)), op("same", "Identity", "x"), op("y", "Relu", "same")])
    after = Graph([placeholder((1, 3)), op("y", "Relu6", "x"), op("z", "Relu", "y")])
    step = step_changes(before, after)
    assert step.renamed == ()
    assert set(step.changes) == {
        ("removed", "same", "", "Identity", "", None),
        ("op", "y", "", "Relu", "Relu6", None),
        ("inputs", "y", "", "same", "x", None),
        ("added", "z", "", "", "Relu", None),
    }


def test_changed_constant_has_its_largest_difference() -> None:
    (change,) = step_changes(classifier(), classifier(shift=0.5)).changes
    assert (change[0], change[1], change[5]) == ("constant", "b", 0.5)


def test_renamed_nodes_are_not_changes() -> None:
    before = Graph(
        [placeholder((1, 3)), op("long/name", "Relu", "x"), op("y", "Relu", "long/name")]
    )
    after = Graph([placeholder((1, 3)), op("a", "Relu", "x"), op("y", "Relu", "a")])
    step = step_changes(before, after)
    assert step.renamed == (("long/name", "a"),)
    assert step.changes == ()


def test_reordered_nodes_are_not_changes() -> None:
    a, b = op("a", "Relu", "x"), op("b", "Relu", "x")
    x = placeholder((1, 3))
    assert step_changes(Graph([x, a, b]), Graph([x, b, a])).renamed == ()


def test_long_strings_and_lists_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    name = "n" * 5000
    after = Graph([op(name, "NoOp"), op("y", "Relu", name), op("z", "Relu", name)])
    step = step_changes(Graph([op("y", "Relu", "y")]), after)
    assert (len(step.changes), step.left_out) == (2, 1)
    assert max(len(text) for change in step.changes for text in change[3:5]) == 300

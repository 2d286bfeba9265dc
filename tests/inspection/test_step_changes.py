"""What a step did to each node."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.inspection import node_table as module
from mobileprep.inspection.node_table import step_changes
from tests.building.stages.jobs import classifier, op, placeholder


def test_nothing_was_done() -> None:
    graph = classifier()
    assert step_changes(graph, graph).changes == ()
    assert step_changes(graph, classifier()).changes == ()


def test_what_is_new_gone_and_changed_is_told_with_before_and_after() -> None:
    before = Graph([placeholder((1, 3)), op("same", "Identity", "x"), op("y", "Relu", "same")])
    after = Graph([placeholder((1, 3)), op("y", "Relu6", "x"), op("z", "Relu", "y")])
    told = step_changes(before, after)
    assert told.renamed == ()
    assert set(told.changes) == {
        ("removed", "same", "", "Identity", "", None),
        ("op", "y", "", "Relu", "Relu6", None),
        ("inputs", "y", "", "same", "x", None),
        ("added", "z", "", "", "Relu", None),
    }


def test_a_constant_tells_its_largest_difference() -> None:
    (change,) = step_changes(classifier(), classifier(shift=0.5)).changes
    assert (change[0], change[1], change[5]) == ("constant", "b", 0.5)


def test_other_names_at_the_same_places_are_new_names() -> None:
    before = Graph(
        [placeholder((1, 3)), op("long/name", "Relu", "x"), op("y", "Relu", "long/name")]
    )
    after = Graph([placeholder((1, 3)), op("a", "Relu", "x"), op("y", "Relu", "a")])
    told = step_changes(before, after)
    assert told.renamed == (("long/name", "a"),)
    assert told.changes == ()


def test_another_order_renames_nothing() -> None:
    a, b = op("a", "Relu", "x"), op("b", "Relu", "x")
    assert (
        step_changes(Graph([placeholder((1, 3)), a, b]), Graph([placeholder((1, 3)), b, a])).renamed
        == ()
    )


def test_long_texts_and_long_lists_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    name = "n" * 5000
    after = Graph([op(name, "NoOp"), op("y", "Relu", name), op("z", "Relu", name)])
    told = step_changes(Graph([op("y", "Relu", "y")]), after)
    assert (len(told.changes), told.left_out) == (2, 1)
    assert max(len(text) for change in told.changes for text in change[3:5]) == 300

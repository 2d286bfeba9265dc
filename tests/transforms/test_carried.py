"""What every transform leaves alone: versions and functions; and what it does not believe."""

from __future__ import annotations

import pytest

from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import drop_unused_functions
from mobileprep.graph.serde import graph_from_bytes, graph_to_bytes
from mobileprep.graph.verify import check_graph
from mobileprep.transforms.base import Context, Result, transform_names
from mobileprep.transforms.chains.chain import ChainStep, run_step
from tests.transforms.busy import VERSIONS, busy_graph, write_files
from tests.transforms.examples import example

GRAPH = busy_graph()
for_each = pytest.mark.parametrize("name", transform_names())
BOTH = pytest.mark.parametrize("tf115", [True, False])


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)


def applied(name: str, graph: Graph, tf115: bool, outputs: tuple[str, ...] = ()) -> Result:
    """The step's result in a chain, which is sound."""
    context = Context(example(name).inputs, outputs or example(name).outputs, tf115)
    result = run_step(graph, ChainStep(name, example(name).options), context)
    check_graph(result.graph, name)
    return result


@for_each
@BOTH
def test_there_is_something_for_it(name, tf115):
    result = applied(name, example(name).graph, tf115)
    assert result.matched
    assert result.graph.nodes != example(name).graph.nodes


@for_each
@BOTH
def test_versions_stay(name, tf115):
    after = applied(name, example(name).graph, tf115).graph
    assert after.versions == VERSIONS
    assert graph_from_bytes(graph_to_bytes(after), name).versions == VERSIONS


@for_each
def test_the_verb_keeps_all_functions(name):
    before = example(name).graph.library
    after = applied(name, example(name).graph, tf115=True).graph.library
    kept = {key: value for key, value in after.functions.items() if key in before.functions}
    assert kept == before.functions
    assert after.gradients == before.gradients
    assert (kept == after.functions) == (name != "raise_control_flow")


@for_each
def test_a_recipe_keeps_the_functions_that_are_called(name):
    after = applied(name, example(name).graph, tf115=False).graph
    called = {"once"} if name == "inline_partitionedcall" else {"once", "twice"}
    assert set(after.library.functions) & set(example(name).graph.library.functions) == called
    assert all(
        after.library.functions[f] == example(name).graph.library.functions[f] for f in called
    )


def test_functions_go_with_the_last_call():
    after = applied("strip_unused_nodes", GRAPH, tf115=False, outputs=("table",)).graph
    assert "called" not in after
    assert not after.library


def test_all_functions_stay_where_all_are_called():
    graph = drop_unused_functions(GRAPH)
    assert set(graph.library.functions) == {"once", "twice"}
    assert drop_unused_functions(graph) is graph


WRONG = AttrValue("list(shape)", ((7, 1), None, (2,), (1, 1, 1), (0,), (9,)))
ABSURD = AttrValue("list(shape)", ())
ANOTHER_KIND = AttrValue("int", 3)


def recorded(graph: Graph, record: AttrValue) -> Graph:
    """The graph with the same shapes recorded on every node, those of functions too."""
    return graph.with_nodes(n.with_attrs(_output_shapes=record) for n in graph)


def unrecorded(graph: Graph) -> dict[str, object]:
    return {n.name: n.without_attrs("_output_shapes") for n in graph}


@for_each
@BOTH
@pytest.mark.parametrize("record", [WRONG, ABSURD, ANOTHER_KIND], ids=["wrong", "none", "kind"])
def test_wrong_records_of_shapes_change_nothing(name, tf115, record):
    expected = applied(name, example(name).graph, tf115)
    found = applied(name, recorded(example(name).graph, record), tf115)
    assert unrecorded(found.graph) == unrecorded(expected.graph)
    assert (found.matched, found.skipped) == (expected.matched, expected.skipped)

"""Registration headers of graphs and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep import (
    Graph,
    InvalidGraphError,
    MobileprepWarning,
    UsageError,
    registration_header,
    save_graph,
)
from tests.transforms.graphs import node, placeholder

GRAPH = Graph([placeholder(), node("out", "Relu", "x")])


def test_graphs_and_files_give_the_same_header(tmp_path: Path) -> None:
    save_graph(GRAPH, tmp_path / "a.pb")
    text = registration_header([GRAPH])
    assert text == registration_header([tmp_path / "a.pb"]) == registration_header([GRAPH, GRAPH])
    assert "TensorFlow 1.15" in text
    assert '"ReluOp<CPUDevice, float>"' in text
    assert '"NoOp"' in text


def test_one_graph_needs_no_list(tmp_path: Path) -> None:
    save_graph(GRAPH, tmp_path / "a.pb")
    text = registration_header([GRAPH])
    assert text == registration_header(GRAPH) == registration_header(str(tmp_path / "a.pb"))


def test_default_ops_and_the_release_may_be_chosen() -> None:
    text = registration_header([GRAPH], tensorflow="1.15.0", default_ops="Mine:MyOp")
    assert "TensorFlow 1.15" in text
    assert '"MyOp"' in text
    assert '"NoOp"' not in text
    everything = registration_header([GRAPH], default_ops="all")
    assert "#define SHOULD_REGISTER_OP(op) true" in everything


def test_an_op_without_kernel_is_warned_of() -> None:
    odd = Graph([*GRAPH, node("odd", "Conv2D", "x x", T=3)])
    with pytest.warns(MobileprepWarning, match="odd"):
        registration_header([odd])


def test_there_is_something_to_register() -> None:
    with pytest.raises(UsageError, match="no graphs are named"):
        registration_header([])
    with pytest.raises(UsageError, match=r"no table of TensorFlow 1\.14"):
        registration_header([GRAPH], tensorflow="1.14")
    with pytest.raises(UsageError, match="is not a pair"):
        registration_header([GRAPH], default_ops="Mine")
    with pytest.raises(InvalidGraphError, match="graph 2: holds no nodes"):
        registration_header([GRAPH, Graph()])


def test_graphs_are_counted_from_one_where_they_have_no_name() -> None:
    with pytest.raises(InvalidGraphError) as caught:
        registration_header([GRAPH, Graph()])
    assert caught.value.where == "graph 2"

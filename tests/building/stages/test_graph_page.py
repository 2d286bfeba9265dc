"""What stages tell the report page of the graphs that they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.stages.package.run import compressed_size
from mobileprep.building.stages.page import run as module
from mobileprep.building.stages.page.run import compressed_graph, write_graph_page
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import classifier


def written(folder: Path, graph: Graph, before: Graph | None = None) -> Any:
    write_graph_page(folder / "page.json", graph, before)
    return json.loads((folder / "page.json").read_bytes())


def large(seed: int) -> Graph:
    """Two constants of 2 MB, whose bytes compress little."""
    values = np.random.default_rng(seed).standard_normal((2, 1 << 19)).astype(np.float32)
    return Graph([constant(f"c{at}", Tensor.packed(row)) for at, row in enumerate(values)])


def test_of_a_source_its_compressed_size_is_told(tmp_path: Path) -> None:
    found = written(tmp_path, classifier())
    assert found.keys() == {"compressed"}
    assert found["compressed"] == compressed_size([graph_to_bytes(classifier())])


def test_of_a_step_what_it_did_is_told(tmp_path: Path) -> None:
    same = written(tmp_path, classifier(), classifier())["step"]
    assert same == {"renamed": [], "changes": [], "left_out": 0}
    (change,) = written(tmp_path, classifier(shift=0.5), classifier())["step"]["changes"]
    assert change[:3] == ["constant", "b", "value"]
    assert change[5] == 0.5


def test_sizes_of_large_graphs_are_near_those_of_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled = compressed_graph(large(1))
    monkeypatch.setattr(module, "_AT_ONCE", 1 << 30)
    assert sampled == pytest.approx(compressed_graph(large(1)), rel=0.01)


def test_a_constant_is_compressed_once_for_all_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = large(2)
    before = compressed_graph(graph)
    sizes: list[int] = []
    monkeypatch.setattr(module, "compressed_size", lambda *_: sizes.append(0) or 100)
    another = graph.with_nodes([*graph.nodes, constant("more", Tensor.of(np.float32(1)))])
    assert compressed_graph(another) > before - 1000
    assert len(sizes) == 1  # of what lies between the constants


def test_few_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SIZES", 1)
    compressed_graph(large(3))
    assert len(module._sizes) == 1

"""Records of graphs for the report page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.package.run import compressed_size
from mobileprep.building.stages.page import run as module
from mobileprep.building.stages.page.run import compressed_graph, run_nodes, write_graph_page
from mobileprep.building.stages.page.spec import NodesStage
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.settings import InputSpec
from tests.building.stages.jobs import classifier, job, json_output


def page_record(folder: Path, graph: Graph, before: Graph | None = None) -> Any:
    write_graph_page(folder / "page.json", graph, before)
    return json.loads((folder / "page.json").read_bytes())


def large(seed: int) -> Graph:
    """Two constants of 2 MB that compress badly."""
    values = np.random.default_rng(seed).standard_normal((2, 1 << 19)).astype(np.float32)
    return Graph([constant(f"c{at}", Tensor.packed(row)) for at, row in enumerate(values)])


def test_record_of_a_source_has_its_compressed_size(tmp_path: Path) -> None:
    record = page_record(tmp_path, classifier())
    assert record.keys() == {"compressed"}
    assert record["compressed"] == compressed_size([graph_to_bytes(classifier())])


def test_record_of_a_step_has_its_changes(tmp_path: Path) -> None:
    same = page_record(tmp_path, classifier(), classifier())["step"]
    assert same == {"renamed": [], "changes": [], "left_out": 0}
    (change,) = page_record(tmp_path, classifier(shift=0.5), classifier())["step"]["changes"]
    assert change[:3] == ["constant", "b", "value"]
    assert change[5] == 0.5


def test_sampled_sizes_of_large_graphs_are_accurate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled = compressed_graph(large(1))
    monkeypatch.setattr(module, "_AT_ONCE", 1 << 30)
    assert sampled == pytest.approx(compressed_graph(large(1)), rel=0.01)


def test_constants_are_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = large(2)
    before = compressed_graph(graph)
    sizes: list[int] = []
    monkeypatch.setattr(module, "compressed_size", lambda *_: sizes.append(0) or 100)
    another = graph.with_nodes([*graph.nodes, constant("more", Tensor.of(np.float32(1)))])
    assert compressed_graph(another) > before - 1000
    assert len(sizes) == 1  # the bytes between the constants


RANGES = 'version: 1\ntensors:\n  "y": {min: -1.0, max: 2.0}\n'


def node_record(folder: Path, *, ranges: str = "", inputs: tuple[InputSpec, ...] = ()) -> Any:
    """Run the stage and return its record."""
    stored: dict[str, Any] = {"graph": classifier()}
    if ranges:
        (folder / "ranges.yaml").write_text(ranges)
        stored["ranges 1"] = folder / "ranges.yaml"
    stage = NodesStage(
        inputs=inputs,
        graph=Upstream("r/earlier", "graph"),
        ranges=(Upstream("r/calibrate", "ranges.yaml"),) if ranges else (),
    )
    done: Job[NodesStage] = job(folder, stage, **stored)
    run_nodes(done)
    return json_output(done, "nodes.json")


def test_nodes_of_the_graph_are_recorded(tmp_path: Path) -> None:
    record = node_record(tmp_path)
    assert record["graph"]["names"] == [node.name for node in classifier()]
    assert record["graph"]["weights"] == []  # nine elements are too few for a distribution
    assert record["ranges"] == []


def test_declared_shapes_are_recorded(tmp_path: Path) -> None:
    def shape(**options: Any) -> str:
        graph = node_record(tmp_path, **options)["graph"]
        return str(graph["texts"][graph["shapes"][graph["names"].index("y")][0]])

    declared = shape(inputs=(InputSpec("x", "float32", (7, 3)),))
    assert shape() != declared
    assert "7" in declared


def test_ranges_of_calibrations_are_recorded(tmp_path: Path) -> None:
    assert node_record(tmp_path, ranges=RANGES)["ranges"] == [["y", -1.0, 2.0]]


def test_record_is_reproducible(tmp_path: Path) -> None:
    assert json.dumps(node_record(tmp_path)) == json.dumps(node_record(tmp_path))

"""The nodes stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mobileprep.ir.graph import Graph
from mobileprep.plan.spec import Upstream
from mobileprep.plan.stages import NodesStage
from mobileprep.stages import nodes as module
from mobileprep.stages.base import Job
from mobileprep.stages.nodes import run
from tests.stages.jobs import classifier, job, left

RANGES = 'version: 1\ntensors:\n  "y": {min: -1.0, max: 2.0}\n'


def done(folder: Path, *graphs: Graph, ranges: str = "") -> Any:
    given: dict[str, Any] = {f"graphs {at}": graph for at, graph in enumerate(graphs, start=1)}
    if ranges:
        (folder / "ranges.yaml").write_text(ranges)
        given["ranges 1"] = folder / "ranges.yaml"
    stage = NodesStage(
        compressor="deflate",
        level=1,
        steps=tuple(f"step{at}" for at in range(1, len(graphs))),
        graphs=tuple(Upstream("r/earlier", f"graph{at}") for at in range(len(graphs))),
        ranges=(Upstream("r/calibrate", "ranges.yaml"),) if ranges else (),
    )
    found: Job[NodesStage] = job(folder, stage, **given)
    run(found)
    return left(found, "nodes.json")


def test_the_first_and_the_last_graph_and_each_step_are_told(tmp_path: Path) -> None:
    found = done(tmp_path, classifier(), classifier(), classifier(shift=0.5))
    assert [graph["names"][-1] for graph in found["graphs"]] == ["y", "y"]
    assert [step["name"] for step in found["steps"]] == ["step1", "step2"]
    assert [len(step["changes"]) for step in found["steps"]] == [0, 1]
    assert len(found["compressed"]) == 3
    assert found["ranges"] == []


def test_without_steps_both_graphs_are_the_source(tmp_path: Path) -> None:
    found = done(tmp_path, classifier())
    assert found["graphs"][0] == found["graphs"][1]
    assert found["steps"] == []


def test_ranges_of_calibrations_are_told(tmp_path: Path) -> None:
    assert done(tmp_path, classifier(), ranges=RANGES)["ranges"] == [["y", -1.0, 2.0]]


def test_sizes_of_large_graphs_are_near_those_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = done(tmp_path, classifier())["compressed"][0]
    monkeypatch.setattr(module, "_AT_ONCE", 0)
    assert done(tmp_path, classifier())["compressed"][0] == pytest.approx(whole, abs=64)


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    first = done(tmp_path, classifier(), classifier(shift=1))
    assert json.dumps(first) == json.dumps(done(tmp_path, classifier(), classifier(shift=1)))

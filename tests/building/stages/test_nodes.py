"""The nodes stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.page.run import run_nodes
from mobileprep.building.stages.page.spec import NodesStage
from mobileprep.recipe.settings import InputSpec
from tests.building.stages.jobs import classifier, job, left

RANGES = 'version: 1\ntensors:\n  "y": {min: -1.0, max: 2.0}\n'


def done(folder: Path, *, ranges: str = "", inputs: tuple[InputSpec, ...] = ()) -> Any:
    given: dict[str, Any] = {"graph": classifier()}
    if ranges:
        (folder / "ranges.yaml").write_text(ranges)
        given["ranges 1"] = folder / "ranges.yaml"
    stage = NodesStage(
        inputs=inputs,
        graph=Upstream("r/earlier", "graph"),
        ranges=(Upstream("r/calibrate", "ranges.yaml"),) if ranges else (),
    )
    found: Job[NodesStage] = job(folder, stage, **given)
    run_nodes(found)
    return left(found, "nodes.json")


def test_the_nodes_of_the_graph_are_told(tmp_path: Path) -> None:
    found = done(tmp_path)
    assert found["graph"]["names"] == [node.name for node in classifier()]
    assert found["graph"]["weights"] == []  # nine elements show no distribution
    assert found["ranges"] == []


def test_shapes_that_the_recipe_declares_are_told(tmp_path: Path) -> None:
    def shape(told: Any) -> str:
        graph = told["graph"]
        return str(graph["texts"][graph["shapes"][graph["names"].index("y")][0]])

    declared = (InputSpec("x", "float32", (7, 3)),)
    assert shape(done(tmp_path)) != shape(done(tmp_path, inputs=declared))
    assert "7" in shape(done(tmp_path, inputs=declared))


def test_ranges_of_calibrations_are_told(tmp_path: Path) -> None:
    assert done(tmp_path, ranges=RANGES)["ranges"] == [["y", -1.0, 2.0]]


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    assert json.dumps(done(tmp_path)) == json.dumps(done(tmp_path))

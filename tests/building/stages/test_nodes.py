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
from tests.building.stages.jobs import classifier, job, json_output

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

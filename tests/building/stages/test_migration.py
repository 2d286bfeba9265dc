"""The migration stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.migration.run import run
from mobileprep.building.stages.migration.spec import MigrationRecord, MigrationStage
from mobileprep.errors import UnsupportedError
from mobileprep.graph.graph import Graph
from mobileprep.targets.migration.survey import migrate
from tests.building.stages.jobs import assets, classifier, interface, job, left, op, slots
from tests.targets.migration.graphs import speech


def asked(folder: Path, graph: Graph, ends: dict[str, Any]) -> Job[MigrationStage]:
    inputs = {"graph": graph, "interface": ends, "assets": assets(folder)}
    stage = MigrationStage(platform="android", before="", **slots(*inputs))
    return job(folder, stage, **inputs)


def found_by(done: Job[MigrationStage]) -> MigrationRecord:
    run(done)
    return convert(left(done, "migration.json"), MigrationRecord)


def test_it_leaves_what_the_verb_tells(tmp_path: Path) -> None:
    record = found_by(asked(tmp_path, speech(), interface("probabilities", inputs=("wav",))))
    told = migrate(tmp_path / "graph", "android", outputs=["probabilities"])
    assert record.found is not None
    assert structs.asdict(record.found).items() <= structs.asdict(told).items()
    assert [route.verdict for route in record.found.routes] == [
        *["as it is"] * 2,
        "after changes",
    ]


def test_a_runtime_without_a_way_is_told(tmp_path: Path) -> None:
    odd = op("z", "Erfinv", "y")
    graph = classifier().with_nodes([*classifier(), odd])
    record = found_by(asked(tmp_path, graph, interface("z")))
    assert record.found is not None
    route = record.found.routes[-1]
    assert (route.verdict, [lack.op for lack in route.left]) == ("no", ["Erfinv"])


def test_what_cannot_be_tried_ends_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        message = "the graph cannot be read"
        raise UnsupportedError(message)

    monkeypatch.setattr("mobileprep.building.stages.migration.run.surveyed", refused)
    record = found_by(asked(tmp_path, classifier(), interface("y")))
    assert record == MigrationRecord("", None, "the graph cannot be read")

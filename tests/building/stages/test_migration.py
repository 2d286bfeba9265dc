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
from tests.building.stages.jobs import assets, classifier, interface, job, json_output, op, slots
from tests.targets.migration.graphs import speech


def record_of(folder: Path, graph: Graph, ends: dict[str, Any]) -> MigrationRecord:
    """Run the stage and return its record."""
    inputs = {"graph": graph, "interface": ends, "assets": assets(folder)}
    stage = MigrationStage(platform="android", before="", **slots(*inputs))
    done: Job[MigrationStage] = job(folder, stage, **inputs)
    run(done)
    return convert(json_output(done, "migration.json"), MigrationRecord)


def test_record_matches_the_result_of_the_command(tmp_path: Path) -> None:
    record = record_of(tmp_path, speech(), interface("probabilities", inputs=("wav",)))
    migration = migrate(tmp_path / "graph", "android", outputs=["probabilities"])
    assert record.found is not None
    assert structs.asdict(record.found).items() <= structs.asdict(migration).items()
    verdicts = [route.verdict for route in record.found.routes]
    assert verdicts == ["as it is", "as it is", "after changes"]


def test_unsupported_runtime_is_recorded(tmp_path: Path) -> None:
    odd = op("z", "Erfinv", "y")
    graph = classifier().with_nodes([*classifier(), odd])
    record = record_of(tmp_path, graph, interface("z"))
    assert record.found is not None
    route = record.found.routes[-1]
    assert (route.verdict, [lack.op for lack in route.left]) == ("no", ["Erfinv"])


def test_failure_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "the graph cannot be read"

    def refuse(*_: object) -> None:
        raise UnsupportedError(message)

    monkeypatch.setattr("mobileprep.building.stages.migration.run.surveyed", refuse)
    record = record_of(tmp_path, classifier(), interface("y"))
    assert record == MigrationRecord("", None, message)

"""A stage that leaves something else than before has another version."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline import execute as execution
from mobileprep.building.plan.spec import Stage
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.package.spec import PackageStage
from tests.golden.stages.make import DIGESTS, complaints, noted

BEFORE = json.loads(DIGESTS.read_text(encoding="utf-8"))


def test_stages_leave_what_was_noted_beside_their_versions(tmp_path: Path) -> None:
    assert complaints(BEFORE, noted(tmp_path)) == []


def test_a_stage_that_leaves_something_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = execution.stage_function

    def changed(kind: type[Stage]):
        def run(job: Job) -> None:
            found(kind)(job)
            if isinstance(job.asked, PackageStage):
                job.output("files/more").write_text("more")

        return run

    monkeypatch.setattr(execution, "stage_function", changed)
    (told,) = complaints(BEFORE, noted(tmp_path))
    assert told == (
        "PackageStage leaves something else (golden/auto/package: files/more, "
        "golden/eight/package: files/more, golden/phone/package: files/more, "
        "golden/private/package: files/more): raise its version in "
        "the spec.py of its slice in mobileprep/building/stages and run "
        "python -m tests.golden.stages.make"
    )


def test_a_new_version_asks_for_the_digests_to_be_made_anew() -> None:
    after = copy.deepcopy(BEFORE)
    after["check"]["version"] += 1
    assert complaints(BEFORE, after) == [
        "CheckStage has a new version: run python -m tests.golden.stages.make"
    ]

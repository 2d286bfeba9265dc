"""A stage whose outputs change needs a new version."""

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


def test_outputs_match_the_digests_of_the_stage_versions(tmp_path: Path) -> None:
    assert complaints(BEFORE, noted(tmp_path)) == []


def test_changed_outputs_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = execution.stage_function

    def changed(kind: type[Stage]):
        def run(job: Job) -> None:
            original(kind)(job)
            if isinstance(job.asked, PackageStage):
                job.output("files/more").write_text("more")

        return run

    monkeypatch.setattr(execution, "stage_function", changed)
    (complaint,) = complaints(BEFORE, noted(tmp_path))
    assert complaint == (
        "PackageStage leaves something else (cascade/first/phone/package: files/more, "
        "cascade/second/phone/package: files/more, golden/auto/package: files/more, "
        "golden/eight/package: files/more, golden/phone/package: files/more, "
        "golden/private/package: files/more): raise its version in "
        "the spec.py of its slice in mobileprep/building/stages and run "
        "python -m tests.golden.stages.make"
    )


def test_new_version_requires_new_digests() -> None:
    after = copy.deepcopy(BEFORE)
    after["check"]["version"] += 1
    assert complaints(BEFORE, after) == [
        "CheckStage has a new version: run python -m tests.golden.stages.make"
    ]

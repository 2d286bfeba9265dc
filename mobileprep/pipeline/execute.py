"""Runs one stage in a folder of its own, and takes what it leaves into the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from mobileprep.errors import ArtifactError, InternalError
from mobileprep.pipeline.state import Fresh, State
from mobileprep.pipeline.store import Record, unwritable
from mobileprep.plan.fingerprints import fingerprint
from mobileprep.plan.spec import Stage, StageSpec
from mobileprep.stages.base import Job, stage_function


def execute(spec: StageSpec, state: State, warn: Callable[[str], None]) -> Record:
    """Run a stage whose earlier stages are fresh; its record, already in the store.

    Args:
        spec: the stage.
        state: the plan against a store.
        warn: takes what the stage has to say before it does its work.

    Raises:
        MobileprepError: whatever the stage raises.
        CorruptFileError: an input file changed while the stage ran.
    """
    verdict = state.verdict(spec.task)
    if isinstance(verdict, Fresh):
        return verdict.record  # another build of the same has just been here
    if verdict.parts is None:
        message = f"{spec.task} was run before the stages that it needs"
        raise InternalError(message)
    folder = state.store.workspace()
    started = time.perf_counter()
    try:
        stage_function(spec.kind)(_job(spec, state, folder, warn))
        state.check_unchanged(spec)
        outputs = {name: state.store.take(folder / name) for name in _left(folder, spec)}
    except ArtifactError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        # Stages write nowhere but to their folder, whose name would tell the user nothing.
        raise unwritable(error.__cause__, state.store.folder) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record = Record(verdict.parts, outputs, round(time.perf_counter() - started, 4))
    state.store.save(fingerprint(verdict.parts), record)
    state.store.save_latest(state.latest_key(spec), verdict.parts)
    state.finished(spec.task, record)
    return record


def _left(folder: Path, spec: StageSpec) -> list[str]:
    """The outputs in a stage's folder, sorted.

    Raises:
        InternalError: one that the plan promises is not there.
    """
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    for name in spec.stage.output_files:
        if name not in names:
            message = f"the stage {spec.kind} did not leave {name}"
            raise InternalError(message)
    return names


def _job(spec: StageSpec, state: State, folder: Path, warn: Callable[[str], None]) -> Job[Stage]:
    inputs = {
        up: state.store.object_path(state.output(up.task, up.output).sha256)
        for up in spec.stage.upstream.values()
    }
    return Job(spec.task, spec.stage, inputs, folder, spec.places, warn)

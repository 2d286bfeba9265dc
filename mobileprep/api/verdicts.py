"""What a build would do: a verdict on each stage, and on the folder of each target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mobileprep.api.targets import REPORT, target_changes
from mobileprep.pipeline.folder_reasons import expected_files, folder_reasons
from mobileprep.pipeline.needs import lose_what_is_gone
from mobileprep.pipeline.publish import MANIFEST
from mobileprep.pipeline.runner import collect_target
from mobileprep.pipeline.state import Fresh, Stale, State
from mobileprep.pipeline.store import Output
from mobileprep.plan.changes import Change
from mobileprep.plan.spec import StageSpec, TargetPlan, Upstream
from mobileprep.plan.stages import PUBLISHED

PUBLISH: Final = "publish"


@dataclass(frozen=True)
class InputFact:
    """A file from outside that a stage reads: its part there, its name in the recipe, its place."""

    slot: str
    name: str
    path: str
    sha256: str


@dataclass(frozen=True)
class OutputFact:
    """A file that a stage leaves in the store, or a target's folder has.

    ``sha256`` is what it should have, None while the stage has yet to run; ``path`` is None for
    what stays in the store.
    """

    name: str
    path: str | None
    sha256: str | None


@dataclass(frozen=True)
class Verdict:
    """Whether a step of a build has something to do.

    Args:
        task: its name.
        stage: which stage it is, or ``publish`` for the folder of a target.
        needs: the tasks before it.
        reasons: why it would run, in words; nothing where it is fresh.
        changes: what is not as it was when it last ran.
        certain: false where it runs only if a stage before it leaves something else than before.
        seconds: how long its last run took, None where that is not known.
        bytes: the length of all that it left then.
        inputs: the files from outside that it reads.
        outputs: the files that it leaves, as far as they are known before it has run.
    """

    task: str
    stage: str
    needs: tuple[str, ...]
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    certain: bool
    seconds: float | None
    bytes: int | None
    inputs: tuple[InputFact, ...]
    outputs: tuple[OutputFact, ...]

    @property
    def fresh(self) -> bool:
        """Whether there is nothing to do."""
        return not self.reasons

    def __str__(self) -> str:
        return f"{self.task}: {'; '.join(self.reasons) or 'fresh'}"

    def as_data(self) -> dict[str, Any]:
        """The verdict as JSON takes it."""
        return {**asdict(self), "fresh": self.fresh}


def verdicts(state: State, out: Path) -> list[Verdict]:
    """The verdicts on all stages of a plan, then on its targets' folders below ``out``.

    Raises:
        CorruptFileError: an input file is missing or unreadable.
        ArtifactError: a name leads out of the output folder.
    """
    lose_what_is_gone(state, _needed_by_folders(state, out))
    return [
        *(stage_verdict(spec, state) for spec in state.plan.stages),
        *(folder_verdict(target, state, out) for target in state.plan.targets),
    ]


def _needed_by_folders(state: State, out: Path) -> Iterator[Upstream]:
    """What the folders lack of targets whose stages are all fresh."""
    for target in state.plan.targets:
        if all(isinstance(state.verdict(task), Fresh) for task in target.tasks):
            built = collect_target(target, state)
            todo, _ = target_changes(built, out, state.store.files)
            yield from (built.origins[name] for name in todo.write if name in built.origins)


def stage_verdict(spec: StageSpec, state: State) -> Verdict:
    """The verdict on one stage.

    Raises:
        CorruptFileError: an input file is missing or unreadable.
    """
    found = state.verdict(spec.task)
    made = found.record.outputs if isinstance(found, Fresh) else {}
    stale = found if isinstance(found, Stale) else None
    last = found.record if isinstance(found, Fresh) else found.last
    return Verdict(
        spec.task,
        spec.kind,
        tuple(spec.needs),
        stale.reasons if stale else (),
        stale.changes if stale else (),
        stale is None or stale.parts is not None,
        last.seconds if last else None,
        last.bytes if last else None,
        tuple(
            InputFact(slot, file.name, str(file.path), state.digest(file))
            for slot, files in spec.stage.files.items()
            for file in files.members
        ),
        tuple(
            OutputFact(name, None, _digest(made.get(name)))
            for name in sorted({*spec.stage.output_files, *made})
        ),
    )


def folder_verdict(target: TargetPlan, state: State, out: Path) -> Verdict:
    """The verdict on one target's folder below ``out``.

    Raises:
        CorruptFileError: an input file is missing or unreadable.
        ArtifactError: a name leads out of the output folder.
    """
    task = f"{target.folder}/{PUBLISH}"
    waits = [name for name in target.tasks if isinstance(state.verdict(name), Stale)]
    folder = out / target.folder
    if waits:
        reasons: Sequence[str] = (f"{waits[0]} runs first",)
        files: Mapping[str, str | None] = dict.fromkeys(promised_files(target, state))
    else:
        built = collect_target(target, state)
        todo, extra = target_changes(built, out, state.store.files)
        files = expected = expected_files(built, extra, todo)
        reasons = folder_reasons(todo, expected)
    outputs = (OutputFact(n, str(folder / n), digest) for n, digest in sorted(files.items()))
    known = not waits
    return Verdict(
        task, PUBLISH, target.tasks, tuple(reasons), (), known, None, None, (), tuple(outputs)
    )


def promised_files(target: TargetPlan, state: State) -> list[str]:
    """The files that a target's folder is sure to get, known before any stage has run."""
    left = [
        name.removeprefix(PUBLISHED)
        for task in target.tasks
        for name in state.plan.stage(task).stage.output_files
        if name.startswith(PUBLISHED)
    ]
    return [*left, REPORT, MANIFEST]


def _digest(output: Output | None) -> str | None:
    return output.sha256 if output else None

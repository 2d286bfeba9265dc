"""Predict a build: a verdict for each stage, for each target's directory, and for pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs, to_builtins

from mobileprep.building.pages import is_page, page_files, page_reasons
from mobileprep.building.pipeline.publish import expected_files, folder_reasons
from mobileprep.building.pipeline.runner import Built, collect_target
from mobileprep.building.pipeline.state import Fresh, Stale, State
from mobileprep.building.plan.fingerprints import Change
from mobileprep.building.plan.spec import StageSpec, TargetPlan, Upstream
from mobileprep.building.targets import (
    lacking_outputs,
    promised_files,
    target_changes,
    wanted_outputs,
)
from mobileprep.errors import CorruptFileError
from mobileprep.formats.parts import Part

PUBLISH: Final = "publish"
WRITE_PAGE: Final = "page"
_TRIAL_STAGES: Final = frozenset(
    {"trial", "evaluate", "verdict", "rank", "try_exceptions", "rank_exceptions"}
)
_TRIAL: Final = re.compile(r"(.+)-(?:rank|(?:trial|evaluate|verdict)-\d+)")


class InputFact(Struct, frozen=True):
    """An input file of a stage: its slot, its name in the recipe, its path, and its digest."""

    slot: str
    name: str
    path: str
    sha256: str


class OutputFact(Struct, frozen=True):
    """A file that a stage writes to the cache, or a file of a target's directory.

    ``sha256`` is the expected digest, or None until the stage has run. ``path`` is None for files
    in the cache.
    """

    name: str
    path: str | None
    sha256: str | None


class Verdict(Struct, frozen=True):
    """Whether a step of a build has something to do.

    Args:
        task: name of the task.
        stage: kind of the stage, ``publish`` for the directory of a target, or ``page`` for a
            recipe's page, which is listed only if nothing else of the recipe would change.
        needs: tasks that it depends on.
        reasons: why it would run, in words; empty if it is fresh.
        changes: changes since its last run.
        certain: false if it runs only if an earlier stage produces different outputs.
        seconds: duration of its last run, None if unknown.
        bytes: total size of its last outputs, None if unknown.
        store_bytes: size of the objects that it reads from the local cache, except those that
            earlier steps read.
        remote_bytes: the same for the remote cache.
        inputs: input files of the stage.
        outputs: output files, as far as they are known before it runs.
    """

    task: str
    stage: str
    needs: tuple[str, ...]
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    certain: bool
    seconds: float | None
    bytes: int | None
    store_bytes: int
    remote_bytes: int
    inputs: tuple[InputFact, ...]
    outputs: tuple[OutputFact, ...]

    @property
    def fresh(self) -> bool:
        """Whether there is nothing to do."""
        return not self.reasons

    @property
    def trial_of(self) -> str:
        """The step of ``quantize: auto`` for which this stage tries rules, or empty."""
        match = _TRIAL.fullmatch(self.task) if self.stage in _TRIAL_STAGES else None
        return match[1] if match else ""

    def __str__(self) -> str:
        return f"{self.task}: {'; '.join(self.reasons) or 'fresh'}"

    def as_data(self) -> dict[str, Any]:
        """Convert the verdict to JSON-compatible data."""
        plain: dict[str, Any] = to_builtins(self)
        return {**plain, "fresh": self.fresh}


def verdict_lines(judged: Iterable[Verdict], *, verbose: bool) -> Iterator[str]:
    """Yield a line per verdict, and a single line for all trials of a ``quantize: auto`` step."""
    for step, group in groupby(judged, key=lambda verdict: "" if verbose else verdict.trial_of):
        stages = list(group)
        if not step:
            for verdict in stages:
                yield from str(verdict).splitlines()
            continue
        due = sum(not verdict.fresh for verdict in stages)
        state = f"{due} would run" if due else "fresh"
        yield f"{step}: {len(stages)} trial stages: {state} (list them with -v)"


class Forecast(Struct, frozen=True):
    """The stages of a plan that run, by task, with the reasons; all others do not run.

    Args:
        certain: stages that run in any case. Of several stages with the same fingerprint, only the
            first is included.
        perhaps: stages that run only if an earlier stage produces different outputs.
    """

    certain: Mapping[str, tuple[str, ...]]
    perhaps: Mapping[str, tuple[str, ...]]

    def runs(self, task: str) -> bool:
        return task in self.certain or task in self.perhaps


def forecast_of(judged: Mapping[str, Fresh | Stale]) -> Forecast:
    """Forecast which stages a build runs, in the order of the plan."""
    certain: dict[str, tuple[str, ...]] = {}
    perhaps: dict[str, tuple[str, ...]] = {}
    first: dict[str, str] = {}
    for task, verdict in judged.items():
        if isinstance(verdict, Fresh):
            continue
        same = task if verdict.key is None else first.setdefault(verdict.key, task)
        if verdict.key is None:
            perhaps[task] = verdict.reasons
        elif same == task:
            certain[task] = verdict.reasons
        else:
            perhaps[task] = (f"{same} is the same and has yet to run",)
    return Forecast(certain, perhaps)


def verdicts(state: State, out: Path, partial: Collection[str] = ()) -> list[Verdict]:
    """Return the verdicts for all stages of a plan, then for the targets' directories and pages.

    Nothing is run or written, and the state can still be built afterwards.

    Args:
        state: the plan and its freshness.
        out: the output directory.
        partial: names of recipes with targets that cannot be planned; their pages stay unchanged.
    """
    plan = state.plan
    state.check_outputs(wanted_outputs(state, out))
    forecast = forecast_of(state.verdicts(spec.task for spec in plan.stages))
    judged = [stage_verdict(spec, state, forecast) for spec in plan.stages]
    judged += [folder_verdict(target, state, out, forecast) for target in plan.targets]
    read = [set(spec.stage.upstream.values()) for spec in plan.stages] + [
        lacking_outputs(target, state, out) for target in plan.targets
    ]
    sizes = _Sizes(state, forecast)
    sized = [
        one if one.fresh else sizes.with_sizes(one, needed)
        for one, needed in zip(judged, read, strict=True)
    ]
    pages = _pages(state, out, {one.task for one in judged if not one.fresh})
    return [*sized, *(page for recipe, page in pages if recipe not in partial)]


def _pages(state: State, out: Path, due: set[str]) -> Iterator[tuple[str, Verdict]]:
    """Yield verdicts for pages that must be written although their recipe is otherwise fresh."""
    for recipe, path in page_files(state.plan, out).items():
        targets = [target for target in state.plan.targets if target.recipe == recipe]
        folders = tuple(f"{target.folder}/{PUBLISH}" for target in targets)
        if due & {*folders, *(task for target in targets for task in target.tasks)}:
            continue
        reasons = tuple(page_reasons(state, recipe, out))
        # A build does not overwrite other files.
        if not reasons or (path.exists() and not is_page(path)):
            continue
        name, file = f"{recipe}/{path.name}", OutputFact(path.name, str(path), None)
        numbers = (None, None, 0, 0, (), (file,))
        yield recipe, Verdict(name, WRITE_PAGE, folders, reasons, (), True, *numbers)


class _Sizes:
    """Sizes of the cached objects that steps read; each object counts for the first step."""

    def __init__(self, state: State, forecast: Forecast) -> None:
        self._state = state
        self._forecast = forecast
        self._counted: set[str] = set()

    def with_sizes(self, step: Verdict, needed: Iterable[Upstream]) -> Verdict:
        """Return a step with the sizes of its needed objects that were not counted before."""
        parts = {part for up in needed for part in self._parts(up)}
        new = {part for part in parts if part.sha256 not in self._counted}
        self._counted |= {part.sha256 for part in new}
        store = self._state.store
        # Objects that neither cache has are not included: their stages run again.
        remote = set() if store.sharing is None else set(store.objects.absent(new))
        here, there = (sum(part.size for part in some) for some in (new - remote, remote))
        return structs.replace(step, store_bytes=here, remote_bytes=there)

    def _parts(self, up: Upstream) -> Sequence[Part]:
        verdict = self._state.verdict(up.task)
        if isinstance(verdict, Stale) or self._forecast.runs(up.task):
            return ()
        return self._state.store.needed(verdict.record.outputs[up.output]) or ()


def stage_verdict(spec: StageSpec, state: State, forecast: Forecast) -> Verdict:
    verdict = state.verdict(spec.task)
    runs = forecast.runs(spec.task)
    outputs = verdict.record.outputs if isinstance(verdict, Fresh) and not runs else {}
    last = verdict.record.summary if isinstance(verdict, Fresh) else verdict.last
    return Verdict(
        spec.task,
        spec.kind,
        tuple(spec.needs),
        (*forecast.certain.get(spec.task, ()), *forecast.perhaps.get(spec.task, ())),
        verdict.changes if isinstance(verdict, Stale) else (),
        spec.task not in forecast.perhaps,
        last.seconds if last else None,
        last.bytes if last else None,
        0,
        0,
        tuple(
            InputFact(slot, file.name, str(file.path), state.digest(file))
            for slot, files in spec.stage.files.items()
            for file in files.members
        ),
        tuple(
            OutputFact(name, None, outputs[name].sha256 if name in outputs else None)
            for name in sorted({*spec.stage.output_files, *outputs})
        ),
    )


def folder_verdict(target: TargetPlan, state: State, out: Path, forecast: Forecast) -> Verdict:
    """Return the verdict for a target's directory in ``out``."""
    task = f"{target.folder}/{PUBLISH}"
    waits = [name for name in target.tasks if forecast.runs(name)]
    folder = out / target.folder
    built = _at_hand(target, state)
    if built is None:
        reasons: Sequence[str] = (f"{waits[0]} runs first",) if waits else ("its report is lost",)
        files: Mapping[str, str | None] = dict.fromkeys(promised_files(target, state))
    else:
        todo, extra = target_changes(built, out, state.store.files)
        files = expected = expected_files(built, extra, todo)
        reasons = folder_reasons(todo, expected)
    outputs = (OutputFact(n, str(folder / n), digest) for n, digest in sorted(files.items()))
    is_known = built is not None
    numbers = (None, None, 0, 0, ())
    return Verdict(
        task, PUBLISH, target.tasks, tuple(reasons), (), is_known, *numbers, tuple(outputs)
    )


def _at_hand(target: TargetPlan, state: State) -> Built | None:
    """Return the outputs of a target's stages, or None if a stage must run or a record is missing.

    Stages that run only because their outputs are lost are included: they produce the same outputs.
    """
    if any(isinstance(state.verdict(task), Stale) for task in target.tasks):
        return None
    try:
        return collect_target(target, state)
    except CorruptFileError:
        return None

"""The page of each recipe: ``report.html`` beside the folders of its targets."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mobileprep import __version__
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.folder_lock import folder_locks
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.publish import from_here
from mobileprep.building.pipeline.runner import FollowUp, collect, collect_target
from mobileprep.building.pipeline.state import Fresh, Stale, State
from mobileprep.building.plan.spec import Plan, TargetPlan, Upstream, misfit
from mobileprep.building.report.collect import Report, report_key
from mobileprep.building.report.page.render import (
    PAGE,
    StageTime,
    bundle_digest,
    nodes_data,
    page_data,
    page_key,
    render_page,
)
from mobileprep.building.targets import build_report
from mobileprep.core.files import (
    NONSENSE,
    check_writable,
    file_inside,
    read_file,
    remove_file,
    sha256_bytes,
    unfinished,
    write_bytes,
)
from mobileprep.errors import CorruptFileError, MobileprepError

LARGEST_PAGE: Final = 1 << 30
"""The page of no graph that a page shows is longer."""
_NO_PAGE: Final = "no page of a build"


class _Page(Struct, frozen=True):
    """A page that is to be written.

    Args:
        path: where.
        ran: the stages of its targets that had run when it was made; it tells their times.
        data: what is to be written; None where what is there stays.
        warnings: sentences about why it is not written.
    """

    path: Path
    ran: frozenset[str]
    data: bytes | None
    warnings: tuple[str, ...] = ()


class Pages:
    """The pages of the recipes of a plan, made while targets are published and written after that.

    Args:
        executor: runs the plan.
        out: the output folder.
        partial: the names of recipes with targets that the plan lacks because they cannot be
            planned.
    """

    def __init__(self, executor: Executor, out: Path, partial: Collection[str] = ()) -> None:
        self._executor = executor
        self._out = out
        self._partial = partial
        self._published: dict[str, Report] = {}
        self._made: dict[str, _Page] = {}

    def follow_ups(self) -> list[FollowUp]:
        """To make each page ahead, when the stages of its targets have run."""
        plan = self._executor.state.plan
        return [
            FollowUp(
                recipe,
                tuple(dict.fromkeys(task for t in _targets(plan, recipe) for task in t.tasks)),
                functools.partial(self._make, recipe),
            )
            for recipe in self._due()
        ]

    def _due(self) -> list[str]:
        """The recipes whose pages are to be looked after."""
        files = page_files(self._executor.state.plan, self._out)
        return [recipe for recipe in files if recipe not in self._partial]

    def published(self, target: TargetPlan, report: Report) -> None:
        """Hear that the folder of a target is up to date, and its report."""
        self._published[target.folder] = report

    def write(self) -> list[str]:
        """Write the page of each recipe, unless nothing ran and it is there already.

        The page is of the targets that the plan has. It tells how long stages took, so it is not
        part of what manifests list: a rebuild gives another.

        Returns:
            Sentences about pages that were not written.
        """
        warnings: list[str] = []
        plan = self._executor.state.plan
        for recipe in self._due():
            if not all(target.folder in self._published for target in _targets(plan, recipe)):
                continue  # one failed: what is there tells of the last whole build
            page = self._made.get(recipe)
            # What was found lost as a target was published has run again since.
            if page is None or page.ran != _ran(self._executor, recipe):
                page = _page(self._executor, recipe, self._published, self._out)
            warnings += _written(self._executor, page)
        return warnings

    def _make(self, recipe: str) -> None:
        # What goes wrong is raised as the page is written: targets are published all the same.
        with contextlib.suppress(MobileprepError):
            reports = dict(self._published)
            for target in _targets(self._executor.state.plan, recipe):
                if target.folder not in reports:
                    built = collect_target(target, self._executor.state, self._executor)
                    reports[target.folder] = build_report(built)
            self._made[recipe] = _page(self._executor, recipe, reports, self._out)


def write_page(
    executor: Executor, recipe: str, reports: Mapping[str, Report], out: Path
) -> tuple[str, ...]:
    """Write the page of one recipe, where it is there, too: times may be others.

    Returns:
        Sentences about why it was not written.
    """
    return _written(executor, _page(executor, recipe, reports, out, again=True))


def _page(
    executor: Executor,
    recipe: str,
    reports: Mapping[str, Report],
    out: Path,
    *,
    again: bool = False,
) -> _Page:
    path = page_of_recipe(recipe, out)
    targets = _targets(executor.state.plan, recipe)
    ran = _ran(executor, recipe)
    key = _key(executor.record, targets, reports)
    found = _found(path)
    if found == key and not ran and not again:
        return _Page(path, ran, None)
    if found is None:
        return _Page(path, ran, None, (f"{path} is {_NO_PAGE}, so it is kept",))
    told = _told(executor, targets, reports)
    # What is told may have been made again, and be another.
    return _Page(path, ran, render_page(told, key=_key(executor.record, targets, reports)))


def _written(executor: Executor, page: _Page) -> tuple[str, ...]:
    folder = page.path.parent
    _remove_unfinished(folder, executor.tell)
    if page.data is not None:
        with _alone(folder, executor.tell):
            write_bytes(page.path, page.data, follow=False)
        executor.state.store.files.note(page.path, sha256_bytes(page.data))
    return page.warnings


def _remove_unfinished(folder: Path, tell: Callable[[str], None]) -> None:
    """Remove what killed builds have left of the page of a recipe's folder."""
    if not unfinished(folder, [PAGE]):
        return
    with _alone(folder, tell):
        for name in unfinished(folder, [PAGE]):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _alone(folder: Path, tell: Callable[[str], None]) -> AbstractContextManager[bool]:
    """While builds of other targets, which hold other folders, write no page of the recipe."""
    return folder_locks([folder], wait=True, tell=tell)


def _ran(executor: Executor, recipe: str) -> frozenset[str]:
    """The stages of a recipe's targets that have run."""
    tasks = {task for target in _targets(executor.state.plan, recipe) for task in target.tasks}
    return frozenset(one.task for one in executor.ran if one.task in tasks)


def page_reasons(state: State, recipe: str, out: Path) -> list[str]:
    """Why a build would write the page of a recipe; nothing where it is as it should be."""
    targets = _targets(state.plan, recipe)
    for task in (task for target in targets for task in target.tasks):
        if isinstance(state.verdict(task), Stale):
            return [f"{task} runs first"]
    try:
        reports = {t.folder: build_report(collect_target(t, state)) for t in targets}
    except CorruptFileError:
        return ["the report of a target is lost"]
    path = page_of_recipe(recipe, out)
    found = _found(path)
    if found == _key(state.record, targets, reports):
        return []
    return [f"{from_here(path)} {_fault(path, found)}"]


def _fault(path: Path, found: str | None) -> str:
    """What is wrong with a page, as the end of a sentence; ``found`` as ``_found`` tells it."""
    if found is None:
        return f"is {_NO_PAGE}"
    if not path.exists():
        return "is missing"
    return "is of another build" if found else "was altered"


def built_pages(state: State) -> list[dict[str, Any]]:
    """What the page of each recipe of a plan tells whose stages are all fresh."""
    reports = {built.target.folder: build_report(built) for built in collect(state)}
    executor = Executor(state)
    recipes = dict.fromkeys(t.recipe for t in state.plan.targets)
    return [_told(executor, _targets(state.plan, recipe), reports) for recipe in recipes]


def page_files(plan: Plan, out: Path) -> dict[str, Path]:
    """Where the pages of a plan's recipes lie, by the recipe's name."""
    recipes = dict.fromkeys(t.recipe for t in plan.targets if t.page is not None)
    return {recipe: page_of_recipe(recipe, out) for recipe in recipes}


def page_of_recipe(recipe: str, out: Path) -> Path:
    """Where a recipe's page lies in the output folder."""
    return file_inside(out, f"{recipe}/{PAGE}")


def remove_page(folder: Path, tell: Callable[[str], None]) -> bool:
    """Remove the page of a recipe's folder, and halves of one; whether a whole one was there."""
    _remove_unfinished(folder, tell)
    path = folder / PAGE
    if not is_page(path):
        return False
    remove_file(path)
    return True


def check_page(recipe: str, out: Path) -> None:
    """Make sure that the page of a recipe whose stages are to run can be written."""
    path = page_of_recipe(recipe, out)
    if _found(path) is not None:  # else it is left as it is
        check_writable(path)


def is_page(path: Path) -> bool:
    """Whether a file is the page of a build."""
    return path.is_file() and _found(path) is not None


def _targets(plan: Plan, recipe: str) -> list[TargetPlan]:
    return [target for target in plan.targets if target.recipe == recipe]


def _told(
    executor: Executor, targets: Sequence[TargetPlan], reports: Mapping[str, Report]
) -> dict[str, Any]:
    told = [(reports[target.folder], _nodes(executor, target)) for target in targets]
    stages = list(_stages(executor, targets))
    return page_data(targets[0].recipe, f"mobileprep {__version__}", told, stages)


def _nodes(executor: Executor, target: TargetPlan) -> dict[str, Any]:
    page = target.page
    if page is None:
        return {}

    def read(up: Upstream) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(executor.read(up))
        return data

    try:
        graphs = map(read, page.graphs)
        return nodes_data(read(page.source), read(page.shipped), page.steps, graphs)
    except NONSENSE as error:
        # Which of them it is shows nowhere.
        raise misfit(*page) from error


def _key(
    record: Callable[[str], Record], targets: Sequence[TargetPlan], reports: Mapping[str, Report]
) -> str:
    """A digest of all that a page tells but the times."""
    digest = hashlib.sha256(f"{__version__} {bundle_digest()}".encode())
    for target in targets:
        digest.update(report_key(reports[target.folder]))
        for up in target.page or ():
            digest.update(record(up.task).outputs[up.output].sha256.encode())
    return digest.hexdigest()


def _found(path: Path) -> str | None:
    """The key of the page that is there, None where it is none of ours.

    It is empty where nothing is there, or the page was edited.
    """
    if not os.path.exists(path):  # noqa: PTH110 - Path raises for names too long
        return ""
    try:
        return page_key(read_file(path, limit=LARGEST_PAGE))
    except CorruptFileError:
        return None


def _stages(executor: Executor, targets: Sequence[TargetPlan]) -> Iterator[StageTime]:
    ran = {one.task: one.seconds for one in executor.ran}
    for task in dict.fromkeys(task for target in targets for task in target.tasks):
        verdict = executor.state.verdict(task)
        took = verdict.record.seconds if isinstance(verdict, Fresh) else 0.0
        kind = executor.state.spec(task).kind
        yield StageTime(task, kind, round(ran.get(task, took), 3), task in ran)

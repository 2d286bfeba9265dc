"""The page of each recipe, ``report.html``, next to the directories of its targets."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from mobileprep import __version__
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.locks import folder_locks
from mobileprep.building.pipeline.output import Record
from mobileprep.building.pipeline.publish import from_here
from mobileprep.building.pipeline.runner import collect, collect_target
from mobileprep.building.pipeline.state import Fresh, Stale, State
from mobileprep.building.plan.spec import Plan, TargetPlan, Upstream, misfit
from mobileprep.building.report.collect import Report, report_json
from mobileprep.building.report.page.render import (
    PAGE,
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
from mobileprep.errors import CorruptFileError

LARGEST_PAGE: Final = 1 << 30
"""Maximum size of a page in bytes."""
_NO_PAGE: Final = "no page of a build"


def write_pages(
    executor: Executor, out: Path, reports: Mapping[str, Report], partial: Collection[str] = ()
) -> list[str]:
    """Write the page of each recipe of a plan, unless it exists and nothing ran.

    A page covers the targets of the plan. It shows the durations of stages, so it differs between
    rebuilds and is not listed in manifests.

    Args:
        executor: runs the plan.
        out: output directory of the build.
        reports: reports of the published targets by directory. If a target failed, the page of the
            last complete build stays.
        partial: names of recipes with targets that cannot be planned.

    Returns:
        Warnings about pages that were not written.
    """
    warnings: list[str] = []
    plan = executor.state.plan
    for recipe in page_files(plan, out):
        is_complete = all(target.folder in reports for target in _targets(plan, recipe))
        if is_complete and recipe not in partial:
            warnings += write_page(executor, recipe, reports, out, again=False)
    return warnings


def write_page(
    executor: Executor,
    recipe: str,
    reports: Mapping[str, Report],
    out: Path,
    *,
    again: bool = True,
) -> tuple[str, ...]:
    """Write the page of one recipe.

    Args:
        again: write it even if it exists and nothing ran, because durations may differ.

    Returns:
        Reasons if it was not written.
    """
    path = page_of_recipe(recipe, out)
    targets = _targets(executor.state.plan, recipe)
    _remove_unfinished(path.parent, executor.report_message)
    stored_key = _key_of_page(path)
    if stored_key is None:
        return (f"{path} is {_NO_PAGE}, so it is kept",)
    tasks = {task for target in targets for task in target.tasks}
    has_news = again or not tasks.isdisjoint(one.task for one in executor.ran)
    if has_news or stored_key != _key(executor.record, targets, reports):
        content = _page_content(executor, targets, reports)
        # Reading the data may have run stages again, with different outputs.
        page = render_page(content, key=_key(executor.record, targets, reports))
        with _alone(path.parent, executor.report_message):
            write_bytes(path, page, follow=False)
        executor.state.store.files.note(path, sha256_bytes(page))
    return ()


def _remove_unfinished(folder: Path, report_message: Callable[[str], None]) -> None:
    """Remove partially written pages of killed builds."""
    if not unfinished(folder, [PAGE]):
        return
    with _alone(folder, report_message):
        for name in unfinished(folder, [PAGE]):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _alone(folder: Path, report_message: Callable[[str], None]) -> AbstractContextManager[bool]:
    """Lock the recipe's directory against builds of its other targets."""
    return folder_locks([folder], wait=True, tell=report_message)


def page_reasons(state: State, recipe: str, out: Path) -> list[str]:
    """Return why a build would write the page of a recipe; empty if it is up to date."""
    targets = _targets(state.plan, recipe)
    for task in (task for target in targets for task in target.tasks):
        if isinstance(state.verdict(task), Stale):
            return [f"{task} runs first"]
    try:
        reports = {t.folder: build_report(collect_target(t, state)) for t in targets}
    except CorruptFileError:
        return ["the report of a target is lost"]
    path = page_of_recipe(recipe, out)
    stored_key = _key_of_page(path)
    if stored_key == _key(state.record, targets, reports):
        return []
    return [f"{from_here(path)} {_fault(path, stored_key)}"]


def _fault(path: Path, stored_key: str | None) -> str:
    """Describe the problem of a page, with its result of ``_key_of_page``, to end a sentence."""
    if stored_key is None:
        return f"is {_NO_PAGE}"
    if not path.exists():
        return "is missing"
    return "is of another build" if stored_key else "was altered"


def built_pages(state: State) -> list[dict[str, Any]]:
    """Return the page data of each recipe of a plan whose stages are all fresh."""
    reports = {built.target.folder: build_report(built) for built in collect(state)}
    executor = Executor(state)
    recipes = dict.fromkeys(t.recipe for t in state.plan.targets)
    return [_page_content(executor, _targets(state.plan, recipe), reports) for recipe in recipes]


def page_files(plan: Plan, out: Path) -> dict[str, Path]:
    """Return the path of each page of a plan by recipe name."""
    recipes = dict.fromkeys(t.recipe for t in plan.targets if t.page is not None)
    return {recipe: page_of_recipe(recipe, out) for recipe in recipes}


def page_of_recipe(recipe: str, out: Path) -> Path:
    """Return the path of a recipe's page in the output directory."""
    return file_inside(out, f"{recipe}/{PAGE}")


def remove_page(folder: Path, report_message: Callable[[str], None]) -> bool:
    """Remove a recipe's page, including partially written ones; return whether it existed."""
    _remove_unfinished(folder, report_message)
    path = folder / PAGE
    if not is_page(path):
        return False
    remove_file(path)
    return True


def check_page(recipe: str, out: Path) -> None:
    """Check that the page of a recipe can be written before its stages run.

    Raises:
        ArtifactError: the page cannot be written.
    """
    path = page_of_recipe(recipe, out)
    if _key_of_page(path) is not None:  # other files are never overwritten
        check_writable(path)


def is_page(path: Path) -> bool:
    return path.is_file() and _key_of_page(path) is not None


def _targets(plan: Plan, recipe: str) -> list[TargetPlan]:
    return [target for target in plan.targets if target.recipe == recipe]


def _page_content(
    executor: Executor, targets: Sequence[TargetPlan], reports: Mapping[str, Report]
) -> dict[str, Any]:
    results = [(reports[target.folder], _nodes(executor, target)) for target in targets]
    stages = list(_stages(executor, targets))
    return page_data(targets[0].recipe, f"mobileprep {__version__}", results, stages)


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
        # The error does not show which of the files is damaged.
        raise misfit(*page) from error


def _key(
    record: Callable[[str], Record], targets: Sequence[TargetPlan], reports: Mapping[str, Report]
) -> str:
    """Return a digest of the page's content except durations."""
    digest = hashlib.sha256(f"{__version__} {bundle_digest()}".encode())
    for target in targets:
        digest.update(report_json(reports[target.folder]))
        for up in target.page or ():
            digest.update(record(up.task).outputs[up.output].sha256.encode())
    return digest.hexdigest()


def _key_of_page(path: Path) -> str | None:
    """Return the key of the existing page, or None if the file is not a page.

    The key is empty if the page is missing or was edited.
    """
    if not os.path.exists(path):  # noqa: PTH110 - Path raises for long names
        return ""
    try:
        return page_key(read_file(path, limit=LARGEST_PAGE))
    except CorruptFileError:
        return None


def _stages(executor: Executor, targets: Sequence[TargetPlan]) -> Iterator[dict[str, Any]]:
    ran = {one.task: one.seconds for one in executor.ran}
    for task in dict.fromkeys(task for target in targets for task in target.tasks):
        verdict = executor.state.verdict(task)
        took = verdict.record.seconds if isinstance(verdict, Fresh) else 0.0
        kind = executor.state.spec(task).kind
        seconds = round(ran.get(task, took), 3)
        yield {"task": task, "kind": kind, "seconds": seconds, "ran": task in ran}

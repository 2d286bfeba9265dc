"""From recipes to the state of a plan, and from built targets to folders and reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mobileprep.building.known_files import files_of_builds
from mobileprep.building.pipeline.cache_files import default_folder
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.publish import (
    MANIFEST,
    TOOL,
    Changes,
    changes,
    listed,
    publish,
    stays,
)
from mobileprep.building.pipeline.remote.settings import URL
from mobileprep.building.pipeline.runner import Built, check_pins, collect_target
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import PUBLISHED, TargetPlan, Upstream
from mobileprep.building.provenance import remove_provenance
from mobileprep.building.report.collect import Report, collect_report, report_json
from mobileprep.building.report.text import quantization_text
from mobileprep.core.files import inside
from mobileprep.errors import UsageError, nearest_hint
from mobileprep.recipe.model import Recipe

if TYPE_CHECKING:
    from mobileprep.building.pipeline.remote.base import Remote

REPORT = "report.json"


def plan_state(
    recipes: Sequence[Recipe],
    targets: Iterable[str] = (),
    *,
    store: Store | None = None,
    force: bool = False,
) -> State:
    """The plan of some recipes against the store, pinned digests checked."""
    wanted = frozenset(targets)
    known = {name for r in recipes for t in r.targets for name in (t.name, t.folder)}
    for name in sorted(wanted - known):
        message = f"no recipe has a target {name!r}"
        raise UsageError(
            message, nearest_hint(name, known) or f"there are {', '.join(sorted(known))}"
        )
    store = store or Store(default_folder())
    state = State(plan_recipes(recipes, wanted), store, force=force)
    _check_pins(recipes, state)
    return state


def shared_store(recipes: Sequence[Recipe], out: Path, files: FileIndex | None = None) -> Store:
    """The user's store for builds of some recipes into a folder.

    Args:
        files: tells which files there, and outside, have not changed; by default what earlier
            builds into that folder have left of it.
    """
    return Store(default_folder(), files or files_of_builds(out), _remote(recipes))


def _remote(recipes: Sequence[Recipe]) -> Remote | None:
    """The remote store that recipes or the environment name."""
    sections = {recipe.cache: recipe for recipe in recipes}
    if len(sections) > 1 and not os.environ.get(URL):
        named = " and ".join(sorted(recipe.file for recipe in sections.values())[:2])
        message = f"{named} do not name the same remote store"
        raise UsageError(message, f"build them one by one, or set {URL} for all")
    if not os.environ.get(URL) and not any(sections):
        return None
    # Only now: few builds share a store.
    from mobileprep.building.pipeline.remote.guarded import open_remote
    from mobileprep.building.pipeline.remote.settings import remote_settings

    return open_remote(remote_settings(next(iter(sections), None), os.environ))


def build_report(built: Built) -> Report:
    """The report of a built target."""
    sizes = {name: output.size for name, output in built.files.items()}
    target = built.target
    quantize = quantization_text(target.settings)
    report = collect_report(target.recipe, target.target, built.records, sizes, quantize)
    return replace(report, tool=TOOL, settings=target.settings, sources=built.sources)


def publish_target(target: TargetPlan, executor: Executor, out: Path) -> tuple[Report, bool]:
    """Bring a target's folder up to date; its report, and whether anything was written."""
    state = executor.state
    built = collect_target(target, state, executor)
    report = build_report(built)
    done = publish(built, {REPORT: report_json(report)}, state.store, out, executor.obtain)
    if done:
        remove_provenance(done.folder)  # it is of what was there before
    return report, bool(done)


def target_changes(built: Built, out: Path, files: FileIndex) -> tuple[Changes, dict[str, bytes]]:
    """What brings a target's folder up to date, and the files there that no stage has left."""
    extra = {REPORT: report_json(build_report(built))}
    return changes(built, extra, out, files), extra


def promised_files(target: TargetPlan, state: State) -> list[str]:
    """The files that a target's folder is sure to get, known before any stage has run."""
    left = [
        name.removeprefix(PUBLISHED)
        for task in target.tasks
        for name in state.plan.stage(task).stage.output_files
        if name.startswith(PUBLISHED)
    ]
    return [*left, REPORT, MANIFEST]


def wanted_outputs(state: State, out: Path) -> set[Upstream]:
    """The outputs of fresh stages that reports are made of, or that folders below ``out`` lack."""
    found = {
        up
        for target in state.plan.targets
        for _, up in target.records
        if isinstance(state.verdict(up.task), Fresh)
    }
    return found.union(*(lacking_outputs(target, state, out) for target in state.plan.targets))


def lacking_outputs(target: TargetPlan, state: State, out: Path) -> set[Upstream]:
    """The outputs of fresh stages that a target's folder does not have as they are."""
    folder = inside(out, target.folder)
    left = {
        Upstream(task, name): output
        for task in target.tasks
        if isinstance(found := state.verdict(task), Fresh)
        for name, output in found.record.outputs.items()
        if name.startswith(PUBLISHED)
    }
    before, files = listed(folder), state.store.files
    return {
        up
        for up, output in left.items()
        if not stays(
            folder, up.output.removeprefix(PUBLISHED), output.sha256, output.size, before, files
        )
    }


def _check_pins(recipes: Sequence[Recipe], state: State) -> None:
    pins = {
        (pin.file.shown, pin.file.place, pin.sha256, state.digest(file))
        for recipe in recipes
        for target in recipe.targets
        for pin in target.source.pins
        for file in single_file(pin.file).members
    }
    check_pins(sorted(pins))

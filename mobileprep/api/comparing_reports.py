"""What builds differ in from earlier ones: reports beside reports, and models beside models."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from mobileprep.api.report_files import StoredReport, model_file, node_changes, stored_reports
from mobileprep.api.targets import build_report
from mobileprep.errors import UsageError
from mobileprep.pipeline.runner import Built, collect
from mobileprep.pipeline.state import State
from mobileprep.pipeline.store import Store
from mobileprep.recipe.model import Recipe, Target
from mobileprep.report.collect import Report
from mobileprep.report.comparison.causes import Place
from mobileprep.report.comparison.compare import compare_builds
from mobileprep.report.comparison.model import Comparison, NodeChanges

_Model: TypeAlias = Callable[[], Path | None]


def compare_built(recipes: Sequence[Recipe], state: State, earlier: Path) -> list[Comparison]:
    """What the targets of recipes that are built differ in from an earlier build.

    Args:
        recipes: the recipes.
        state: their plan, all of whose stages are fresh.
        earlier: the earlier build's report or folder, see ``stored_reports``.

    Raises:
        CorruptFileError: there is no report, or a stage has not run.
        UsageError: the earlier build has none of these targets.
    """
    built = collect(state)
    targets = {(r.name, t.folder): t for r in recipes for t in r.targets}
    with tempfile.TemporaryDirectory() as folder:
        models: dict[tuple[str, str], _Model] = {}
        reports = []
        for number, one in enumerate(built):
            report = build_report(one)
            reports.append(report)
            place = Path(folder, str(number))
            models[_key(report)] = lambda b=one, p=place: _unpacked(b, state.store, p)  # type: ignore[misc]
        places = {_key(r): _places(targets[_key(r)]) for r in reports}
        return _compared(stored_reports(earlier), reports, places.__getitem__, models, earlier)


def compare_stored(later: Sequence[StoredReport], earlier: Path) -> list[Comparison]:
    """What builds that have left reports differ in from an earlier one.

    Raises:
        CorruptFileError: there is no earlier report.
        UsageError: the earlier build has none of these targets.
    """
    models: dict[tuple[str, str], _Model] = {
        _key(s.report): (lambda s=s: model_file(s))  # type: ignore[misc]
        for s in later
    }
    reports = [s.report for s in later]
    return _compared(stored_reports(earlier), reports, lambda _: _nowhere, models, earlier)


def _compared(
    old: Sequence[StoredReport],
    new: Sequence[Report],
    place: Callable[[tuple[str, str]], Place],
    models: dict[tuple[str, str], _Model],
    earlier: Path,
) -> list[Comparison]:
    if len(new) == 1 and len(old) > 1:
        # Of a whole build, one target was asked for.
        old = [s for s in old if _key(s.report) == _key(new[0])]
    if not {_key(s.report) for s in old} & {_key(r) for r in new} and len(old) != 1:
        message = "the earlier build has none of these targets"
        raise UsageError(message, "name the report or the folder of the same recipe", str(earlier))
    by_report = {id(s.report): s for s in old}

    def nodes(before: Report, after: Report) -> NodeChanges:
        return node_changes(model_file(by_report[id(before)]), models[_key(after)]())

    return compare_builds([s.report for s in old], new, lambda r: place(_key(r)), nodes)


def _key(report: Report) -> tuple[str, str]:
    return report.recipe, report.target


def _nowhere(_keys: Sequence[str | int]) -> str:
    return ""


def _places(target: Target) -> Place:
    """Where a target's keys stand; each step of its chain knows its own place."""

    def place(keys: Sequence[str | int]) -> str:
        if len(keys) > 1 and keys[0] == "transforms" and isinstance(keys[1], int):
            return target.transforms[keys[1]].place
        return target.place(keys)

    return place


def _unpacked(built: Built, store: Store, folder: Path) -> Path | None:
    """The model that a target's stages have left, as a file; None where the store lacks it."""
    name = built.records.package.model.file
    output = built.files.get(name)
    if output is None:
        return None
    folder.mkdir()
    path = folder / Path(name).name
    with path.open("wb") as stream:
        for piece in store.pieces(output):
            stream.write(piece)
    return path

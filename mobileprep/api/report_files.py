"""Reports of earlier builds, as files, and what their models differ in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mobileprep.api.targets import REPORT
from mobileprep.core.files import file_inside, read_bytes, sha256_file
from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.manifest import manifest_folders
from mobileprep.report.collect import Report
from mobileprep.report.comparison.model import NodeChange, NodeChanges
from mobileprep.report.reading import report_from

_MOST: Final = 64 << 20
"""No report is longer."""
_HINT: Final = "name a report.json, what 'build --json' has printed, or a folder for outputs"


@dataclass(frozen=True)
class StoredReport:
    """A report of an earlier build.

    Args:
        report: the report.
        folder: the target's folder, with its model; None where the report came alone.
    """

    report: Report
    folder: Path | None


def stored_reports(path: Path) -> list[StoredReport]:
    """The reports of a file, or of a folder of outputs and all below it.

    Args:
        path: a ``report.json``, what ``build --json`` has printed, or a folder.

    Raises:
        CorruptFileError: there is none, or it is no report.
    """
    if not path.is_dir():
        return list(_of_file(path))
    return [s for folder in manifest_folders(path) for s in _of_file(folder / REPORT)]


def _of_file(path: Path) -> Iterator[StoredReport]:
    try:
        data = json.loads(read_bytes(path, limit=_MOST))
        found = data if isinstance(data, list) else [data]
        reports = [report_from(one) for one in found]
    except (ValueError, RecursionError) as error:
        reason = "it is no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        message = f"is no report of a build: {reason}"
        raise CorruptFileError(message, _HINT, str(path)) from error
    if not reports:
        message = "holds no report"
        raise CorruptFileError(message, _HINT, str(path))
    beside = path.parent if path.name == REPORT and not isinstance(data, list) else None
    yield from (StoredReport(report, beside) for report in reports)


def model_file(stored: StoredReport) -> Path | None:
    """The model beside a report, which a report of unknown origin names; None without one.

    Raises:
        ArtifactError: the name leads out of the folder.
    """
    if stored.folder is None:
        return None
    path = file_inside(stored.folder, stored.report.model.file)
    return path if path.is_file() else None


def node_changes(old: Path | None, new: Path | None) -> NodeChanges:
    """What two models differ in, node by node, whatever their nodes are called.

    Args:
        old: the earlier model; None where it is not at hand.
        new: the model now.
    """
    missing = [side for side, path in (("earlier", old), ("new", new)) if path is None]
    if old is None or new is None:
        return NodeChanges(untold=f"the {' and the '.join(missing)} model is not at hand")
    if _same(old, new):
        return NodeChanges()
    # Only now: most models are as they were.
    from mobileprep.api.inspecting.differing import diff

    try:
        found = diff(old, new, warn=lambda _: None)
    except MobileprepError as error:
        return NodeChanges(untold=error.message)
    return NodeChanges(
        found.matched,
        len(found.renamed),
        tuple(NodeChange(d.kind, d.name, str(d)) for d in found.differences),
    )


def _same(old: Path, new: Path) -> bool:
    if old.stat().st_size != new.stat().st_size:
        return False
    return sha256_file(old) == sha256_file(new)


def only(stored: Sequence[StoredReport], targets: Sequence[str]) -> list[StoredReport]:
    """The reports of targets of some names, all without any."""
    return [s for s in stored if not targets or s.report.target in targets]

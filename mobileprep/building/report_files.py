"""Read reports and pages of earlier builds, and compare their models."""

from __future__ import annotations

import json
import math
import os
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct, structs, to_builtins
from msgspec.structs import replace

from mobileprep.building.pages import LARGEST_PAGE
from mobileprep.building.pipeline.publish import MANIFEST, TOOL, manifest_folders
from mobileprep.building.report.collect import Report
from mobileprep.building.report.comparison.model import NodeChange, NodeChanges
from mobileprep.building.report.page.render import FORMAT, PAGE, data_of_page, render_page
from mobileprep.building.targets import REPORT
from mobileprep.core.arguments import Warn
from mobileprep.core.files import file_inside, read_bytes, sha256_file, write_bytes
from mobileprep.errors import CorruptFileError, MobileprepError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.inspection.benchmark import opened
from mobileprep.inspection.differing import ModelDifference, diff
from mobileprep.inspection.node_table import node_table

_MOST: Final = 64 << 20
"""Maximum size of a report in bytes."""
_HINT: Final = "name a report.json, what 'build --json' has printed, or a folder for outputs"


class StoredReport(Struct, frozen=True):
    """A report of an earlier build.

    Args:
        report: the report.
        folder: directory of the target with its model; None for a report without one.
    """

    report: Report
    folder: Path | None


def stored_reports(path: Path) -> list[StoredReport]:
    """Read the reports of a file, or of all targets in a directory.

    Raises:
        CorruptFileError: a file is not a report, or the directory has no manifest.
    """
    if not path.is_dir():
        return list(_of_file(path))
    return [s for folder in manifest_folders(path) for s in _of_file(folder / REPORT)]


def _of_file(path: Path) -> Iterator[StoredReport]:
    try:
        data = json.loads(read_bytes(path, limit=_MOST))
        items = data if isinstance(data, list) else [data]
        reports = [report_from(one) for one in items]
    except (ValueError, RecursionError) as error:
        reason = "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        message = f"is not a report of a build: {reason}"
        raise CorruptFileError(message, _HINT, str(path)) from error
    if not reports:
        message = "holds no report"
        raise CorruptFileError(message, _HINT, str(path))
    beside = path.parent if path.name == REPORT and not isinstance(data, list) else None
    yield from (StoredReport(report, beside) for report in reports)


def model_file(stored: StoredReport) -> Path | None:
    """Return the model file that an untrusted report names, or None if it does not exist."""
    if stored.folder is None:
        return None
    path = file_inside(stored.folder, stored.report.model.file)
    return path if path.is_file() else None


def node_changes(old: Path | None, new: Path | None) -> NodeChanges:
    """Compare two models node by node, regardless of node names."""
    missing = [side for side, path in (("earlier", old), ("new", new)) if path is None]
    if old is None or new is None:
        return NodeChanges(untold=f"the {' and the '.join(missing)} model is not available")
    if _same(old, new):
        return NodeChanges()
    # Imported late because most models are unchanged.
    from mobileprep.inspection.differing import diff

    try:
        difference = diff(old, new, warn=lambda _: None)
    except MobileprepError as error:
        return NodeChanges(untold=error.message)
    return NodeChanges(
        difference.matched,
        len(difference.renamed),
        tuple(NodeChange(d.kind, d.name, str(d)) for d in difference.differences),
    )


def _same(old: Path, new: Path) -> bool:
    if old.stat().st_size != new.stat().st_size:
        return False
    return sha256_file(old) == sha256_file(new)


def only(stored: Sequence[StoredReport], targets: Sequence[str]) -> list[StoredReport]:
    """Select reports by target name, or all without names."""
    return [s for s in stored if not targets or s.report.target in targets]


RecordType = TypeVar("RecordType", bound=Struct)

_PLAIN: Final = (str, int, bool)


def report_from(data: object) -> Report:
    """Parse the JSON data of ``report_data``.

    Unknown keys are ignored because later versions may add them.

    Raises:
        ValueError: the data is not a report.
    """
    if isinstance(data, Mapping):
        return _record(Report, data, "the report")
    message = "it is not an object"
    raise ValueError(message)


def _record(kind: type[RecordType], data: Mapping[str, Any], where: str) -> RecordType:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in structs.fields(kind):
        if field.name in data:
            values[field.name] = _value(hints[field.name], data[field.name], field.name)
        elif field.required:
            message = f"{where} has no {field.name!r}"
            raise ValueError(message)
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - JSON
    """Convert a JSON value to the type of a field."""
    if hint is Any:
        return value
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        # The only other union is that of numbers, ``int | float``.
        hint = kinds[0] if len(kinds) == 1 else float
    if hint is float:
        return _number(value, where)
    if isinstance(hint, type) and issubclass(hint, Struct) and isinstance(value, dict):
        return _record(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(get_args(hint)[0], item, where) for item in value)
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {key: _value(get_args(hint)[1], item, where) for key, item in value.items()}
    if hint in _PLAIN and type(value) is hint:
        return _bounded(value, where) if hint is int else value
    if get_origin(hint) is Literal and value in get_args(hint):
        return value
    message = f"{where!r} has a value of another type than reports have"
    raise ValueError(message)


def _number(value: object, where: str) -> float:
    """Convert a JSON number; null means a value that is not finite."""
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounded(value, where)
    message = f"{where!r} is not a number"
    raise ValueError(message)


def _bounded(value: float, where: str) -> float:
    """Reject integers that exceed the range of floats."""
    try:
        float(value)
    except OverflowError as error:
        message = f"{where!r} is larger than any number of a report"
        raise ValueError(message) from error
    return value


_DIFFERENCE_PAGE_MOST: Final = 20_000
"""Maximum number of differences on a page, because browsers are slow with more."""


def diff_page(
    a: Path,
    b: Path,
    page: Path,
    *,
    tolerance: float,
    samples: int,
    outputs: Sequence[str],
    warn: Warn,
) -> ModelDifference:
    """Compare two models as ``diff`` does, and write a page with the differences."""
    first, second = (opened(model, (), warn) for model in (a, b))
    fetched = [first.tensor(name) for name in outputs or first.outputs]
    compared = diff(
        first.graph, second.graph, tolerance=tolerance, samples=samples, outputs=fetched, warn=warn
    )
    difference = replace(compared, a=str(a), b=str(b))
    write_bytes(page, render_page(_data(difference, [first.graph, second.graph])))
    return difference


def _data(difference: ModelDifference, graphs: Sequence[Graph]) -> dict[str, Any]:
    fields = difference.as_data()
    kinds = Counter(d.kind for d in difference.differences if d.kind in ("added", "removed"))
    changed = {d.name for d in difference.differences if d.kind not in kinds}
    counts = {"added": kinds["added"], "removed": kinds["removed"], "changed": len(changed)}
    return {
        "format": FORMAT,
        "recipe": f"{Path(difference.a).name} and {Path(difference.b).name}",
        "tool": TOOL,
        "targets": [],
        "difference": {
            **fields,
            "differences": fields["differences"][:_DIFFERENCE_PAGE_MOST],
            "counts": counts,
        },
        "graphs": [{**to_builtins(node_table(graph, {})), "weights": []} for graph in graphs],
        "ops": [sorted(Counter(node.op for node in graph).items()) for graph in graphs],
    }


_STORED_PAGES_HINT: Final = (
    "name a report.html, or a folder for outputs that has one; a build makes it"
)


def find_page(path: Path, recipe: str = "") -> Path:
    """Find the report page of a path.

    Args:
        path: a page, a target's directory or ``report.json``, a recipe's output directory, or its
            parent.
        recipe: name of the recipe, if the directory has several.

    Raises:
        CorruptFileError: the path has no page.
        UsageError: there are several pages.
    """
    if path.is_dir():
        return _in_folder(path, recipe)
    if path.name == REPORT and _is_target(path.parent):
        return _in_folder(path.parent, recipe)
    if path.suffix.lower() in (".html", ".htm") and path.is_file():
        return path
    message = "is not a report page, and not next to one"
    raise CorruptFileError(message, _STORED_PAGES_HINT, str(path))


def read_page(path: Path) -> dict[str, Any]:
    """Return the data of a page.

    Raises:
        CorruptFileError: the file is not a page.
    """
    try:
        return data_of_page(read_bytes(path, limit=LARGEST_PAGE))
    except (ValueError, RecursionError) as error:
        message = f"cannot be read as a page: {error}"
        raise CorruptFileError(message, _STORED_PAGES_HINT, str(path)) from error


def write_page(
    path: Path,
    data: Mapping[str, Any],
    targets: Sequence[str] = (),
    earlier: Mapping[str, Any] | None = None,
) -> None:
    """Write a page with data of another page.

    Args:
        path: path of the new page.
        data: data of the existing page.
        targets: names of targets to include; empty for all.
        earlier: data of an earlier page to compare with.
    """
    chosen = _only(data, targets)
    if earlier is not None and len(earlier["targets"]) > 1 and not _names(chosen) & _names(earlier):
        message = "the earlier build has none of these targets"
        raise UsageError(message, "name the page of the same recipe")
    write_bytes(path, render_page(chosen, compared=earlier))


def _only(data: Mapping[str, Any], targets: Sequence[str]) -> Mapping[str, Any]:
    chosen = [t for t in data["targets"] if not targets or t["name"] in targets]
    if not chosen:
        message = "no report is of such a target"
        raise UsageError(message, f"there are {', '.join(sorted(_names(data)))}")
    return {**data, "targets": chosen}


def _names(data: Mapping[str, Any]) -> set[str]:
    return {target["name"] for target in data["targets"]}


def _in_folder(folder: Path, recipe: str) -> Path:
    own = Path(os.path.realpath(folder)).parent / PAGE if _is_target(folder) else folder / PAGE
    if own.is_file():
        return own
    named = [folder / recipe / PAGE] if recipe else []
    pages = [p for p in (*named, *sorted(folder.glob(f"*/{PAGE}"))) if p.is_file()]
    if not pages:
        message = f"has no {PAGE}"
        raise CorruptFileError(message, _STORED_PAGES_HINT, str(folder))
    if len(set(pages)) > 1 and pages[0] not in named:
        message = f"{folder} has several pages"
        raise UsageError(message, f"name one: {', '.join(map(str, pages[:4]))}")
    return pages[0]


def _is_target(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()

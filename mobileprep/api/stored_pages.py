"""Pages that builds have left, found and read again; and pages beside those of other builds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mobileprep.api.pages import LARGEST_PAGE
from mobileprep.api.targets import REPORT
from mobileprep.core.files import read_bytes, write_bytes
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.pipeline.published import MANIFEST
from mobileprep.report.page.reading import data_of_page
from mobileprep.report.page.render import PAGE, render_page

_HINT: Final = "name a report.html, or a folder for outputs that has one; a build makes it"


def find_page(path: Path, recipe: str = "") -> Path:
    """The page of a file or a folder.

    Args:
        path: a page, the folder of a target or its ``report.json``, the folder of a recipe's
            outputs, or the one above it.
        recipe: the recipe's name, which says which page of an output folder is meant.

    Raises:
        CorruptFileError: there is none.
        UsageError: there are several, and nothing says which is meant.
    """
    if path.is_dir():
        return _in_folder(path, recipe)
    if path.name == REPORT and _is_target(path.parent):
        return _in_folder(path.parent, recipe)
    if path.suffix.lower() in (".html", ".htm") and path.is_file():
        return path
    message = "is neither a page of a build nor beside one"
    raise CorruptFileError(message, _HINT, str(path))


def read_page(path: Path) -> dict[str, Any]:
    """What a page tells.

    Raises:
        CorruptFileError: it is no page of a build, or of another version of mobileprep.
    """
    try:
        return data_of_page(read_bytes(path, limit=LARGEST_PAGE))
    except (ValueError, RecursionError) as error:
        message = f"cannot be read as a page: {error}"
        raise CorruptFileError(message, _HINT, str(path)) from error


def write_page(
    path: Path,
    data: Mapping[str, Any],
    targets: Sequence[str] = (),
    earlier: Mapping[str, Any] | None = None,
) -> None:
    """Write a page of what another page tells.

    Args:
        path: where to.
        data: what it tells.
        targets: the names of targets to tell of; all without any.
        earlier: what the page of another build tells, to compare it with.

    Raises:
        UsageError: there is no such target, or the earlier build has none of these.
        ArtifactError: it cannot be written.
    """
    chosen = _only(data, targets)
    if earlier is not None and len(earlier["targets"]) > 1 and not _names(chosen) & _names(earlier):
        message = "the earlier build has none of these targets"
        raise UsageError(message, "name the page of the same recipe")
    write_bytes(path, render_page(chosen, compared=earlier))


def _only(data: Mapping[str, Any], targets: Sequence[str]) -> Mapping[str, Any]:
    kept = [t for t in data["targets"] if not targets or t["name"] in targets]
    if not kept:
        message = "no report is of such a target"
        raise UsageError(message, f"there are {', '.join(sorted(_names(data)))}")
    return {**data, "targets": kept}


def _names(data: Mapping[str, Any]) -> set[str]:
    return {target["name"] for target in data["targets"]}


def _in_folder(folder: Path, recipe: str) -> Path:
    own = Path(os.path.realpath(folder)).parent / PAGE if _is_target(folder) else folder / PAGE
    if own.is_file():
        return own
    named = [folder / recipe / PAGE] if recipe else []
    found = [p for p in (*named, *sorted(folder.glob(f"*/{PAGE}"))) if p.is_file()]
    if not found:
        message = f"has no {PAGE}"
        raise CorruptFileError(message, _HINT, str(folder))
    if len(set(found)) > 1 and found[0] not in named:
        message = f"{folder} has several pages"
        raise UsageError(message, f"name one: {', '.join(map(str, found[:4]))}")
    return found[0]


def _is_target(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()

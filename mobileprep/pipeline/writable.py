"""Tells before any stage runs that what it makes could not be published."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from mobileprep.core.files import check_name, check_writable, file_inside, inside
from mobileprep.errors import ArtifactError
from mobileprep.pipeline.publish import made_of
from mobileprep.pipeline.published import MANIFEST, listed, manifest
from mobileprep.pipeline.state import State
from mobileprep.plan.spec import TargetPlan


def check_target(target: TargetPlan, names: Iterable[str], state: State, out: Path) -> None:
    """Make sure that the files of a target whose stages have yet to run can be written.

    A folder that stays as it is, as where stages run again and leave the same, need not be
    writable. It does not stay so for certain where its manifest is of other inputs or settings, or
    a file is missing.

    Args:
        target: the target's plan.
        names: the files that its folder is sure to get.
        state: the plan against a store.
        out: the output folder.

    Raises:
        ArtifactError: a file cannot be written.
        CorruptFileError: an input file is missing or unreadable.
    """
    folder = inside(out, target.folder)
    for name in names:
        check_name(file_inside(folder, name))
    # One that is not there is made in the recipe's folder, where the page is written too.
    if folder.is_dir() and not _may_stay(target, state, folder):
        check_writable(folder / MANIFEST)


def _may_stay(target: TargetPlan, state: State, folder: Path) -> bool:
    """Whether a folder is whole, and of the same inputs and settings."""
    found = manifest(folder)
    wanted = made_of(target, {file.name: state.digest(file) for file in target.sources})
    if not _told(wanted).items() <= _told(found).items():
        return False
    with contextlib.suppress(ArtifactError, OSError, ValueError):
        return all(file_inside(folder, name).is_file() for name in listed(folder))
    return False


def _told(data: dict[str, object]) -> dict[str, str]:
    """What a manifest tells, as text, which lists and tuples have alike."""
    return {key: json.dumps(value, sort_keys=True) for key, value in data.items()}

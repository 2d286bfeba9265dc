"""Which checkpoint a recipe names, where a state file names it in turn."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from mobileprep.building.plan.spec import Files
from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_files import CheckpointFiles, find_checkpoint, index_path


def named_checkpoint(named: Files) -> Path:
    """The path of a checkpoint that is among the files which the recipe names.

    A state file may name one elsewhere, whose changes no build would see: that of the same name
    beside the state file is then taken, as on machines that have no other.
    """
    found = find_checkpoint(named.root)
    if _is_of(named, found):
        return named.root
    beside = _folder(named.root) / found.prefix.name
    with contextlib.suppress(CorruptFileError):
        if _is_of(named, find_checkpoint(beside)):
            return beside
    message = f"names the checkpoint {str(found.prefix)!r}, which does not lie beside it"
    raise CorruptFileError(message, "name that by its prefix in the recipe", str(named.root))


def _is_of(named: Files, found: CheckpointFiles) -> bool:
    files = found.tables or (index_path(found.prefix),)
    return {*map(os.path.realpath, files)} <= {os.path.realpath(m.path) for m in named.members}


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent

"""What lies in the folder of a model: files, folders, and checkpoints, the newest first."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from mobileprep.errors import MobileprepError, NotDownloadedError
from mobileprep.formats.checkpoint_files import find_checkpoint
from mobileprep.formats.kinds import file_kind
from mobileprep.frozen import dataclass

# Entries that are looked at, so that a huge folder is not read for hours.
_LOOKED_AT: Final = 1000
_STEP: Final = re.compile(r"(\d+)\Z")
_SHARDS: Final = re.compile(r"-\d{5}-of-\d{5}\Z")
_INDEX: Final = ".index"


@dataclass(frozen=True)
class Entries:
    """The regular files and the folders in a folder, hidden ones left out, sorted by name."""

    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def entries_of(folder: Path) -> Entries:
    """What lies in a folder; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted(
                (e.name, e.is_dir(), e.is_file()) for e in entries if not e.name.startswith(".")
            )[:_LOOKED_AT]
    except (OSError, ValueError):
        return Entries()
    return Entries(
        tuple(folder / name for name, _, is_file in listed if is_file),
        tuple(folder / name for name, is_folder, _ in listed if is_folder),
    )


def prefixes_of(folder: Path, prefix: str = "") -> list[Path]:
    """The prefixes of the checkpoints in a folder, sorted.

    Args:
        folder: the folder.
        prefix: the only one that is asked for; empty for all.
    """
    found: dict[Path, None] = {}
    for path in entries_of(folder).files:
        if not path.name.startswith(prefix):
            continue
        try:
            kind = file_kind(path)
        except NotDownloadedError:
            # A prefix all the same: whoever opens it reports the pointer.
            kind = "checkpoint index" if path.name.endswith(_INDEX) else None
        except MobileprepError:
            continue
        if kind == "checkpoint index":
            found[path.with_name(path.name.removesuffix(_INDEX))] = None
        elif kind == "checkpoint table":
            found[path.with_name(_SHARDS.sub("", path.name))] = None
    return [p for p in found if not prefix or p.name == prefix]


def ranked_prefixes(folder: Path) -> list[Path]:
    """The prefixes of the checkpoints in a folder, the likeliest to be meant first.

    That which the state file names comes first, then those of the highest step.
    """
    prefixes = sorted(prefixes_of(folder), key=_step, reverse=True)
    try:
        newest = find_checkpoint(folder).prefix
    except MobileprepError:
        return prefixes
    return [newest, *(p for p in prefixes if p.name != newest.name)]


def _step(prefix: Path) -> tuple[int, str]:
    number = _STEP.search(prefix.name)
    return (int(number[1]) if number else -1, prefix.name)

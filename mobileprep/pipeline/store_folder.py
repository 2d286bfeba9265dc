"""Where the store of a user is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mobileprep.core.files import sha256_bytes
from mobileprep.errors import UsageError

FORMAT: Final = "v2"
"""The folder of what this version reads and writes."""


def default_folder() -> Path:
    """``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep``.

    Raises:
        UsageError: neither is known, as for a user of a container whom the system has no name for.
    """
    named = os.environ.get("MOBILEPREP_CACHE")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache" / "mobileprep"
    except RuntimeError as error:
        message = "the user has no home folder, which the store would be in"
        raise UsageError(message, "set MOBILEPREP_CACHE to a folder for the store") from error


def index_file(store: Path, out: Path) -> Path:
    """Where a store's folder has the index of files of builds into an output folder."""
    return store / "seen" / f"{sha256_bytes(os.fsencode(os.path.realpath(out)))}.json"

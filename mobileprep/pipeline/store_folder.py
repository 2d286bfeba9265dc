"""Where the store of a user is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mobileprep.fsio import sha256_bytes

FORMAT: Final = "v2"
"""The folder of what this version reads and writes."""


def default_folder() -> Path:
    """``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep``."""
    named = os.environ.get("MOBILEPREP_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "mobileprep"


def index_file(store: Path, out: Path) -> Path:
    """Where a store's folder has the index of files of builds into an output folder."""
    return store / "seen" / f"{sha256_bytes(os.fsencode(os.path.realpath(out)))}.json"

"""Makes room in a store where something else has taken the place of a file or a folder of it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

_TRIES: Final = 3


def clear_way(path: Path, top: Path) -> None:
    """Remove what keeps a file from being written: at its place, and above it below ``top``.

    Files and links at the place itself stay, since writing replaces them.
    """
    for left in reversed(range(_TRIES)):
        try:
            _clear(path, top)
        except (FileNotFoundError, NotADirectoryError):
            # Another build, or thread, clears the same way.
            if not left:
                raise
        else:
            return


def _clear(path: Path, top: Path) -> None:
    for above in reversed(path.relative_to(top).parents[:-1]):
        if os.path.lexists(top / above) and not (top / above).is_dir():
            (top / above).unlink()
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        path.unlink()

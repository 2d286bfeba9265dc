"""Whether a build has nothing to do, told before anything that reads recipes is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mobileprep import __version__
from mobileprep.building.pipeline.cache_files import FORMAT, default_folder, index_file, mark_used
from mobileprep.building.pipeline.unchanged import Unchanged, load_note
from mobileprep.core.files import canonical, sha256_bytes
from mobileprep.core.frozen import dataclass

# What shells set anew for each command, and what of Python's own decides nothing here.
_PASSING: Final = frozenset(
    ("_", "SHLVL", "OLDPWD", "COLUMNS", "LINES", "PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST")
)


@dataclass(frozen=True)
class Request:
    """What a build is asked for, as far as it decides what is built.

    Args:
        out: the output folder.
        targets: the names of targets; none for all.
        key: a digest of all that decides a build beside files.
    """

    out: str
    targets: tuple[str, ...]
    key: str


def request_of(
    recipes: Sequence[str], out: str, targets: Sequence[str], settings: Mapping[str, str]
) -> Request:
    """What a build is asked for here and now.

    Recipes may name any variable of the environment, so all count. What is installed shows in the
    folders that hold it.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    environ = {name: text for name, text in os.environ.items() if name not in _PASSING}
    parts = [
        *(__version__, sys.version, sys.executable, user, os.getcwd()),  # noqa: PTH109 - text
        *(list(recipes), out, list(targets), dict(settings)),
        *(environ, [_installed(path) for path in sys.path]),
    ]
    return Request(out, tuple(targets), sha256_bytes(canonical(parts).encode()))


def noted(request: Request) -> Unchanged | None:
    """The note of a build that was asked for the same and had nothing to do."""
    return load_note(store_folder(), request.key)


def use(note: Unchanged, request: Request) -> None:
    """Note that a build used what the store has, though it ran nothing."""
    note.mark_used()
    mark_used(index_file(store_folder(), Path(request.out)))


def store_folder() -> Path:
    """Where notes are kept."""
    return default_folder().absolute() / FORMAT


def _installed(path: str) -> list[object]:
    try:
        found = os.stat(path or ".")  # noqa: PTH116 - of each folder that modules come from
    except OSError:
        return [path]
    return [path, found.st_ino, found.st_mtime_ns]

"""The folders that stages write to: named after their process, and removed when it has gone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from functools import lru_cache
from pathlib import Path

_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{12})-([0-9]{1,20})-[0-9a-f]{16}")
# What a process of another machine or of an earlier boot left is told by its age alone.
_ABANDONED_SECONDS = 24 * 3600
_PROC = Path("/proc")
_UNKNOWN = "0" * 12


def workspace_name() -> str:
    """A new name that tells which process it belongs to: number, system, start, and chance."""
    return f"{_process(os.getpid())}-{os.urandom(8).hex()}"


def sweep(folder: Path) -> int:
    """Remove the workspaces of a folder that no process works in, and count them.

    Several processes may do so at once. What cannot be removed stays.
    """
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return 0
    return sum(_remove(path) for path in found if _is_left(path))


def _is_left(path: Path) -> bool:
    name = _NAME.fullmatch(path.name)
    if name is not None and name[2] == _system() != _UNKNOWN:
        return _started(int(name[1])) != int(name[3])
    # A process of another container or machine may be at work: only what rests is left.
    try:
        inside = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
        changed = max(each.lstat().st_mtime for each in (path, *inside))
    except OSError:
        return False  # it is being worked in, or removed
    # Of a time that is yet to come nothing is known, but that it was not noted of late.
    return abs(time.time() - changed) > _ABANDONED_SECONDS


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


@lru_cache(maxsize=1)
def _process(pid: int) -> str:
    """What the names of this process begin with; one that was forked has another number."""
    return f"{pid}-{_system()}-{_started(pid) or 0}"


@lru_cache(maxsize=1)
def _system() -> str:
    """A digest of this boot of this machine, and of the container: where process numbers hold."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes()
        container = os.fsencode((_PROC / "self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(boot + container).hexdigest()[: len(_UNKNOWN)]


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is none."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])  # the 22nd field of proc(5); a program's name may hold anything
    except (OSError, ValueError, IndexError):
        return None

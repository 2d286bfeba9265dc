"""What builds do for their store: say that they use it, clear up, keep it within its bound."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from mobileprep.core.files import read_file, write_bytes
from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.eviction import References, evict, forget_notes, remove_unfinished
from mobileprep.pipeline.store_lock import Release, alone, share
from mobileprep.pipeline.workspaces import sweep
from mobileprep.recipe.units import parse_bytes

MAX_VARIABLE: Final = "MOBILEPREP_CACHE_MAX"
DEFAULT_MAX: Final = 20 * 10**9
"""The bytes that a store may take where nothing else is said."""
_UNBOUNDED: Final = "none"
_MOST_NOTE: Final = 1 << 20
# Neither a link is followed nor a pipe waited for.
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_COUNTED_SECONDS: Final = 24 * 3600
# What was used within an hour stays: a store that is over its bound with that is not counted again
# by every build.
_PAUSE_SECONDS: Final = 600
# Cleared a little further than the bound, so that not every build has to.
_ROOM: Final = 0.9


def store_bound(environ: Mapping[str, str]) -> int | None:
    """The bytes that a store may take, None for any number: ``MOBILEPREP_CACHE_MAX``, or 20 GB.

    Raises:
        UsageError: the variable holds no size.
    """
    named = environ.get(MAX_VARIABLE, "").strip()
    if not named:
        return DEFAULT_MAX
    return None if named.lower() == _UNBOUNDED else bound_of(named, MAX_VARIABLE)


def bound_of(text: str, where: str) -> int:
    """A size as it is written, ``5GB`` or ``500 MiB``.

    Raises:
        UsageError: it is none.
    """
    found = parse_bytes(text)
    if found is None:
        message = f"{text!r} is no size"
        hint = "write a number with KB, MB, GB or TB, such as 5GB"
        hint += f", or {_UNBOUNDED}" if where == MAX_VARIABLE else ""
        raise UsageError(message, hint, where)
    return found


@dataclass(frozen=True)
class _Note:
    """How many bytes a store holds, and when that was last counted, in seconds since 1970."""

    bytes: int
    counted: float


class Upkeep:
    """What one run does for its store.

    Args:
        folder: the store's folder, with ``cas``, ``ac`` and ``tmp``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._release: Release | None = None
        self._found_empty = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Say that this run uses the store; removes what processes have left that are gone."""
        with self._lock:
            if self._release is None:
                self._release = share(self._folder)
                kinds = (self._folder / kind for kind in ("cas", "ac"))
                self._found_empty = not any(folder.exists() for folder in kinds)
                sweep(self._folder / "tmp")

    def end(self, limit: int | None, written: int, references: References) -> None:
        """This run uses the store no more; where it is over its bound, it is cleared.

        What fails here fails no build: the next one tries again.

        Args:
            limit: how many bytes it may take, None for any number.
            written: how many bytes this run has added.
            references: what a record needs, see ``evict``.
        """
        with self._lock:
            if self._release is None:
                return
            if limit is not None and written:
                self._add(written)
            self._release()
            self._release = None
        if limit is not None:
            with contextlib.suppress(CorruptFileError, ArtifactError):
                self._bound(limit, references)

    def counted(self, total: int) -> None:
        """Note how many bytes the store has been found to hold; the caller has it alone.

        Raises:
            ArtifactError: the store cannot be written.
        """
        write_bytes(self._note, _note_line(total), follow=False)

    def _add(self, written: int) -> None:
        """Note what this run has added, while it still shares the store: nobody counts meanwhile.

        A line at the end for each run, so that of runs that end at once none is lost. A store that
        began empty need not be counted; any other without a note is.
        """
        with contextlib.suppress(OSError):
            if self._found_empty:
                with contextlib.suppress(FileExistsError):
                    self._append(_note_line(0), os.O_CREAT | os.O_EXCL)
            self._append(f"{written}\n".encode())

    def _append(self, line: bytes, flags: int = 0) -> None:
        descriptor = os.open(self._note, os.O_WRONLY | os.O_APPEND | _PLAIN | flags, 0o666)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _bound(self, limit: int, references: References) -> None:
        note = self._noted()
        if note is not None:
            age = time.time() - note.counted
            if 0 <= age < (_PAUSE_SECONDS if note.bytes > limit else _COUNTED_SECONDS):
                return
        is_over = note is not None and note.bytes > limit
        # Another build may go on for hours; the last one to end finds it still over its bound.
        with alone(self._folder, wait=False, tell=_nobody):
            remove_unfinished(self._folder)
            forget_notes(self._folder, limit)
            done = evict(self._folder, int(limit * _ROOM) if is_over else limit, references)
            self.counted(done.left_bytes)

    def _noted(self) -> _Note | None:
        try:
            counted, *added = read_file(self._note, limit=_MOST_NOTE).splitlines()
            data = json.loads(counted)
            return _Note(int(data["bytes"]) + sum(map(int, added)), float(data["counted"]))
        except (CorruptFileError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @property
    def _note(self) -> Path:
        return self._folder / "size.json"


def _note_line(total: int) -> bytes:
    return f"{json.dumps(asdict(_Note(total, time.time())))}\n".encode()


def _nobody(sentence: str) -> None:
    """Tells nothing."""

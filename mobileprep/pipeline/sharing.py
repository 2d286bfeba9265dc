"""What a store takes from a remote one, and what it sends there while a build goes on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.formats.parts import Part
from mobileprep.pipeline.remote.base import Kind, Remote
from mobileprep.pipeline.remote.guarded import Offered, Wanted, fetch_many, has_many, send_many
from mobileprep.pipeline.workspaces import workspace_name

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Sharing:
    """A remote store beside a local one.

    Args:
        remote: the remote store.
        folder: the local store's; what is on its way lies below ``tmp`` there.
    """

    def __init__(self, remote: Remote, folder: Path) -> None:
        self._remote = remote
        self._folder = folder
        self._sender: ThreadPoolExecutor | None = None
        self._sent: list[Future[object]] = []
        self._lock = threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong so far."""
        return self._remote.warnings

    @contextlib.contextmanager
    def record(self, key: str, limit: int) -> Iterator[Path | None]:
        """A record's bytes in a file that goes at the end of the context; None where there is none.

        What it says is for the caller to check. One of more bytes than ``limit`` is none.
        """
        with self._fetched([("ac", key, limit)]) as (file,):
            yield file

    @contextlib.contextmanager
    def objects(self, parts: Iterable[Part]) -> Iterator[list[Path | None]]:
        """Objects in files that go at the end of the context, unless they were moved.

        Their bytes are those of their digests.
        """
        with self._fetched([("cas", part.sha256, part.size) for part in parts]) as files:
            yield files

    def has(self, parts: Iterable[Part]) -> list[bool]:
        """Which of some objects the remote store says that it has, in their order."""
        return has_many(self._remote, [("cas", part.sha256, part.size) for part in parts])

    def send(self, key: str, record: Path, objects: Iterable[tuple[str, Path]]) -> None:
        """Send what a stage has left, in the background: its objects, then its record."""
        offered = [Offered("cas", sha256, path) for sha256, path in objects]
        offered.append(Offered("ac", key, record))
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        with self._lock:
            if self._sender is None:
                self._sender = ThreadPoolExecutor(1, thread_name_prefix="mobileprep-share")
            self._sent.append(self._sender.submit(send_many, self._remote, offered))

    def finish(self) -> None:
        """Wait until all is sent."""
        with self._lock:
            sent, self._sent = self._sent, []
        for one in sent:
            one.result()
        self._stop_sender()

    def stop(self) -> None:
        """Wait for nothing more, and break off what is on its way."""
        self._stop_sender()
        self._remote.stop()

    def _stop_sender(self) -> None:
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def _fetched(self, entries: list[tuple[Kind, str, int]]) -> Iterator[list[Path | None]]:
        folder = self._folder / "tmp"
        wanted = [
            Wanted(kind, key, folder / workspace_name(), limit) for kind, key, limit in entries
        ]
        try:
            # A store that cannot be written has nothing of the remote one, and says so itself.
            found = [False] * len(wanted)
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                found = fetch_many(self._remote, wanted)
            yield [w.target if ok else None for w, ok in zip(wanted, found, strict=True)]
        finally:
            for one in wanted:
                with contextlib.suppress(OSError):
                    os.unlink(one.target)  # noqa: PTH108 - it may have been moved

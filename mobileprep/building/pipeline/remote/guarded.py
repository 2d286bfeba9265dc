"""A remote cache that treats every failure as a missing entry."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from mobileprep.building.pipeline.output import workspace_name
from mobileprep.building.pipeline.remote.base import (
    Backend,
    Kind,
    LocalError,
    RemoteError,
    Sink,
    TimeLeft,
    TooLongError,
    entry_name,
    file_size,
)
from mobileprep.building.pipeline.remote.settings import (
    CA,
    FOLDER,
    HTTP,
    OBJECT_STORES,
    RemoteSettings,
)
from mobileprep.core.parallel import at_once
from mobileprep.errors import UnsupportedError, UsageError
from mobileprep.formats.parts import Part

_TRIES = 3
FIRST_PAUSE = 0.1
# Number of consecutive failures, and total lost time, after which the cache is disabled.
_MOST_FAILURES = 3
_MOST_SECONDS_LOST = 20.0
# Allowed latency of a response, apart from its transfer time; valid responses may be slow too.
_QUICK_SECONDS = 0.5


class Remote:
    """A thread-safe remote cache with retries. No method raises errors for remote problems.

    It disables itself for the rest of the build after too many failures in a row, too much lost
    time, or if the cache is unusable. Slow responses count as lost time even if they are correct.

    Args:
        settings: settings of the remote cache.
        connect: creates the backend on first use.
    """

    def __init__(self, settings: RemoteSettings, connect: Callable[[], Backend]) -> None:
        self._named = f"the remote store {settings.url}"
        self._connect = connect
        self._backend: Backend | None = None
        self._warnings = dict.fromkeys(f"{self._named}: {note}" for note in settings.notes)
        self._lock = threading.Lock()
        self._off = threading.Event()
        self._is_read_only = settings.read_only
        self._failures = 0
        self._seconds_lost = 0.0
        self._counted_until = 0.0
        # Entries with wrong content, which count as missing until they are uploaded again.
        self._known_wrong: set[str] = set()
        self._sent: set[str] = set()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The distinct warnings so far, one sentence each."""
        with self._lock:
            return tuple(self._warnings)

    def fetch(self, kind: Kind, key: str, target: Path, *, limit: int) -> bool:
        """Download an entry to the new file ``target``; return False on failure.

        Objects are verified against their digest. The caller must validate records. On failure,
        ``target`` does not exist.

        Args:
            kind: ``cas`` for objects by digest, ``ac`` for records by fingerprint.
            key: digest or fingerprint.
            target: file to create.
            limit: maximum number of bytes.
        """
        name = self._believed(kind, key)
        done = name is not None and self._guarded(
            lambda backend, time_left: self._fetch(backend, name, target, limit, time_left)
        )
        if not done:
            with contextlib.suppress(OSError):
                target.unlink()
        return done

    def has(self, kind: Kind, key: str, size: int | None = None) -> bool:
        """Return whether the cache reports an entry, of this size if both sides know it."""
        name = self._believed(kind, key)
        return name is not None and self._guarded(
            lambda backend, time_left: backend.has(name, size, time_left)
        )

    def send(self, kind: Kind, key: str, source: Path) -> bool:
        """Upload a file; return False if the cache is read-only or the upload fails.

        Objects that already exist are not uploaded again; records are.
        """
        name = entry_name(kind, key)
        if name is None or self._is_read_only:
            return False
        return self._guarded(
            lambda backend, time_left: self._send(backend, name, source, time_left)
        )

    def stop(self) -> None:
        """Start no transfers from now on, and end pauses before retries."""
        self._off.set()

    def _believed(self, kind: Kind, key: str) -> str | None:
        """Return an entry's name, or None if it is invalid or had wrong content in this build."""
        name = entry_name(kind, key)
        return None if name in self._known_wrong else name

    def _fetch(
        self, backend: Backend, name: str, target: Path, limit: int, time_left: TimeLeft
    ) -> bool:
        try:
            with target.open("wb") as stream:
                sink = Sink(stream, limit, time_left)
                if not backend.read(name, sink):
                    return False
        except OSError as error:
            raise LocalError(error.strerror or str(error)) from error
        except TooLongError:
            problem = "has entries that are longer than they can be"
        else:
            if not name.startswith("cas/") or name == f"cas/{sink.sha256}":
                return True
            problem = "gives wrong bytes, which were not used"
        self._known_wrong.add(name)
        self._warn(f"{self._named} {problem}")
        return False

    def _send(self, backend: Backend, name: str, source: Path, time_left: TimeLeft) -> bool:
        size = file_size(source)
        is_object = name.startswith("cas/") and name not in self._known_wrong
        if is_object and (name in self._sent or backend.has(name, size, time_left)):
            return True
        backend.write(name, source, time_left)
        self._known_wrong.discard(name)
        self._sent.add(name)
        return True

    def _guarded(self, work: Callable[[Backend, TimeLeft], bool]) -> bool:
        """Run an operation with retries; return False if it fails."""
        started = time.monotonic()
        for tried in range(1, _TRIES + 1):
            if self._off.is_set():
                return False
            time_left = TimeLeft()
            try:
                done = work(self._connected(), time_left)
            except LocalError as error:
                self._warn(f"something could not be exchanged with {self._named}: {error}")
                return False
            except RemoteError as error:
                self._count_lost_time(started)
                if not error.again or tried == _TRIES or self._costs_too_long(error.after):
                    self._count_failure(error)
                    return False
                # Longer each time, as long as the server requests, and randomized so that machines
                # that build at the same time do not retry at the same time.
                pause = FIRST_PAUSE * 2**tried * random.uniform(0.5, 1.0)
                self._off.wait(error.after + pause)
            else:
                self._failures = 0
                self._count_lost_time(started + _QUICK_SECONDS + time_left.transfer_seconds)
                if self._costs_too_long():
                    self._end("is too slow")
                return done
        return False

    def _connected(self) -> Backend:
        with self._lock:
            if self._backend is None:
                self._backend = self._connect()
            return self._backend

    def _costs_too_long(self, more: float = 0.0) -> bool:
        return self._seconds_lost + more > _MOST_SECONDS_LOST

    def _count_lost_time(self, since: float) -> None:
        """Add the time since ``since`` to the lost time; count parallel operations only once."""
        now = time.monotonic()
        with self._lock:
            lost = now - max(since, self._counted_until)
            if lost > 0:
                self._seconds_lost += lost
                self._counted_until = now

    def _count_failure(self, error: RemoteError) -> None:
        """Warn about a failure, and disable uploads or the whole cache if necessary."""
        with self._lock:
            self._failures += 1
        is_last = self._failures >= _MOST_FAILURES or self._costs_too_long(error.after)
        if error.ends == "all" or is_last:
            self._end(error.message)
        elif not self._off.is_set():
            self._is_read_only |= error.ends == "sending"
            consequence = "; nothing more is sent to it" if error.ends == "sending" else ""
            self._warn(f"{self._named} {error.message}{consequence}")

    def _end(self, message: str) -> None:
        """Disable the cache with a warning, unless that has happened before."""
        with self._lock:
            is_first = not self._off.is_set()
            self._off.set()
        if is_first:
            self._warn(f"{self._named} {message}; building without it")

    def _warn(self, text: str) -> None:
        with self._lock:
            self._warnings.setdefault(text)


_THREADS: Final = 8


class Sharing:
    """A remote cache that complements a local one.

    Args:
        remote: remote cache.
        folder: directory of the local cache; transfers use its ``tmp`` directory.
    """

    def __init__(self, remote: Remote, folder: Path) -> None:
        self._remote = remote
        self._folder = folder / "tmp"
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="mobileprep-share")
        self._sent: list[Future[None]] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._remote.warnings

    @contextlib.contextmanager
    def fetched(
        self, kind: Kind, entries: Iterable[tuple[str, int]]
    ) -> Iterator[list[Path | None]]:
        """Provide entries as temporary files, which are removed at the end unless they were moved.

        An entry is None if it does not exist, is larger than its limit, or could not be downloaded.
        Objects match their digests; the content of records is not validated.

        Args:
            entries: key and limit of each entry in bytes.
        """
        targets = [(*entry, self._folder / workspace_name()) for entry in entries]

        def fetch(entry: tuple[str, int, Path]) -> Path | None:
            key, limit, target = entry
            return target if self._remote.fetch(kind, key, target, limit=limit) else None

        try:
            # If the local cache is not writable, fetch nothing; the cache itself reports that.
            files: list[Path | None] = [None] * len(targets)
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                files = at_once(fetch, targets, _THREADS)
            yield files
        finally:
            for *_, target in targets:
                with contextlib.suppress(OSError):
                    os.unlink(target)  # noqa: PTH108 - it may have been moved

    def has(self, parts: Sequence[Part]) -> list[bool]:
        """Return for each object whether the remote cache reports that it exists."""
        return at_once(lambda p: self._remote.has("cas", p.sha256, p.size), parts, _THREADS)

    def send(self, key: str, record: Path, objects: Sequence[tuple[str, Path]]) -> None:
        """Upload the objects of a stage and then its record, in the background."""
        self._sent.append(self._sender.submit(self._send, key, record, objects))

    def finish(self) -> None:
        """Wait for all uploads."""
        for one in self._sent:
            one.result()

    def stop(self) -> None:
        """Cancel all transfers."""
        for one in self._sent:
            one.cancel()
        self._remote.stop()

    def _send(self, key: str, record: Path, objects: Sequence[tuple[str, Path]]) -> None:
        """Upload the record only after all objects, so that no machine finds it incomplete."""
        if all(at_once(lambda entry: self._remote.send("cas", *entry), objects, _THREADS)):
            self._remote.send("ac", key, record)


# Modules that each extra installs; HTTP needs "remote".
_LIBRARIES = {
    "remote": ("urllib3",),
    "s3": ("fsspec", "s3fs"),
    "gcs": ("fsspec", "gcsfs"),
    "azure": ("fsspec", "adlfs"),
}


def open_remote(settings: RemoteSettings | None) -> Remote | None:
    """Create the remote cache for some settings, if there are any. It connects on first use.

    Raises:
        UnsupportedError: a required library is not installed.
        UsageError: the certificate file is invalid.
    """
    if settings is None:
        return None
    scheme = urlsplit(settings.url).scheme
    if scheme != FOLDER:
        _check_installed("remote" if scheme in HTTP else OBJECT_STORES[scheme], settings.url)
    if settings.ca_file is not None:
        _check_certificates(settings.ca_file)
    return Remote(settings, lambda: _backend(settings, scheme))


def _check_installed(extra: str, url: str) -> None:
    for library in _LIBRARIES[extra]:
        if find_spec(library) is None:
            message = f"the remote store needs {library}, which is not installed"
            raise UnsupportedError(message, f"pip install 'mobileprep[{extra}]'", url)


def _check_certificates(file: Path) -> None:
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:  # includes ssl.SSLError
        message = f"{file} holds no certificates that can be read: {error.strerror or error}"
        raise UsageError(message, "name a file of certificates in PEM form", CA) from error


def _backend(settings: RemoteSettings, scheme: str) -> Backend:
    if scheme in HTTP:
        from mobileprep.building.pipeline.remote.http import HttpBackend

        return HttpBackend(settings)
    if scheme == FOLDER:
        from mobileprep.building.pipeline.remote.object_store import FolderBackend

        return FolderBackend(Path(unquote(urlsplit(settings.url).path)))
    from mobileprep.building.pipeline.remote.object_store import ObjectStoreBackend

    return ObjectStoreBackend(settings.url)

"""A remote cache that treats every failure as a missing entry."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from mobileprep.building.pipeline.remote.base import (
    Backend,
    Ends,
    Kind,
    LocalError,
    Remote,
    RemoteError,
    Sink,
    TimeLeft,
    TooLongError,
    WrongBytesError,
    entry_name,
    file_size,
    seconds_for,
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

_TRIES = 3
_FIRST_PAUSE = 0.1
# Number of consecutive failures, and total lost time, after which the cache is disabled.
_MOST_IN_A_ROW = 3
_MOST_SECONDS_LOST = 20.0
# Allowed latency of a response, apart from its transfer time; valid responses may be slow too.
_QUICK_SECONDS = 0.5


class _Done(NamedTuple):
    """The result of a successful operation, and the number of transferred bytes."""

    answer: bool
    size: int = 0


class GuardedRemote:
    """A thread-safe ``Remote`` with retries.

    It disables the cache for the rest of the build after too many failures, too much lost time, or
    if the cache is unusable. Slow responses count as lost time even if they are correct.

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
        # After too many wrong results, the cache is no longer read, but uploads may still repair
        # it.
        self._is_doubted = False
        self._in_a_row = {"taking": 0, "sending": 0}
        self._seconds_lost = 0.0
        self._counted_until = 0.0
        self._known_wrong: set[str] = set()
        self._sent: set[str] = set()

    @property
    def warnings(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._warnings)

    def fetch(self, kind: Kind, key: str, target: Path, *, limit: int) -> bool:
        name = self._believed(kind, key)
        done = name is not None and self._guarded(
            lambda backend: self._fetch(backend, name, target, limit)
        )
        if not done:
            with contextlib.suppress(OSError):
                target.unlink()
        return done

    def has(self, kind: Kind, key: str, size: int | None = None) -> bool:
        name = self._believed(kind, key)
        return name is not None and self._guarded(lambda backend: self._has(backend, name, size))

    def send(self, kind: Kind, key: str, source: Path) -> bool:
        name = entry_name(kind, key)
        if name is None or self._is_read_only:
            return False
        return self._guarded(lambda backend: self._send(backend, name, source), "sending")

    def stop(self) -> None:
        self._off.set()
        backend = self._backend
        if backend is not None:
            backend.break_off()

    def _believed(self, kind: Kind, key: str) -> str | None:
        """Return an entry's name, or None if it is invalid or had wrong content in this build."""
        name = entry_name(kind, key)
        return None if name in self._known_wrong else name

    def _fetch(self, backend: Backend, name: str, target: Path, limit: int) -> _Done:
        try:
            with target.open("wb") as stream:
                sink = Sink(stream, limit, self._time_left())
                if not backend.read(name, sink):
                    return _Done(False)
        except OSError as error:
            raise LocalError(error.strerror or str(error)) from error
        except TooLongError:
            self._known_wrong.add(name)
            message = "has entries that are longer than they can be"
            raise WrongBytesError(message) from None
        if name.startswith("cas/") and name != f"cas/{sink.sha256}":
            self._known_wrong.add(name)
            message = "gives wrong bytes, which were not used"
            raise WrongBytesError(message)
        return _Done(True, sink.size)

    def _has(self, backend: Backend, name: str, size: int | None) -> _Done:
        return _Done(backend.has(name, size, self._time_left()))

    def _send(self, backend: Backend, name: str, source: Path) -> _Done:
        size = file_size(source)
        if name.startswith("cas/") and self._is_there(backend, name, size):
            return _Done(True)
        backend.write(name, source, self._time_left())
        self._known_wrong.discard(name)
        self._sent.add(name)
        return _Done(True, size)

    def _is_there(self, backend: Backend, name: str, size: int) -> bool:
        """Return whether an object need not be uploaded; do not ask a cache with wrong content."""
        if name in self._known_wrong:
            return False
        return name in self._sent or (
            not self._is_doubted and backend.has(name, size, self._time_left())
        )

    def _guarded(self, work: Callable[[Backend], _Done], way: str = "taking") -> bool:
        """Run an operation with retries; return False if it fails."""
        for tried in range(1, _TRIES + 1):
            if self._off.is_set() or (self._is_read_only if way == "sending" else self._is_doubted):
                return False
            started = time.monotonic()
            try:
                done = work(self._connected())
            except LocalError as error:
                self._warn(f"something could not be exchanged with {self._named}: {error}")
                return False
            except RemoteError as error:
                self._lost(started)
                if not error.again or tried == _TRIES or self._costs_too_long(error.after):
                    self._failed(error, way)
                    return False
                self._pause(tried, error.after)
            else:
                self._went_well(done, way, started)
                return done.answer
        return False

    def _pause(self, tried: int, requested: float) -> None:
        """Wait before a retry: longer each time, and as long as the server requests."""
        started = time.monotonic()
        # Randomized so that machines that build at the same time do not retry at the same time.
        self._off.wait(requested + _FIRST_PAUSE * 2**tried * random.uniform(0.5, 1.0))
        if requested:
            self._lost(started)

    def _connected(self) -> Backend:
        with self._lock:
            if self._backend is None:
                self._backend = self._connect()
            return self._backend

    def _time_left(self) -> TimeLeft:
        """Return the time budget of the next operation."""
        return TimeLeft(_MOST_SECONDS_LOST - self._seconds_lost + _QUICK_SECONDS)

    def _costs_too_long(self, more: float = 0.0) -> bool:
        return self._seconds_lost + more > _MOST_SECONDS_LOST

    def _lost(self, since: float) -> None:
        """Add the time since ``since`` to the lost time; count parallel operations only once."""
        now = time.monotonic()
        with self._lock:
            self._seconds_lost += max(0.0, now - max(since, self._counted_until))
            self._counted_until = max(now, self._counted_until)

    def _went_well(self, done: _Done, way: str, started: float) -> None:
        self._in_a_row[way] = 0
        due = started + _QUICK_SECONDS + seconds_for(done.size)
        if time.monotonic() <= due:
            return
        self._lost(due)
        if self._costs_too_long():
            self._end("all", "is too slow")

    def _failed(self, error: RemoteError, way: str) -> None:
        """Record a failure, and disable operations if necessary."""
        with self._lock:
            self._in_a_row[way] += 1
            often = self._in_a_row[way] >= _MOST_IN_A_ROW
        ends: Ends = error.ends
        if self._costs_too_long(error.after):
            ends = "all"
        elif often and isinstance(error, WrongBytesError):
            ends = "taking"
        elif often and way == "taking":
            ends = "all"
        elif often and ends == "nothing":
            ends = "sending"
        self._end(ends, error.message)

    def _end(self, ends: Ends, message: str) -> None:
        """Warn about a failure, and disable the given operations."""
        with self._lock:
            if self._off.is_set():
                return
            if ends == "taking" and self._is_read_only:
                ends = "all"
            if ends == "all":
                self._off.set()
            self._is_read_only = self._is_read_only or ends == "sending"
            self._is_doubted = self._is_doubted or ends == "taking"
        self._warn(f"{self._named} {message}{_AFTER[ends]}")

    def _warn(self, text: str) -> None:
        with self._lock:
            self._warnings.setdefault(text)


_AFTER: dict[Ends, str] = {
    "nothing": "",
    "taking": "; it is not read any more",
    "sending": "; nothing more is sent to it",
    "all": "; building without it",
}


THREADS: Final = 8


class Wanted(NamedTuple):
    """An entry to download; see ``Remote.fetch``."""

    kind: Kind
    key: str
    target: Path
    limit: int


class Offered(NamedTuple):
    """A file to upload; see ``Remote.send``."""

    kind: Kind
    key: str
    source: Path


def fetch_many(remote: Remote, requests: Iterable[Wanted]) -> list[bool]:
    """Download entries in parallel; return for each whether it succeeded."""

    def fetch(entry: Wanted) -> bool:
        return remote.fetch(entry.kind, entry.key, entry.target, limit=entry.limit)

    return at_once(fetch, list(requests), THREADS)


def has_many(remote: Remote, entries: Iterable[tuple[Kind, str, int | None]]) -> list[bool]:
    """Return for each entry whether the cache reports that it exists."""
    return at_once(lambda entry: remote.has(*entry), list(entries), THREADS)


def send_many(remote: Remote, offered: Iterable[Offered]) -> list[bool]:
    """Upload files in parallel; return for each whether it is in the cache afterwards.

    Records follow their objects, so that no machine finds an incomplete record. If an object fails,
    no record is uploaded.
    """

    def send(entry: Offered) -> bool:
        return remote.send(*entry)

    listed = list(offered)
    objects = [entry for entry in listed if entry.kind == "cas"]
    sent = dict(zip(objects, at_once(send, objects, THREADS), strict=True))
    records = [entry for entry in listed if entry.kind == "ac"] if all(sent.values()) else []
    sent |= zip(records, at_once(send, records, THREADS), strict=True)
    return [sent.get(entry, False) for entry in listed]


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
    return GuardedRemote(settings, lambda: _backend(settings, scheme))


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

"""Object stores (``s3://``, ``gs://``, ``az://``) through fsspec, and directories."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from mobileprep.building.pipeline.remote.base import (
    CONNECT_SECONDS,
    SILENT_SECONDS,
    LocalError,
    RemoteError,
    Sink,
    TimeLeft,
    TooLongError,
    file_blocks,
    file_size,
)
from mobileprep.core.files import atomic_writer
from mobileprep.core.parallel import start_all
from mobileprep.core.paths import opened_file
from mobileprep.errors import ArtifactError

_BLOCK = 1 << 20
_RANGE = 8 << 20
# Without log handlers, their messages go to stderr with tracebacks and possibly secrets.
_LOGGERS: Final = ("adlfs", "aiobotocore", "asyncio", "azure", "fsspec", "gcsfs", "google", "s3fs")
_REFUSED: Final = (401, 403)
_WRONGLY_SET_UP: Final = (
    "ConfigNotFound",
    "ConfigParseError",
    "InvalidRegionError",
    "NoRegionError",
    "ProfileNotFound",
)
_UNREACHED: Final = ("ClientConnectorError", "EndpointConnectionError", "ProxyConnectionError")
# The caller retries for all kinds of caches alike.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": SILENT_SECONDS,
            "retries": {"total_max_attempts": 1},
        }
    }
}


class ObjectStoreBackend:
    """A cache below a prefix of a bucket."""

    def __init__(self, url: str) -> None:
        _silence()
        parts = urlsplit(url)
        self._base = f"{parts.netloc}{parts.path}".rstrip("/")
        try:
            # Some libraries query metadata servers for credentials, which may not exist, with many
            # retries.
            files = start_all(_file_system, [parts.scheme])[parts.scheme]
            self._files: Any = files.result(SILENT_SECONDS)
        except TimeoutError as error:
            message = "takes too long to be signed in to"
            raise RemoteError(message, ends="all") from error
        except ImportError as error:
            message = f"needs a library that cannot be loaded ({error.name})"
            raise RemoteError(message, ends="all") from error
        except Exception as error:
            message = f"cannot be signed in to ({type(error).__name__}): check its credentials"
            raise RemoteError(message, ends="all") from error
        self._files.retries = 1

    def read(self, name: str, sink: Sink) -> bool:
        return self._run(self._read(f"{self._base}/{name}", sink)) is not None

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Return whether an object exists, of this size if it is known."""
        stored_size = self._run(self._size(f"{self._base}/{name}", time_left))
        return stored_size is not None and size in (None, stored_size)

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Upload a file after verifying its digest, because the library reads the file itself."""
        for _ in file_blocks(name, source, file_size(source), time_left):
            pass
        try:
            is_done = self._run(self._put(f"{self._base}/{name}", source, time_left)) is not None
        except _RefusedError as error:
            # Many credentials allow reading a bucket but not writing.
            message = "does not let these credentials write"
            raise RemoteError(message, ends="sending") from error
        if not is_done:
            message = "has no such bucket"
            raise RemoteError(message, ends="sending")

    async def _read(self, path: str, sink: Sink) -> int:
        time_left = sink.time_left
        try:
            stream = await self._files.open_async(path, "rb")  # sends no request yet
        except NotImplementedError:
            return await self._read_by_ranges(path, sink)
        try:
            while block := await _within(time_left.wait(), stream.read, _BLOCK):
                sink.write(block)
        finally:
            await stream.close()
        return sink.size

    async def _read_by_ranges(self, path: str, sink: Sink) -> int:
        size = await self._size(path, sink.time_left)
        sink.expect(size)
        while sink.size < size:
            end = min(sink.size + _RANGE, size)
            block = await _within(
                sink.time_left.wait(), self._files._cat_file, path, start=sink.size, end=end
            )
            if not block:
                message = "breaks off"
                raise RemoteError(message, again=True)
            sink.write(block)
        return size

    async def _size(self, path: str, time_left: TimeLeft) -> int:
        facts = await _within(time_left.wait(), self._files._info, path)
        return int(facts["size"])

    async def _put(self, path: str, source: Path, time_left: TimeLeft) -> int:
        await _within(time_left.remaining(), self._files._put_file, str(source), path)
        return 0

    def _run(self, work: Coroutine[Any, Any, int]) -> int | None:
        """Run a coroutine in fsspec's event loop; return None if the object does not exist."""
        from fsspec.asyn import sync

        try:
            return cast(int, sync(self._files.loop, lambda: work))
        except FileNotFoundError:
            return None
        except (RemoteError, LocalError, TooLongError):
            raise
        except Exception as error:  # the libraries' errors have no common base class
            raise _fault(error) from error


async def _within(
    seconds: float, work: Callable[..., Coroutine[Any, Any, Any]], *args: object, **kwargs: object
) -> Any:  # noqa: ANN401 - fsspec has no types
    return await asyncio.wait_for(work(*args, **kwargs), seconds)


def _file_system(scheme: str) -> Any:  # noqa: ANN401 - fsspec has no types
    import fsspec

    return fsspec.filesystem(
        scheme,
        use_listings_cache=False,
        skip_instance_cache=True,
        **_OPTIONS.get(scheme, {}),
    )


class _RefusedError(RemoteError):
    """The credentials are missing, invalid, or insufficient."""

    def __init__(self) -> None:
        super().__init__("refuses access: check its credentials", ends="all")


def _silence() -> None:
    """Keep the libraries' logs off stderr; handlers of the application still receive them."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _is_refusal(error: Exception) -> bool:
    """Return whether an error means that access is denied; each library reports it differently."""
    code = getattr(error, "status_code", None) or getattr(error, "code", None)
    is_refused = isinstance(error, PermissionError) or code in _REFUSED
    # Missing credentials show in the class name; for 403, gcsfs has only a message.
    is_named = any(word in type(error).__name__ for word in ("Credential", "Authentication"))
    return is_refused or is_named or str(error).startswith("Forbidden")


def _fault(error: Exception) -> RemoteError:
    """Convert a library error. Only its class is shown, since its message may contain secrets."""
    name = type(error).__name__
    if _is_refusal(error):
        return _RefusedError()
    if isinstance(error, TimeoutError) or "Timeout" in name:
        return RemoteError("is too slow")
    if name in _WRONGLY_SET_UP:
        message = f"cannot be used as its library is set up here ({name})"
        return RemoteError(message, ends="all")
    if name in _UNREACHED:
        return RemoteError("cannot be reached", again=True, ends="all")
    return RemoteError(f"fails ({name})", again=True)


class FolderBackend:
    """A cache in a directory, which must exist to detect an unmounted network share.

    If an entry cannot be read, for example for lack of permission, others may still be readable.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, sink: Sink) -> bool:
        with self._opened(name) as stream:
            if stream is None:
                return False
            sink.expect(os.fstat(stream.fileno()).st_size)
            while block := stream.read(_BLOCK):
                sink.write(block)
            return True

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Return whether a file exists, of this size if it is known."""
        with self._opened(name) as stream:
            return stream is not None and size in (None, os.fstat(stream.fileno()).st_size)

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Copy a file, and rename it when it is complete."""
        self._check_exists()
        blocks = file_blocks(name, source, file_size(source), time_left)
        try:
            with atomic_writer(self._folder / name, follow=False) as stream:
                stream.writelines(blocks)
        except ArtifactError as error:
            raise RemoteError(error.message, ends="sending") from error

    def _check_exists(self) -> None:
        try:
            self._folder.stat()
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            raise RemoteError(message, ends="all") from error

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO | None]:
        """Open a regular file; yield None if it does not exist."""
        self._check_exists()
        try:
            with opened_file(self._folder / name) as stream:
                yield stream
        except FileNotFoundError:
            yield None
        except OSError as error:
            message = f"has an entry that cannot be read: {error.strerror or error}"
            raise RemoteError(message) from error

"""Cache over plain HTTP: GET, HEAD, and PUT on ``URL/cas/<sha256>`` and ``URL/ac/<sha256>``.

bazel-remote and WebDAV servers support it. Redirects are not followed, so that a token is sent only
to the configured server. Responses are requested and read without content encoding.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from urllib3 import BaseHTTPResponse, Retry, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.exceptions import ConnectTimeoutError as SlowConnectError

from mobileprep import __version__
from mobileprep.building.pipeline.remote.base import (
    CONNECT_SECONDS,
    SILENT_SECONDS,
    RemoteError,
    Sink,
    TimeLeft,
    file_blocks,
    file_size,
    within,
)
from mobileprep.building.pipeline.remote.settings import RemoteSettings

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONNECTIONS: Final = 8
# Large, because each block costs several Python calls, which parallel downloads serialize on.
_BLOCK = 1 << 20
_LEAST_BLOCK = 1 << 13
# Maximum part of an error response to read, so that the connection can be reused.
_MOST_ERROR_TEXT = 1 << 16
_ABSENT = (404, 410)
_REFUSED = (401, 403, 407)
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_NO_SUCH_METHOD = (405, 501)
_NOT_MODIFIED = 304
_TOO_LARGE = 413
_NO_FOLDER = (404, 409, 500)


class HttpBackend:
    """A cache at an HTTP URL."""

    def __init__(self, settings: RemoteSettings) -> None:
        self._base = urlsplit(settings.url).path.rstrip("/")
        try:
            self._pool = _pool(settings)
        except HTTPError as error:
            raise _fault(error) from error
        self._folders_made: set[str] = set()
        self._asking = "HEAD"

    def read(self, name: str, sink: Sink) -> bool:
        """Download an entry with GET."""
        with self._exchange("GET", name, sink.time_left) as response:
            if response.status in _ABSENT:
                return False
            if response.status != 200:
                raise _unexpected(response)
            sink.expect(response.length_remaining or 0)
            # With invalid chunk lengths, ``read`` of http.client raises unrelated errors.
            read = response.read1 if response.length_remaining is None else response.read
            while block := read(_block_size(sink.time_left), decode_content=False):
                sink.write(block)
            return True

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Check an entry with HEAD, or with GET if the server does not support HEAD."""
        method = self._asking
        with self._exchange(method, name, time_left) as response:
            if response.status not in _NO_SUCH_METHOD or method == "GET":
                return _has_entry(response, size)
        self._asking = "GET"
        return self.has(name, size, time_left)

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Upload with PUT; if the directory is missing, retry after MKCOL."""
        response = self._put(name, source, time_left)
        folder = name.partition("/")[0]
        if response.status in _NO_FOLDER and folder not in self._folders_made:
            # WebDAV servers may require MKCOL (nginx returns 500). Once per build is enough.
            self._folders_made.add(folder)
            with self._exchange("MKCOL", f"{folder}/", time_left) as reply:
                tried = reply.status in (200, 201, 405)
            response = self._put(name, source, time_left) if tried else response
        if not 200 <= response.status < 300 or response.status == 202:
            raise _upload_error(response)

    def break_off(self) -> None:
        """Close all connections."""
        self._pool.shut()

    def _put(self, name: str, source: Path, time_left: TimeLeft) -> BaseHTTPResponse:
        """Send a PUT request and return the response without its body."""
        size = file_size(source)
        body = file_blocks(name, source, size, time_left)
        with self._exchange("PUT", name, time_left, body, size) as response:
            return response

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        name: str,
        time_left: TimeLeft,
        body: Iterable[bytes] | None = None,
        size: int | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """Yield a response with an unread body, and keep its connection if possible."""
        headers = {} if size is None else {"Content-Length": str(size)}
        token = TIME_LEFT.set(time_left)
        response = None
        try:
            response = self._pool.urlopen(
                method,
                f"{self._base}/{name}",
                body=body,
                headers={**self._pool.headers, **headers},
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            yield response
            _finish(response)
        except HTTPError as error:
            raise _fault(error) from error
        finally:
            if response is not None:
                response.close()
                response.release_conn()
            TIME_LEFT.reset(token)


def _block_size(time_left: TimeLeft) -> int:
    """Return the size of the next read, which extends the time budget only when it is complete."""
    return max(_LEAST_BLOCK, min(_BLOCK, time_left.bytes_due() // 2))


def _has_entry(response: BaseHTTPResponse, size: int | None) -> bool:
    """Return whether a response reports an entry, of this size if both sides know it."""
    if response.status in _ABSENT:
        return False
    if response.status not in (200, 204):
        raise _unexpected(response)
    length = response.headers.get("Content-Length", "")
    return size is None or not length.isdecimal() or int(length[:20]) == size


def _finish(response: BaseHTTPResponse) -> None:
    """Read the rest of a short response; for a long one, the caller closes the connection."""
    remaining = _MOST_ERROR_TEXT
    while remaining > 0 and (block := response.read1(remaining, decode_content=False)):
        remaining -= len(block)
    if remaining > 0:
        response.release_conn()


def _pool(settings: RemoteSettings) -> TimedPool | TimedTlsPool:
    parts = urlsplit(settings.url)
    headers = {"Accept-Encoding": "identity", "User-Agent": f"mobileprep/{__version__}"}
    if settings.authorization is not None:
        headers["Authorization"] = settings.authorization
    timeout = Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS)
    host = str(parts.hostname)
    if parts.scheme == "http":
        return TimedPool(
            host, parts.port, timeout, CONNECTIONS, block=True, headers=headers, retries=False
        )
    return TimedTlsPool(
        host,
        parts.port,
        timeout,
        CONNECTIONS,
        block=True,
        headers=headers,
        retries=False,
        ssl_context=_trusted(settings.ca_file),
    )


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    """Create a TLS context with the system's certificates, ``SSL_CERT_FILE``, or a file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # the file was readable at the start of the build
        message = "cannot be trusted: its certificates cannot be read"
        raise RemoteError(message, ends="all") from error


def _unexpected(response: BaseHTTPResponse) -> RemoteError:
    status = response.status
    if status in _REFUSED:
        return RemoteError(f"refuses access ({status}): check its token", ends="all")
    if 300 <= status < 400 and status != _NOT_MODIFIED:
        message = f"sends elsewhere ({status}), which is not followed; name the other address"
        return RemoteError(message, ends="all")
    return _remote_error(f"answers {status}", response)


def _upload_error(response: BaseHTTPResponse) -> RemoteError:
    status = response.status
    message = f"does not accept uploads ({status})"
    if status == _TOO_LARGE:
        return RemoteError(f"does not take files of such a size ({status})")
    if status in _PASSING:
        return _remote_error(message, response)
    if status in _REFUSED:
        message = f"refuses uploads ({status}): check its token"
    return RemoteError(message, ends="sending")


def _remote_error(message: str, response: BaseHTTPResponse) -> RemoteError:
    """Create the error of a status, with a delay if it is temporary and the server requests one."""
    if response.status not in _PASSING:
        return RemoteError(message)
    after = _retry_after(response)
    if after:
        message += f" and asks clients to wait for {after:.0f} s"
    return RemoteError(message, again=True, after=after)


def _retry_after(response: BaseHTTPResponse) -> float:
    """Return the seconds of Retry-After, a number or a date; 0 if it is missing or invalid."""
    try:
        return max(0.0, Retry().get_retry_after(response) or 0.0)
    except (HTTPError, ValueError, OverflowError):
        return 0.0


def _fault(error: HTTPError) -> RemoteError:
    if isinstance(error, SSLError):
        return RemoteError(f"cannot be trusted: {_tls_reason(error)}", ends="all")
    if isinstance(error, LocationValueError):
        return RemoteError("has an address that cannot be used", ends="all")
    if isinstance(error, NewConnectionError):  # includes unknown host names
        return RemoteError("cannot be reached", again=True, ends="all")
    if isinstance(error, SlowConnectError):
        return RemoteError("does not answer", ends="all")
    # If the server stops reading a body, urllib3 raises "Connection aborted." with the reason.
    if isinstance(error, ReadTimeoutError) or any(isinstance(e, TimeoutError) for e in error.args):
        return RemoteError("is too slow")
    return RemoteError("breaks off, or answers in no HTTP", again=True)


def _tls_reason(error: SSLError) -> str:
    cause = error.args[0] if error.args else error
    return str(getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "TLS")


TIME_LEFT: Final[ContextVar[TimeLeft]] = ContextVar("time_left")
"""Time budget of the current thread's exchange."""


class _TimedReader(io.RawIOBase):
    """A socket reader that applies the time budget to each read."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._sock.settimeout(TIME_LEFT.get().wait())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach()))

    def _read_status(self) -> tuple[str, int, str]:
        """Read a status line. http.client treats all 1xx responses except 100 as final."""
        version, status, reason = super()._read_status()  # type: ignore[misc] # not in typeshed
        is_hint = 100 <= status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS
        return version, HTTPStatus.CONTINUE if is_hint else status, reason


class _TimedConnection(HTTPConnection):
    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        """Connect. The name lookup has no timeout of its own; each address has one."""
        try:
            return within(TIME_LEFT.get().wait(), super()._new_conn)
        except TimeoutError as error:
            message = f"no connection to {self.host} in time"
            raise ConnectTimeoutError(self, message) from error

    def send(self, data: Any) -> None:  # noqa: ANN401 - as in http.client
        if self.sock is not None:
            self.sock.settimeout(TIME_LEFT.get().wait())
        super().send(data)


class _TimedTlsConnection(_TimedConnection, HTTPSConnection):
    """A connection over TLS."""


class _ShutPool(HTTPConnectionPool):
    """A pool of persistent connections that another thread can shut down."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as in urllib3
        super().__init__(*args, **kwargs)
        self._made: WeakSet[_TimedConnection] = WeakSet()

    def _new_conn(self) -> Any:  # noqa: ANN401 - as in urllib3
        connection: Any = super()._new_conn()
        self._made.add(connection)
        return connection

    def shut(self) -> None:
        """Shut down all connections, so that waiting threads fail immediately."""
        for connection in list(self._made):
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):  # closed meanwhile
                    # The TLS socket's own method would let the other thread continue to read.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class TimedPool(_ShutPool):
    """Connections over plain TCP."""

    ConnectionCls = _TimedConnection


class TimedTlsPool(_ShutPool, HTTPSConnectionPool):
    """Connections over TLS."""

    ConnectionCls = _TimedTlsConnection

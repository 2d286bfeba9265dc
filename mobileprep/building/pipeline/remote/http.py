"""Cache over plain HTTP: GET, HEAD, and PUT on ``URL/cas/<sha256>`` and ``URL/ac/<sha256>``.

bazel-remote and WebDAV servers support it. Redirects are not followed, so that a token is sent only
to the configured server. Responses are requested and read without content encoding.

The time budget of an operation is checked between blocks of content. Before them, only urllib3's
timeouts apply: a server may keep a client waiting for the read timeout again and again by sending
its headers byte by byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, Retry, Timeout, connection_from_url
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from mobileprep import __version__
from mobileprep.building.pipeline.remote.base import (
    CONNECT_SECONDS,
    SILENT_SECONDS,
    RemoteError,
    Sink,
    TimeLeft,
    file_blocks,
    file_size,
)
from mobileprep.building.pipeline.remote.settings import RemoteSettings

CONNECTIONS: Final = 8
# Large, because each block costs several Python calls, which parallel downloads serialize on.
_BLOCK = 1 << 20
# Maximum part of an error response to read, so that the connection can be reused.
_MOST_ERROR_TEXT = 1 << 16
_ABSENT = (404, 410)
_REFUSED = (401, 403, 407)
_PASSING = (408, 425, 429, 500, 502, 503, 504)
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

    def read(self, name: str, sink: Sink) -> bool:
        """Download an entry with GET."""
        with self._exchange("GET", name) as response:
            if response.status in _ABSENT:
                return False
            if response.status != 200:
                raise _unexpected(response)
            sink.expect(response.length_remaining or 0)
            # ``read`` would wait for the whole block, and so beyond the time budget.
            while block := response.read1(_BLOCK, decode_content=False):
                sink.write(block)
            return True

    def has(self, name: str, size: int | None, time_left: TimeLeft) -> bool:
        """Check with HEAD whether an entry exists, of this size if both sides know it."""
        with self._exchange("HEAD", name) as response:
            if response.status in _ABSENT:
                return False
            if response.status not in (200, 204):
                raise _unexpected(response)
            length = response.headers.get("Content-Length", "")
            return size is None or not length.isdecimal() or int(length[:20]) == size

    def write(self, name: str, source: Path, time_left: TimeLeft) -> None:
        """Upload with PUT; if the directory is missing, retry after MKCOL."""
        response = self._put(name, source, time_left)
        folder = name.partition("/")[0]
        if response.status in _NO_FOLDER and folder not in self._folders_made:
            # WebDAV servers may require MKCOL (nginx returns 500). Once per build is enough.
            self._folders_made.add(folder)
            with self._exchange("MKCOL", f"{folder}/") as reply:
                tried = reply.status in (200, 201, 405)
            response = self._put(name, source, time_left) if tried else response
        if not 200 <= response.status < 300 or response.status == 202:
            raise _upload_error(response)

    def _put(self, name: str, source: Path, time_left: TimeLeft) -> BaseHTTPResponse:
        """Send a PUT request and return the response without its body."""
        size = file_size(source)
        body = file_blocks(name, source, size, time_left)
        with self._exchange("PUT", name, body, {"Content-Length": str(size)}) as response:
            return response

    @contextlib.contextmanager
    def _exchange(
        self,
        method: str,
        name: str,
        body: Iterable[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """Yield a response with an unread body, and keep its connection if possible."""
        response = None
        try:
            response = self._pool.urlopen(
                method,
                f"{self._base}/{name}",
                body=body,
                headers={**self._pool.headers, **(headers or {})},
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            yield response
            # Read the rest of a short response; the connection of a long one is closed.
            remaining = _MOST_ERROR_TEXT
            while remaining > 0 and (block := response.read1(remaining, decode_content=False)):
                remaining -= len(block)
            if remaining > 0:
                response.release_conn()
        except HTTPError as error:
            raise _fault(error) from error
        finally:
            if response is not None:
                response.close()
                response.release_conn()


def _pool(settings: RemoteSettings) -> HTTPConnectionPool:
    headers = {"Accept-Encoding": "identity", "User-Agent": f"mobileprep/{__version__}"}
    if settings.authorization is not None:
        headers["Authorization"] = settings.authorization
    is_encrypted = urlsplit(settings.url).scheme == "https"
    # Without a file, urllib3 trusts the system's certificates, or ``SSL_CERT_FILE``.
    tls = {"ca_certs": str(settings.ca_file)} if is_encrypted and settings.ca_file else {}
    return connection_from_url(
        settings.url,
        timeout=Timeout(connect=CONNECT_SECONDS, read=SILENT_SECONDS),
        maxsize=CONNECTIONS,
        block=True,
        headers=headers,
        **tls,
    )


def _unexpected(response: BaseHTTPResponse) -> RemoteError:
    status = response.status
    if status in _REFUSED:
        return RemoteError(f"refuses access ({status}): check its token", ends="all")
    if 300 <= status < 400:
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
    if isinstance(error, ConnectTimeoutError):
        return RemoteError("does not answer", ends="all")
    # If the server stops reading a body, urllib3 raises "Connection aborted." with the reason.
    if isinstance(error, ReadTimeoutError) or any(isinstance(e, TimeoutError) for e in error.args):
        return RemoteError("is too slow")
    return RemoteError("breaks off, or answers in no HTTP", again=True)


def _tls_reason(error: SSLError) -> str:
    cause = error.args[0] if error.args else error
    return str(getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "TLS")

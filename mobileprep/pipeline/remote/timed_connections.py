"""urllib3's connections, whose every read and write has what time the exchange has left.

The time-outs of sockets start anew with each byte, so that a server which drips its headers, or
says "100 Continue" for ever, would hold a build without them ever passing.
"""

from __future__ import annotations

import contextlib
import io
import socket
from contextvars import ContextVar
from http import HTTPStatus
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError

from mobileprep.pipeline.remote.time_left import TimeLeft, within

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TIME_LEFT: Final[ContextVar[TimeLeft]] = ContextVar("time_left")
"""That of the exchange which the current thread is at."""


class _TimedReader(io.RawIOBase):
    """The bytes of a socket."""

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
        """A status line. http.client takes each hint but 100 for the answer itself."""
        version, status, reason = super()._read_status()  # type: ignore[misc] # not in typeshed
        is_hint = 100 <= status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS
        return version, HTTPStatus.CONTINUE if is_hint else status, reason


class _TimedConnection(HTTPConnection):
    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        """A socket. A host's name is looked up without a time-out; each address has one."""
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
    """The same over TLS."""


class _ShutPool(HTTPConnectionPool):
    """Connections to a server, kept open between exchanges, that another thread can shut."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as in urllib3
        super().__init__(*args, **kwargs)
        self._made: WeakSet[_TimedConnection] = WeakSet()

    def _new_conn(self) -> Any:  # noqa: ANN401 - as in urllib3
        made: Any = super()._new_conn()
        self._made.add(made)
        return made

    def shut(self) -> None:
        """Let who waits for the server hear its end."""
        for made in list(self._made):
            if (sock := made.sock) is not None:
                with contextlib.suppress(OSError):  # closed in the meantime
                    # TLS would let the other thread read on without it.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class TimedPool(_ShutPool):
    """Over plain TCP."""

    ConnectionCls = _TimedConnection


class TimedTlsPool(_ShutPool, HTTPSConnectionPool):
    """Over TLS."""

    ConnectionCls = _TimedTlsConnection

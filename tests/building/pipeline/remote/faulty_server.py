"""An HTTP server on loopback that keeps what it is sent, and misbehaves as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Entries by path in ``entries``; ``script`` has what to do instead, request by request.

    A script's last answer is given again and again. ``requests`` has method, path and headers of
    each request.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.entries: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.script: dict[str, list[Answer]] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/store"

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.requests]

    def handle_error(self, *_args: object) -> None:
        """Clients that go away are what is tested."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    # An answer's head and body are two writes, which Nagle's algorithm would hold apart.
    disable_nagle_algorithm = True

    def log_message(self, *_args: Any) -> None:
        """Nothing is printed."""

    def _act(self) -> None:
        with self.server.lock:
            self.server.requests.append((self.command, self.path, dict(self.headers)))
            script = self.server.script.get(self.command, [])
            answer = script.pop(0) if len(script) > 1 else (script[0] if script else None)
        (answer or KEEP[self.command])(self)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # what the server looks up for a method
            return self._act
        raise AttributeError(name)

    def entry(self) -> bytes:
        return self.server.entries[self.path]

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def plain(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def raw(self, data: bytes) -> None:
        self.wfile.write(data)
        self.close_connection = True


def _get(handler: Handler) -> None:
    found = handler.server.entries.get(handler.path)
    handler.plain(404, b"not here") if found is None else handler.plain(200, found)


def _put(handler: Handler) -> None:
    data = handler.body()
    if len(data) != int(handler.headers["Content-Length"]):
        return  # as servers do with what breaks off
    with handler.server.lock:
        handler.server.entries[handler.path] = data
    handler.plain(201)


KEEP: dict[str, Answer] = {
    "GET": _get,
    "HEAD": _get,
    "PUT": _put,
    "MKCOL": lambda handler: handler.plain(201),
}


def status(code: int, data: bytes = b"<html>no</html>", **headers: str) -> Answer:
    """A status, whatever was asked; what was sent is read."""

    def answer(handler: Handler) -> None:
        handler.body()
        handler.plain(code, data, **headers)

    return answer


def cut(handler: Handler) -> None:
    """Half of the entry, then a reset."""
    data = handler.entry()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    reset(handler)


def reset(handler: Handler) -> None:
    """The connection goes away at once."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()
    handler.close_connection = True


def flipped(handler: Handler) -> None:
    """The entry with one bit changed."""
    data = bytearray(handler.entry())
    data[len(data) // 2] ^= 4
    handler.plain(200, bytes(data))


def longer_than_told(handler: Handler) -> None:
    """More bytes than the header says."""
    data = handler.entry()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data) - 5}\r\n\r\n".encode()
    handler.raw(head + data)


def shorter_than_told(handler: Handler) -> None:
    """Fewer bytes than the header says, and a good end of the connection."""
    data = handler.entry()
    handler.raw(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data) + 5}\r\n\r\n".encode() + data)


def endless(handler: Handler) -> None:
    """Chunks for as long as anyone listens."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    block = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    for _ in range(1 << 14):
        handler.wfile.write(block)


def repeated(start: bytes, again: bytes, pause: float, *, most: int = 10_000) -> Answer:
    """Some bytes, and then the same bytes again and again."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(start)
        for _ in range(most):
            handler.wfile.write(again)
            time.sleep(pause)

    return answer


def raw(data: bytes) -> Answer:
    """Bytes that need not be HTTP."""
    return lambda handler: handler.raw(data)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server, for as long as the block lasts."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A proxy on loopback that injects faults into the responses of a server."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final

FAULTS: Final = ("cut", "flip", "5xx", "endless", "drip", "silent")
_BLOCK = 1 << 16
_ENDLESS_BLOCKS = 1 << 13


class FaultProxy:
    """Forward connections to a server, and apply ``fault``, if any, to responses.

    A seeded generator picks the ``share`` of connections that are affected.
    """

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.fault: str | None = None
        self.share = 1.0
        self._random = random.Random(0)
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._open = False
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while self._open:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        fault = self.fault if self._random.random() < self.share else None
        with contextlib.suppress(OSError), client:
            if fault == "5xx":
                client.recv(_BLOCK)
                body = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                client.sendall(body)
                return
            with socket.create_connection(self._to) as server:
                threading.Thread(target=_pump, args=(client, server), daemon=True).start()
                self._spoil(server, client, fault)

    def _spoil(self, server: socket.socket, client: socket.socket, fault: str | None) -> None:
        passed = 0
        while block := server.recv(_BLOCK):
            data, passed = bytearray(block), passed + len(block)
            if fault == "silent":
                time.sleep(0.1)
                continue
            if fault == "flip":
                data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
            if fault == "cut" and passed > 1000:
                client.sendall(data[: len(data) // 2])
                return
            if fault == "drip":
                for i in range(min(len(data), 400)):
                    client.sendall(data[i : i + 1])
                    time.sleep(0.02)
                return
            client.sendall(data)
            if fault == "endless":
                for _ in range(_ENDLESS_BLOCKS):
                    client.sendall(bytes(_BLOCK))
                return


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)


@contextlib.contextmanager
def proxy_to(host: str, port: int) -> Iterator[FaultProxy]:
    """Run a proxy, and close it at the end of the block."""
    proxy = FaultProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()

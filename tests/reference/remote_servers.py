"""Real servers on loopback for the remote cache: nginx, and moto's S3."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_TEMPORARY = ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def nginx(folder: Path, http: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with the given ``http`` section, and its own files in ``folder``."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    program = shutil.which("nginx", path=places)
    if program is None:
        pytest.skip("nginx is not installed")
    temporary = "".join(f"{name}_temp_path {folder / name};\n" for name in _TEMPORARY)
    config = folder / "nginx.conf"
    # Without a master process it runs as the current user, who owns the directories.
    config.write_text(
        f"daemon off; master_process off; pid {folder}/pid;\nevents {{}}\n"
        f"http {{ access_log off;\n{temporary}{http}\n}}\n"
    )
    log = folder / "error.log"
    command = [program, "-p", str(folder), "-c", str(config), "-e", str(log), "-g", ""]
    with _running(command, port, log) as process:
        yield process


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[int]:
    """Run moto's S3 in another process, and yield its port."""
    # It has its own environment, since moto and s3fs need different versions of botocore.
    program = shutil.which("moto_server")
    if program is None:
        pytest.skip("moto_server is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    port, log = free_port(), folder / "moto.log"
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, log):
        yield port


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(20)

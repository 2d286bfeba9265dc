"""Who holds a lock: what a process writes into it, and whether that process is still there."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_LONGEST: Final = 200
_TEXTS: Final = ("host", "boot", "namespace", "started", "since", "command")
MOST_BYTES: Final = 4096
"""No more of a lock is read."""


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock.

    Args:
        pid: its number.
        host: the machine's name.
        boot: what the machine's system calls the time since its last start; empty where it
            does not say.
        namespace: where its number holds: containers of one machine have numbers of their own;
            empty where the system does not say.
        started: when the process started, as the system counts; empty where it does not say.
        since: when it took the lock, in local time.
        command: how it was called.
    """

    pid: int
    host: str
    boot: str
    namespace: str
    started: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since} ({self.command})"

    def as_bytes(self) -> bytes:
        """What stands in a lock."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()

    @property
    def is_gone(self) -> bool:
        """Whether the process has surely ended; of another machine's nothing is known."""
        if self.host != _host() or os.name == "nt":
            return False  # on Windows asking for a process by signal would end it
        if self.boot != _boot():
            return bool(self.boot)
        if self.namespace != _namespace():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        now = _started(self.pid)
        return bool(now and self.started) and now != self.started


def this_process() -> Holder:
    """This process as the holder of a lock taken now."""
    pid = os.getpid()
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return Holder(pid, _host(), _boot(), _namespace(), _started(pid), since, _command(sys.argv))


def read_holder(data: bytes) -> Holder | None:
    """The holder that a lock names; None where it names none."""
    try:
        found = json.loads(data)
        texts = [found[name] for name in _TEXTS]
        pid = found["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(pid) is not int or pid < 1 or not all(isinstance(text, str) for text in texts):
        return None
    return Holder(pid, *map(_plain, texts))


def _plain(text: str) -> str:
    """Text of another process, fit for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])


def _command(arguments: list[str]) -> str:
    """A command line without the values of variables, which may be secret."""
    words = [Path(arguments[0]).name if arguments else ""]
    for before, word in itertools.pairwise(arguments):
        if before == "--set":
            word = f"{word.partition('=')[0]}=..."
        elif word.startswith("--set="):
            word = "--set=..."
        words.append(word)
    return " ".join(words)[:_LONGEST]


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _namespace() -> str:
    try:
        return os.fsdecode(_NAMESPACE.readlink())
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started; numbers are given out again, and this tells two of one apart."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # The name before it may hold anything, blanks and brackets too.
    after_name = facts.rpartition(b")")[2].split()
    return after_name[19].decode("ascii", "replace") if len(after_name) > 19 else ""

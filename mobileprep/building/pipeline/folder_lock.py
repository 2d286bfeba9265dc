"""Locks that let only one build at a time work on an output directory.

The lock of ``out/digits/phone`` is the file ``out/digits/.phone.lock``. It is next to the
directory, so that it works for every process that can publish there, whatever its cache, and is
never shipped. The file exists while a build runs. The actual lock is the system's lock on the open
file, which ends with its process; the content only names the holder. On file systems without such
locks, an exclusively created file replaces it, ``.phone.claim``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from mobileprep.building.pipeline.store_lock import try_lock
from mobileprep.errors import ArtifactError

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_LONGEST_NAME: Final = 200
# Others may remove and create directories meanwhile; some file systems never allow creating one.
_MOST_TRIES: Final = 1000
_PLAIN_FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_FILE: Final = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})

Release = Callable[[], None]


class _Moved(Exception):  # noqa: N818 - control flow, not an error
    """The locked file no longer has the lock file's name."""


@dataclass
class _Locks:
    """The locks of one build, which are released in reverse order."""

    stack: contextlib.ExitStack
    holder: bytes = field(default_factory=lambda: this_process().as_bytes())
    files: set[tuple[int, int]] = field(default_factory=set)


@contextlib.contextmanager
def folder_locks(
    folders: Iterable[Path], *, wait: bool, tell: Callable[[str], None]
) -> Iterator[bool]:
    """Lock output directories, so that no other build works on them.

    All builds lock directories in the same order, so that two builds never wait for each other.
    Directories in which no file can be created are skipped: publishing there fails too and reports
    the reason.

    Args:
        folders: output directories.
        wait: wait for other builds instead of failing.
        tell: receives a message before a longer wait.

    Yields:
        Whether this build waited for another one, so that earlier checks may be outdated.

    Raises:
        ArtifactError: another build holds a lock and ``wait`` is not set, or locking failed.
    """
    with contextlib.ExitStack() as stack:
        locks = _Locks(stack)
        ordered = sorted({Path(os.path.realpath(f)) for f in folders}, key=str)
        waits = [_take(folder, locks, wait=wait, report_message=tell) for folder in ordered]
        yield any(waits)


def lock_file(folder: Path) -> Path:
    """Return the path of the lock file of a directory."""
    name = folder.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return folder.with_name(f".{name}.lock")


def _take(
    folder: Path, locks: _Locks, *, wait: bool, report_message: Callable[[str], None]
) -> bool:
    """Lock a directory and register its release; return whether that required a wait."""
    pause = _FIRST_PAUSE
    last_holder = ""
    while True:
        holder = _attempt(lock_file(folder), locks)
        if holder is None:
            return pause > _FIRST_PAUSE
        who = f"{holder}" if isinstance(holder, Holder) else "another process"
        if not wait:
            message = f"it is being worked on by {who}"
            raise ArtifactError(message, "build again when it has ended", str(folder))
        # Short waits are not reported, and a new lock does not name its holder yet.
        if pause > _FIRST_PAUSE and who != last_holder:
            report_message(f"waiting for {folder}: it is being worked on by {who}")
            last_holder = who
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _attempt(path: Path, locks: _Locks) -> Holder | str | None:
    """Try to lock; return None if that succeeded, else the holder, or "" if it is unknown."""
    for _ in range(_MOST_TRIES):
        try:
            new_folders = _folders_made(path.parent)
            if new_folders:
                # Removed again if they are empty, so that a failed build leaves no directories
                # behind.
                locks.stack.callback(_remove_folders, new_folders)
            return _lock(path, locks)
        except (_Moved, FileNotFoundError):
            continue  # another process has just released the lock and removed its file or directory
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                message = f"cannot be locked: {error.strerror}"
                hint = "allow more open files (ulimit -n), or build fewer targets at once"
                raise ArtifactError(message, hint, str(path)) from error
            if error.errno in _NO_FILE:
                raise _no_file(path) from error
            break
    return None


def _lock(path: Path, locks: _Locks) -> Holder | str | None:
    descriptor = _opened(path)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _no_file(path)
        identity = (facts.st_dev, facts.st_ino)
        if identity in locks.files:
            return None  # one directory under two names (case-insensitive file system)
        locked = try_lock(descriptor)
        if locked is None:
            with contextlib.suppress(OSError):
                path.unlink()
            return _claim(path.with_suffix(".claim"), locks)
        if not locked:
            return read_holder(_content(descriptor)) or ""
        _check_same(path, identity)
        if facts.st_nlink > 1:
            # Writing would also change the user's file.
            raise _no_file(path, "the lock file has another hard link")
        _write(descriptor, path, locks.holder)
        locks.files.add(identity)
        locks.stack.callback(_let_go, path, descriptor)
        descriptor = -1
        return None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _opened(path: Path) -> int:
    """Open the lock file, and create it if it does not exist.

    Locking does not require write permission: the lock file of another user's killed build is
    locked and then replaced.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN_FILE, 0o666)
    except PermissionError:
        if not os.path.lexists(path):
            raise
        return os.open(path, os.O_RDONLY | _PLAIN_FILE)


def _check_same(path: Path, identity: tuple[int, int]) -> None:
    """Check that a locked file still has its name; the previous holder may have removed it."""
    now = path.stat()
    if (now.st_dev, now.st_ino) != identity:
        raise _Moved


def _write(descriptor: int, path: Path, holder: bytes) -> None:
    try:
        if os.fstat(descriptor).st_size:
            # Only if needed: ext4 flushes truncated and rewritten files to disk when they are
            # closed.
            os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, holder)
    except OSError as error:
        if error.errno in (errno.EBADF, errno.EINVAL):  # another user's file
            with contextlib.suppress(OSError):
                path.unlink()
                raise _Moved from error
        # Otherwise, for example if the disk is full, the lock works but does not name its holder.


def _let_go(path: Path, descriptor: int) -> None:
    # Remove the file while it is locked; afterwards it could belong to another process. Windows
    # cannot remove open files.
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(descriptor)
    if os.name == "nt":
        with contextlib.suppress(OSError):
            path.unlink()


def _claim(path: Path, locks: _Locks) -> Holder | str | None:
    """Try to create the file that replaces the lock on file systems without locks."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return _claimed(path)
    locks.stack.callback(_unclaim, path)
    with contextlib.suppress(OSError):
        os.write(descriptor, locks.holder)
    os.close(descriptor)
    return None


def _claimed(path: Path) -> Holder | str:
    """Return the holder of a claim, or remove the claim if its process has ended."""
    data = _content_of(path)
    holder = read_holder(data)
    if holder is None or not holder.is_gone:
        return holder or ""
    aside = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    path.rename(aside)
    if _content_of(aside) != data:
        # Another process has replaced the claim with its own meanwhile: restore it.
        with contextlib.suppress(OSError):
            os.link(aside, path)
    aside.unlink()
    raise _Moved


def _unclaim(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _content_of(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | _PLAIN_FILE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_file(path)
        return _content(descriptor)
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, MOST_BYTES)


def _folders_made(folder: Path) -> list[Path]:
    """Create a directory and its parents; return the created ones, innermost first."""
    missing: list[Path] = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
    return missing


def _remove_folders(folders: Iterable[Path]) -> None:
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def _no_file(
    path: Path, reason: str = "a file is expected, but this name is not one"
) -> ArtifactError:
    return ArtifactError(f"cannot be locked: {reason}", "remove it", str(path))


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_LONGEST: Final = 200
_TEXTS: Final = ("host", "boot", "namespace", "started", "since", "command")
MOST_BYTES: Final = 4096
"""Maximum number of bytes that are read from a lock file."""


class Holder(Struct, frozen=True):
    """A process that holds a lock.

    Args:
        pid: process ID.
        host: host name.
        boot: the system's ID of the current boot; empty if unknown.
        namespace: PID namespace, since containers have their own process IDs; empty if unknown.
        started: start time of the process in system units; empty if unknown.
        since: local time at which it acquired the lock.
        command: its command line.
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
        """Serialize the holder for the lock file."""
        return (json.dumps(structs.asdict(self), sort_keys=True) + "\n").encode()

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended; False for processes of other machines."""
        if self.host != _host() or os.name == "nt":
            return False  # on Windows, os.kill would terminate the process
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
    """Return this process as the holder of a new lock."""
    pid = os.getpid()
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return Holder(pid, _host(), _boot(), _namespace(), _started(pid), since, _command(sys.argv))


def read_holder(data: bytes) -> Holder | None:
    """Parse the holder of a lock; return None if it is invalid."""
    try:
        data_fields = json.loads(data)
        texts = [data_fields[name] for name in _TEXTS]
        pid = data_fields["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(pid) is not int or pid < 1 or not all(isinstance(text, str) for text in texts):
        return None
    return Holder(pid, *map(_plain, texts))


def _plain(text: str) -> str:
    """Sanitize a string of another process for the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])


def _command(arguments: list[str]) -> str:
    """Return a command line without the values of ``--set``, which may be secret."""
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
    """Return the start time of a process, which distinguishes processes with a reused ID."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # The program name before it may contain anything, including blanks and parentheses.
    after_name = facts.rpartition(b")")[2].split()
    return after_name[19].decode("ascii", "replace") if len(after_name) > 19 else ""

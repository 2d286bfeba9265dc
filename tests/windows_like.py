"""Run builds without features that Windows lacks: ``python -m tests.windows_like DIRECTORY``.

The first build uses the unchanged system. It imports all modules and writes the expected files to
``DIRECTORY/posix``. The builds below ``DIRECTORY/windows`` then run without:

- the modules fcntl, resource, pwd, grp, and termios, ``os.fork`` and the like, and flags of open;
- ``/proc``, symlinks, and hard links;
- replacing and removing mapped files, which Windows refuses;
- file names that Windows refuses, and names that differ only by case.

``sys.platform`` is ``win32``, and a stub of ``msvcrt`` provides locks.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import sys
import threading
import types
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
_ABSENT_MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
_ABSENT_NAMES = (
    *("fork", "forkpty", "sched_getaffinity", "posix_fallocate", "uname", "geteuid", "getuid"),
    *("getgid", "mkfifo", "fchmod", "fchown", "chown", "sysconf", "statvfs", "getloadavg"),
    *("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "sendfile", "copy_file_range"),
)
_WITH_DIGESTS = ("manifest.json", "report.json", "report.html")
_NOT_A_NAME = re.compile(r'[<>:"|?*\0-\x1f]|[. ]$')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\.|$)")

_real_open = io.open


def _mapped() -> set[str]:
    with _real_open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}


class _Checks:
    """An audit hook that refuses the operations that Windows refuses."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.own = threading.local()
        self.names: dict[str, set[str]] = {}

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove"):
            return
        if getattr(self.own, "is_checking", False):
            return
        self.own.is_checking = True
        try:
            self._check(event, arguments)
        finally:
            self.own.is_checking = False

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        paths = [os.fsdecode(a) for a in arguments[:2] if isinstance(a, str | bytes | os.PathLike)]
        if event == "open":
            paths = paths[:1]
        for path in paths:
            # threadpoolctl reads the maps on Linux only.
            if path.startswith("/proc") and path != "/proc/self/maps":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if str(Path(path).absolute()).startswith(self.root):
                self._check_name(path)
        if event in ("os.rename", "os.remove"):
            target = os.path.realpath(paths[-1])
            if target in _mapped():
                raise PermissionError(errno.EACCES, "the file is mapped", target)

    def _check_name(self, path: str) -> None:
        folder, name = os.path.split(Path(path).absolute())
        if _NOT_A_NAME.search(name) or _RESERVED.match(name):
            raise OSError(errno.EINVAL, "Windows has no such name", path)
        names = self.names.setdefault(folder, set())
        names.add(name)
        alike = [other for other in names if other != name and other.lower() == name.lower()]
        if alike:
            raise OSError(errno.EEXIST, f"differs by case only from {alike[0]}", path)


def _refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "a required privilege is not held by the client")


def _fake_msvcrt() -> types.ModuleType:
    import fcntl  # before it is removed

    module = types.ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, count: int) -> None:
        del mode
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)

    module.LK_NBLCK, module.LK_UNLCK, module.locking = 2, 0, locking  # type: ignore[attr-defined]
    return module


def remove_linux_features(root: Path) -> None:
    """Make this process similar to one on Windows."""
    msvcrt = _fake_msvcrt()
    for name in [n for n in sys.modules if n.partition(".")[0] == "mobileprep"]:
        del sys.modules[name]
    for name in _ABSENT_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.modules["msvcrt"] = msvcrt
    for name in _ABSENT_NAMES:
        if hasattr(os, name):
            delattr(os, name)
    os.symlink = os.link = _refuse
    sys.addaudithook(_Checks(root))
    sys.platform = "win32"


def prepare(folder: Path, line_end: str) -> Path:
    """Copy the digits recipe and its model; text files get the line end."""
    shutil.copytree(RECIPES / "digits", folder / "digits")
    for path in (folder / "digits").rglob("*"):
        if path.suffix in (".yaml", ".pbtxt", ".txt"):
            text = path.read_bytes().replace(b"\r\n", b"\n")
            path.write_bytes(text.replace(b"\n", line_end.encode()))
    return folder / "digits" / "recipe.yaml"


def differing_files(a: Path, b: Path) -> list[str]:
    """The published files whose bytes differ, except files with digests of the inputs."""
    names = [path.relative_to(a) for path in sorted(a.rglob("*")) if path.is_file()]
    compared = [n for n in names if n.name not in _WITH_DIGESTS]
    return [str(n) for n in compared if (a / n).read_bytes() != (b / n).read_bytes()]


def main(root: Path) -> None:
    """Run the builds and print a summary as one line of JSON."""
    for name in ("posix", "windows"):
        (root / name).mkdir()
    os.environ["MOBILEPREP_CACHE"] = str(root / "posix" / "store")
    recipe = prepare(root / "posix", "\n")
    import mobileprep

    os.chdir(root / "posix")
    mobileprep.build(recipe)
    os.chdir(root / "windows")
    os.environ["MOBILEPREP_CACHE"] = str(root / "windows" / "store")
    recipe = prepare(root / "windows", "\r\n")
    remove_linux_features(root / "windows")
    import mobileprep
    from mobileprep.cli.main import main as run

    mobileprep.validate(recipe)
    first = mobileprep.build(recipe)
    done: dict[str, Any] = {
        "first": len(first.ran),
        "differ": differing_files(root / "posix" / "out", root / "windows" / "out"),
        "second": len(mobileprep.build(recipe).ran),
    }
    text = recipe.read_bytes()
    recipe.write_bytes(text.replace(b"quantize: weights", b"quantize: {mode: weights, bits: 7}"))
    edited = mobileprep.build(recipe)
    done["edited"] = [target.is_changed for target in edited.targets]
    verbs = (["verify", "out"], ["cache", "gc"], ["cache", "verify"], ["clean", str(recipe)])
    done["codes"] = [run(list(verb)) for verb in verbs]
    sys.stdout.write(f"{json.dumps(done)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

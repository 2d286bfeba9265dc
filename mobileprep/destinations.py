"""What the name of an output may lead to.

What an output's name may be: a regular file, which is replaced; a link to one, which stays a link
while the file that it leads to is replaced; a FIFO or a character device, which is written to as
``cp`` does; and ``-`` or ``/dev/stdout``. All else is refused. Files that we keep ourselves, in the
store and in the folders of targets, replace whatever link has their name.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from mobileprep.errors import ArtifactError

STDOUT: Final = Path("-")
_MOST_LINKS: Final = 40
# The open files of a process under their numbers: links of a kind whose text leads nowhere.
_DESCRIPTOR: Final = re.compile(r"/(?:proc/[^/]+|dev)/fd/[0-9]+\Z")


def output_path(text: str) -> Path:
    """The path that a flag names for an output; ``-`` is the standard output, ``./-`` a file.

    Raises:
        ArtifactError: it is empty, or the name of a folder.
    """
    if text == "-":
        return STDOUT
    if text.endswith(("/", os.sep)) or Path(text).name in ("", ".."):
        message = f"cannot be written: {text!r} is the name of a folder" if text else "has no name"
        raise ArtifactError(message, "name a file", "the output")
    path = Path(text)
    return path.absolute() if path == STDOUT else path


def is_stdout(path: Path) -> bool:
    """Whether an output of that path goes to the standard output: ``-``, ``/dev/stdout``.

    Raises:
        ArtifactError: links that lead in a circle.
    """
    own = ("/dev/fd/1", f"/proc/{os.getpid()}/fd/1")
    return path == STDOUT or str(links(path)[-1]) in own


def links(path: Path) -> list[Path]:
    """A path, and what it leads to link by link; only the last is no link.

    The folders on the way have their links resolved. What leads to an open file of a process ends
    there.

    Raises:
        ArtifactError: links that lead in a circle.
    """
    hops = [_with_folder_resolved(path)]
    # os.path answers, where Path raises, for names too long.
    while os.path.islink(hops[-1]) and not _DESCRIPTOR.match(str(hops[-1])):  # noqa: PTH114
        if len(hops) > _MOST_LINKS:
            message = "cannot be written: its links lead in a circle"
            raise ArtifactError(message, "remove the link", str(path))
        hops.append(_with_folder_resolved(hops[-1].parent / hops[-1].readlink()))
    return hops


def _with_folder_resolved(path: Path) -> Path:
    return Path(os.path.realpath(path.parent)) / path.name


def takes_a_stream(target: Path, path: Path) -> bool:
    """Whether bytes are written to a thing rather than put in its place.

    Args:
        target: the last of a path's links.
        path: the path.

    Raises:
        ArtifactError: a link that leads nowhere.
    """
    if _DESCRIPTOR.match(str(target)):
        return True
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            message = f"cannot be written: it is a link to {path.readlink()}, which is not there"
            raise ArtifactError(message, "remove the link, or make its file", str(path)) from None
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def no_folder_above(path: Path) -> Path | None:
    """What lies above a path where a folder should be; None where nothing does."""
    for above in path.parents:
        # os.path answers, where Path raises, for names too long.
        if os.path.isdir(above):  # noqa: PTH112
            return None
        if os.path.lexists(above):
            return above
    return None


def check_replaceable(target: Path, path: Path, *, follow: bool) -> None:
    """Make sure that a file may take a name.

    Args:
        target: the name.
        path: what led there, for messages.
        follow: what a link leads to counts; without, a link may be replaced.

    Raises:
        ArtifactError: a folder, a device or a socket is there.
    """
    if target.name in ("", ".."):
        message = "cannot be written: it is a folder"
        raise ArtifactError(message, "name a file", str(path))
    try:
        mode = target.stat().st_mode if follow else target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return
    what = "a folder" if stat.S_ISDIR(mode) else "a device, a socket or the like"
    message = f"cannot be written: there is {what} of that name"
    raise ArtifactError(message, "name another file", str(path))

"""Paths of outputs, files opened for reading, and files that are not models.

An output may be a regular file, which is replaced; a link to one, which stays a link while its
target is replaced; a FIFO or a character device, which is written to as ``cp`` does; and ``-`` or
``/dev/stdout``. Everything else is rejected. Files that mobileprep keeps itself, in the cache and
in the directories of targets, replace a link of their name.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.errors import ArtifactError, CorruptFileError, MobileprepError, UnsupportedError

STDOUT: Final = Path("-")
_MOST_LINKS: Final = 40
# Links to open files of a process, by descriptor; their targets are not valid paths.
_DESCRIPTOR: Final = re.compile(r"/(?:proc/[^/]+|dev)/fd/[0-9]+\Z")


def output_path(text: str) -> Path:
    """Return the path that a flag names for an output; ``-`` is stdout, ``./-`` is a file."""
    if text == "-":
        return STDOUT
    if text.endswith(("/", os.sep)) or Path(text).name in ("", ".."):
        message = f"cannot be written: {text!r} is the name of a folder" if text else "has no name"
        raise ArtifactError(message, "name a file", "the output")
    path = Path(text)
    return path.absolute() if path == STDOUT else path


def is_stdout(path: Path) -> bool:
    """Return whether an output path is stdout: ``-`` or ``/dev/stdout``."""
    own = ("/dev/fd/1", f"/proc/{os.getpid()}/fd/1")
    return path == STDOUT or str(links(path)[-1]) in own


def links(path: Path) -> list[Path]:
    """Return a path and the target of each symlink in turn; only the last is not a symlink.

    Symlinks of parent directories are resolved. Links to open files of a process are not followed.
    """
    hops = [_with_folder_resolved(path)]
    # Unlike Path, os.path does not raise for names that are too long.
    while os.path.islink(hops[-1]) and not _DESCRIPTOR.match(str(hops[-1])):  # noqa: PTH114
        if len(hops) > _MOST_LINKS:
            message = "cannot be written: its links lead in a circle"
            raise ArtifactError(message, "remove the link", str(path))
        hops.append(_with_folder_resolved(hops[-1].parent / hops[-1].readlink()))
    return hops


def _with_folder_resolved(path: Path) -> Path:
    return Path(os.path.realpath(path.parent)) / path.name


def takes_a_stream(target: Path, path: Path) -> bool:
    """Return whether to write to the existing file, such as a device, instead of replacing it."""
    if _DESCRIPTOR.match(str(target)):
        return True
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            message = f"cannot be written: it is a link to {path.readlink()}, which does not exist"
            raise ArtifactError(message, "remove the link, or make its file", str(path)) from None
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def no_folder_above(path: Path) -> Path | None:
    """Return the file above a path that should be a directory; None if there is none."""
    for above in path.parents:
        # Unlike Path, os.path does not raise for names that are too long.
        if os.path.isdir(above):  # noqa: PTH112
            return None
        if os.path.lexists(above):
            return above
    return None


def check_replaceable(target: Path, path: Path, *, follow: bool) -> None:
    """Check that a path can be replaced with a file.

    Raises:
        ArtifactError: if it is a directory, or another special file.
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


READ_NOW = os.O_RDONLY | sum(getattr(os, n, 0) for n in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
# Pipes of the caller, such as "<(command)" in a shell.
_OWN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

_LFS_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_LFS_MAX_SIZE = 1024  # The limit of Git LFS itself.


class LfsPointerError(OSError):
    """A file of a checkout whose content Git LFS has not downloaded."""


def opened(path: Path) -> BufferedReader:
    """Open a file for reading without waiting; refuse named pipes."""
    descriptor = os.open(path, READ_NOW)
    status = os.fstat(descriptor)
    mode = status.st_mode
    if stat.S_ISFIFO(mode) and not str(path).startswith(_OWN_PIPES):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe, and no file", str(path))
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    os.set_blocking(descriptor, True)
    stream = os.fdopen(descriptor, "rb")
    may_be_pointer = stat.S_ISREG(mode) and status.st_size < _LFS_MAX_SIZE
    if may_be_pointer and stream.peek(len(_LFS_HEAD)).startswith(_LFS_HEAD):
        stream.close()
        raise LfsPointerError(errno.EINVAL, "it is a Git LFS pointer", str(path))
    return stream


def opened_file(path: Path) -> BufferedReader:
    """Open a regular file for reading without waiting; reject devices, which may never end."""
    stream = opened(path)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is a device, and no file", str(path))
    return stream


PROBE: Final = 4096
"""Number of leading bytes that identify every format."""

_SAVED_MODEL_NAMES: Final = ("saved_model.pb", "saved_model.pbtxt")
_KERAS: Final = "a Keras model file"
_EXPORT: Final = "load it in Keras and write a SavedModel: model.export('directory')"
_AS_DATA: Final = (
    "name the model; samples go under `validation:` of a recipe, or `--data` of `mobileprep init`"
)
_AS_INPUT: Final = "name the model that takes it"
_ONNX: Final = "an ONNX model"
_SOURCE: Final = "name the TensorFlow model from which it was exported"


class Foreign(Struct, frozen=True):
    """A file format that is not a model to prepare.

    Args:
        what: description of the format, with its article.
        hint: the fix.
    """

    what: str
    hint: str


_MAGIC: Final = (
    (re.compile(rb"....TFL3", re.DOTALL), "a LiteRT model (.tflite), which is already converted",
     "name the graph or the SavedModel from which it was converted"),
    (re.compile(rb"\x89HDF\r\n\x1a\n"), _KERAS + " (HDF5)", _EXPORT),
    (re.compile(rb"PK\x03\x04.{26}(config\.json|metadata\.json|model\.weights\.h5)", re.DOTALL),
     _KERAS + " (.keras)", _EXPORT),
    (re.compile(rb"PK\x03\x04.{26}[^\0]{1,200}?\.npy", re.DOTALL),
     "a NumPy archive of arrays (.npz)", _AS_DATA),
    (re.compile(rb"PK\x03\x04|PK\x05\x06"), "a zip archive",
     "extract it with `unzip`, and name the model inside"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array (.npy)", _AS_DATA),
    (re.compile(rb"\xff\xd8\xff"), "an image (JPEG)", _AS_INPUT),
    (re.compile(rb"\x89PNG\r\n"), "an image (PNG)", _AS_INPUT),
    (re.compile(rb"GIF8"), "an image (GIF)", _AS_INPUT),
    (re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL), "an image (BMP)", _AS_INPUT),
    (re.compile(rb"RIFF.{4}WAVE", re.DOTALL), "an audio file (WAV)", _AS_INPUT),
    (re.compile(rb"\x1f\x8b"), "a compressed file (gzip)",
     "decompress it with `gunzip` (a .tar.gz with `tar -xzf`), and name the model inside"),
    (re.compile(rb"BZh|\xfd7zXZ\0|\x28\xb5\x2f\xfd"), "a compressed file",
     "decompress it, and name the model inside"),
    (re.compile(rb"\s*\{.{0,400}\"(modelTopology|weightsManifest)\"", re.DOTALL),
     "a TensorFlow.js model", "name the SavedModel from which it was converted"),
)  # fmt: skip


def foreign_format(data: bytes | memoryview) -> Foreign | None:
    """Identify a file by its first bytes; None for a model, and for unknown content."""
    head = bytes(data[:PROBE])
    for magic, what, hint in _MAGIC:
        if magic.match(head):
            return Foreign(what, hint)
    return Foreign(_ONNX, _SOURCE) if _is_onnx(head) else None


def refuse_foreign(data: bytes | memoryview, file: str) -> None:
    """Reject files of other formats.

    Raises:
        UnsupportedError: if the data starts like one.
    """
    foreign = foreign_format(data)
    if foreign is not None:
        message = f"is {foreign.what}"
        raise UnsupportedError(message, foreign.hint, file)


def directory_error(path: Path, where: str = "", shown: str = "") -> CorruptFileError:
    """Return the error for a directory that should be a file."""
    # Unlike Path, os.path does not raise for names that are too long.
    if any(os.path.isfile(path / name) for name in _SAVED_MODEL_NAMES):  # noqa: PTH113
        message = "is the directory of a SavedModel, not a file"
        hint = (
            "in a recipe, name it as `saved_model:`; for a verb that takes only frozen graphs, "
            "run `mobileprep freeze --input_saved_model_dir=DIR` first"
        )
    else:
        message, hint = "is a directory, not a file", "name the file in it"
    return CorruptFileError(_about(message, shown), hint, where or str(path))


def file_error(path: Path, where: str = "", shown: str = "") -> MobileprepError:
    """Return the error for a file that should be the directory of a SavedModel."""
    try:
        with opened(path) as stream:
            foreign = foreign_format(stream.read(PROBE))
    except OSError as error:
        from mobileprep.core.files import unreadable  # Slow to import, and only needed for errors.

        failure = unreadable(path, error)
        return failure.at(where, message=f"{shown} {failure.message}") if where else failure
    if foreign is not None:
        message = _about(f"is {foreign.what}", shown)
        return UnsupportedError(message, foreign.hint, where or str(path))
    message = _about("is a file, not the directory of a SavedModel", shown)
    hint = (
        f"name the directory that holds {_SAVED_MODEL_NAMES[0]}; a graph goes under `frozen:` or "
        "`graph:` of a recipe, or `--input_graph` of `mobileprep freeze`"
    )
    return CorruptFileError(message, hint, where or str(path))


def _about(message: str, shown: str) -> str:
    return f"{shown} {message}" if shown else message


def _is_onnx(head: bytes) -> bool:
    """Return whether the first fields are those of an ONNX ModelProto instead of a SavedModel.

    Both start with a version number. The second field of a SavedModel is a MetaGraphDef with tag 2,
    which starts with a control character; in ONNX, tag 2 is the name of a producer.
    """
    if len(head) < 4 or head[0] != 0x08 or head[1] > 0x7F:
        return False
    if head[2] != 0x12:
        # Fields 3 to 8, 14, 20, and 25 of ModelProto, which a SavedModel does not have.
        return head[2] in (0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2, 0xCA)
    name = head[4 : 4 + head[3]]
    if not name:
        return len(head) > 4 and head[4] != 0x12
    return head[3] <= 0x7F and all(0x20 <= byte < 0x7F for byte in name)

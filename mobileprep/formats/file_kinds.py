"""Tells what a file is by its content: a model's, a checkpoint's, or what it is instead."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final, Literal

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_state import is_state_file
from mobileprep.formats.kinds import kind_of
from mobileprep.formats.mapped_file import map_file
from mobileprep.formats.memmapped import ends_as_package
from mobileprep.formats.sstable import MAGIC
from mobileprep.frozen import dataclass
from mobileprep.fsio import unreadable
from mobileprep.regular_files import opened

FileKind = Literal[
    "GraphDef",
    "MetaGraphDef",
    "SavedModel",
    "checkpoint index",
    "checkpoint table",
    "checkpoint state",
    "checkpoint data",
]

_PROBE: Final = 4096
_DATA: Final = re.compile(r".+\.data-\d{5}-of-\d{5}\Z", re.DOTALL)
_KERAS: Final = "a Keras model file"
_EXPORT: Final = "load it in Keras and write a SavedModel: model.export('folder')"
_AS_DATA: Final = "name the model; labelled samples go with it as --data FILE.npz"
_AS_INPUT: Final = "name the model that takes it"


@dataclass(frozen=True)
class Foreign:
    """What a file is that holds no model to prepare, and what to do instead."""

    what: str
    hint: str


# The first bytes of files that people take for models, or give beside them.
_MAGIC: Final = (
    (re.compile(rb"....TFL3", re.DOTALL), "a TensorFlow Lite model, which is prepared already",
     "name the graph or the SavedModel that it was made from"),
    (re.compile(rb"\x89HDF\r\n\x1a\n"), _KERAS + " (HDF5)", _EXPORT),
    (re.compile(rb"PK\x03\x04.{26}(config\.json|metadata\.json|model\.weights\.h5)", re.DOTALL),
     _KERAS + " (.keras)", _EXPORT),
    (re.compile(rb"PK\x03\x04.{26}[^\0]{1,200}?\.npy", re.DOTALL),
     "a NumPy archive of arrays (.npz)", _AS_DATA),
    (re.compile(rb"PK\x03\x04|PK\x05\x06"), "a zip archive", "unpack it, and name what is inside"),
    (re.compile(rb"\x93NUMPY"), "a NumPy array (.npy)", _AS_DATA),
    (re.compile(rb"\xff\xd8\xff"), "a picture (JPEG)", _AS_INPUT),
    (re.compile(rb"\x89PNG\r\n"), "a picture (PNG)", _AS_INPUT),
    (re.compile(rb"GIF8"), "a picture (GIF)", _AS_INPUT),
    (re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL), "a picture (BMP)", _AS_INPUT),
    (re.compile(rb"RIFF.{4}WAVE", re.DOTALL), "a sound (WAV)", _AS_INPUT),
    (re.compile(rb"\x1f\x8b|BZh|\xfd7zXZ\0|\x28\xb5\x2f\xfd"), "a compressed file",
     "unpack it, and name what is inside"),
    (re.compile(rb"\x08[\x01-\x0f]\x12.{1,40}(pytorch|onnx|keras2onnx|tf2onnx)", re.DOTALL),
     "an ONNX model", "name the TensorFlow model that it was made from"),
    (re.compile(rb"\s*\{.{0,400}\"(modelTopology|weightsManifest)\"", re.DOTALL),
     "a TensorFlow.js model", "name the SavedModel that it was made from"),
)  # fmt: skip


def file_kind(path: Path) -> FileKind | Foreign | None:
    """What a file is; None where its content does not tell.

    Args:
        path: a file, whatever its name ends in.

    Raises:
        CorruptFileError: it is missing, unreadable, no regular file, or empty.
    """
    head, tail = _ends(path)
    if tail.endswith(MAGIC):
        return "checkpoint index" if path.name.endswith(".index") else "checkpoint table"
    if _DATA.match(path.name):
        return "checkpoint data"
    if ends_as_package(tail):
        return "GraphDef"
    foreign = _foreign(head)
    if foreign is not None:
        return foreign
    if b"\0" not in head and is_state_file(path):
        return "checkpoint state"
    return kind_of(map_file(path))


def _foreign(head: bytes) -> Foreign | None:
    for magic, what, hint in _MAGIC:
        if magic.match(head):
            return Foreign(what, hint)
    return None


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = "is no regular file"
            raise CorruptFileError(message, "name a model's file or folder", str(path))
        with opened(path) as stream:
            head = stream.read(_PROBE)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _PROBE, 0))
            tail = stream.read(_PROBE)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head:
        message = "is empty"
        raise CorruptFileError(message, "export the model again", str(path))
    return head, tail

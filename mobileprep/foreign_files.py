"""Recognize files that are not TensorFlow models, and say what to do with each.

Every reader of a model uses this module, so that all verbs, ``validate``, and ``build`` report such
a file in the same words.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from mobileprep.errors import CorruptFileError, MobileprepError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.regular_files import opened

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


@dataclass(frozen=True)
class Foreign:
    """A file format that holds no model to prepare.

    Args:
        what: the format, with its article.
        hint: what to do instead.
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
    """Reject the content of a file that holds no model.

    Raises:
        UnsupportedError: naming its format.
    """
    found = foreign_format(data)
    if found is not None:
        message = f"is {found.what}"
        raise UnsupportedError(message, found.hint, file)


def directory_error(path: Path, where: str = "", shown: str = "") -> CorruptFileError:
    """The error for a directory in the place of a file.

    Args:
        path: the directory.
        where: the line of a recipe that names it.
        shown: the path as the recipe names it.
    """
    # os.path answers, where Path raises, for names too long.
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
    """The error for a file in the place of a SavedModel's directory; see ``directory_error``."""
    try:
        with opened(path) as stream:
            found = foreign_format(stream.read(PROBE))
    except OSError as error:
        from mobileprep.fsio import unreadable  # slow to import, and only failures need it

        failure = unreadable(path, error)
        return failure.at(where, message=f"{shown} {failure.message}") if where else failure
    if found is not None:
        message = _about(f"is {found.what}", shown)
        return UnsupportedError(message, found.hint, where or str(path))
    message = _about("is a file, not the directory of a SavedModel", shown)
    hint = (
        f"name the directory that holds {_SAVED_MODEL_NAMES[0]}; a graph goes under `frozen:` or "
        "`graph:` of a recipe, or `--input_graph` of `mobileprep freeze`"
    )
    return CorruptFileError(message, hint, where or str(path))


def _about(message: str, shown: str) -> str:
    return f"{shown} {message}" if shown else message


def _is_onnx(head: bytes) -> bool:
    """Whether the first fields are those of an ONNX ModelProto rather than of a SavedModel.

    Both begin with a version number. The second field of a SavedModel is a MetaGraphDef under tag
    2, which begins with a control character; under that tag ONNX has a producer's name.
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

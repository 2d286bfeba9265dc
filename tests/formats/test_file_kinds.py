"""Detection of files by content: models, checkpoints, and other formats."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

from mobileprep.core.paths import Foreign
from mobileprep.errors import CorruptFileError
from mobileprep.formats.kinds import file_kind
from tests.formats.checkpoint_writer import write_bundle


def zipped(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return stream.getvalue()


def arrays():
    stream = io.BytesIO()
    np.savez(stream, x=np.zeros(3))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x1c\0\0\0TFL3\0\0\0\0", "a LiteRT model"),
        (b"\x89HDF\r\n\x1a\n\0\0", "a Keras model file (HDF5)"),
        (zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model file (.keras)"),
        (arrays(), "a NumPy archive of arrays"),
        (zipped("notes.txt"), "a zip archive"),
        (b"\x93NUMPY\x01\0", "a NumPy array"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image (JPEG)"),
        (b"\x89PNG\r\n\x1a\n", "an image (PNG)"),
        (b"RIFF\0\0\0\0WAVEfmt ", "an audio file"),
        (b"\x1f\x8b\x08", "a compressed file"),
        (b'{"format": "graph-model", "modelTopology": {}}', "a TensorFlow.js model"),
    ],
)
def test_other_formats_are_named_with_a_hint(tmp_path, data, what):
    path = tmp_path / "model.pb"
    path.write_bytes(data)
    kind = file_kind(path)
    assert isinstance(kind, Foreign)
    assert kind.what.startswith(what)
    assert kind.hint


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.txt", b'node { name: "x" op: "NoOp" }', "GraphDef"),
        ("a.jpg", b"\x0a\x09\x0a\x01x\x12\x04NoOp", "GraphDef"),
        ("a.pb", b'graph_def { node { name: "x" } }', "MetaGraphDef"),
        ("a.pb", b"\x08\x01\x12\x00", "SavedModel"),
        ("checkpoint", b'model_checkpoint_path: "m"', "checkpoint state"),
        ("m.data-00000-of-00001", b"\x08\x01\x12\x00", "checkpoint data"),
        ("notes.md", b"words", None),
        ("noise", b"\xff" * 64, None),
    ],
)
def test_content_decides_not_the_file_name(tmp_path, name, data, kind):
    path = tmp_path / name
    path.write_bytes(data)
    assert file_kind(path) == kind


def test_checkpoint_tables(tmp_path):
    write_bundle(tmp_path / "m", {"w": np.zeros(2, np.float32)})
    assert file_kind(tmp_path / "m.index") == "checkpoint index"
    (tmp_path / "m.index").rename(tmp_path / "old")
    assert file_kind(tmp_path / "old") == "checkpoint table"


def test_unreadable_files_are_reported(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    for name, message in (
        ("fifo", "not a regular file"),
        ("empty", "is empty"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(CorruptFileError, match=message):
            file_kind(tmp_path / name)

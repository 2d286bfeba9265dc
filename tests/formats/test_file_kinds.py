"""Files told by content: models, checkpoints, and what people take for them."""

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
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return made.getvalue()


def arrays():
    made = io.BytesIO()
    np.savez(made, x=np.zeros(3))
    return made.getvalue()


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
def test_what_is_no_model_is_told_with_what_to_do(tmp_path, data, what):
    path = tmp_path / "model.pb"
    path.write_bytes(data)
    found = file_kind(path)
    assert isinstance(found, Foreign)
    assert found.what.startswith(what)
    assert found.hint


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
def test_the_name_does_not_tell_what_the_content_does(tmp_path, name, data, kind):
    path = tmp_path / name
    path.write_bytes(data)
    assert file_kind(path) == kind


def test_the_tables_of_checkpoints(tmp_path):
    write_bundle(tmp_path / "m", {"w": np.zeros(2, np.float32)})
    assert file_kind(tmp_path / "m.index") == "checkpoint index"
    (tmp_path / "m.index").rename(tmp_path / "old")
    assert file_kind(tmp_path / "old") == "checkpoint table"


def test_no_file_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    for name, told in (
        ("fifo", "not a regular file"),
        ("empty", "is empty"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(CorruptFileError, match=told):
            file_kind(tmp_path / name)

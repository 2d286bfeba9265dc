"""Detection of the format of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.opening import data_kind
from mobileprep.data.source import DataFiles
from mobileprep.errors import CorruptFileError
from tests.data.made import write


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("d.npz", "npz"),
        ("d.NPY", "npy"),
        ("d.csv", "csv"),
        ("d.tfrecord", "tfrecord"),
        ("d.py", "python"),
    ],
)
def test_format_follows_from_the_extension(tmp_path: Path, name: str, kind: str) -> None:
    assert data_kind(DataFiles(name, write(tmp_path / name, b""))) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a/b.JPG", "pictures"), ("b.wav", "wav"), ("train-00000-of-00001", "tfrecord")],
)
def test_format_of_a_directory_follows_from_its_files(tmp_path: Path, name: str, kind: str) -> None:
    write(tmp_path / "README.md", b"")
    write(tmp_path / name, b"")
    assert data_kind(DataFiles("d", tmp_path)) == kind


def test_arrays_are_detected_by_content(tmp_path: Path) -> None:
    with (tmp_path / "data").open("wb") as stream:
        np.savez(stream, x=np.ones(2))
    assert data_kind(DataFiles("data", tmp_path / "data")) == "npz"
    with (tmp_path / "data").open("wb") as stream:
        np.save(stream, np.ones(2))
    assert data_kind(DataFiles("data", tmp_path / "data")) == "npy"


def test_unknown_formats_are_reported(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"cannot detect the format of d\.bin"):
        data_kind(DataFiles("d.bin", write(tmp_path / "d.bin", b"?")))
    with pytest.raises(CorruptFileError, match="holds neither images nor audio"):
        data_kind(DataFiles("d", tmp_path))
    write(tmp_path / "a.png", b"")
    write(tmp_path / "a.wav", b"")
    with pytest.raises(CorruptFileError, match="holds pictures and wav"):
        data_kind(DataFiles("d", tmp_path))

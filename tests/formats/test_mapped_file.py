from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from mobileprep.core.files import map_file, view_file
from mobileprep.errors import CorruptFileError

both = pytest.mark.parametrize("view", [map_file, view_file])


@both
def test_view_is_read_only(tmp_path, view):
    path = tmp_path / "data"
    path.write_bytes(b"bytes")
    assert view(path) == b"bytes"
    assert view(path).readonly


@both
def test_empty_file_gives_an_empty_view(tmp_path, view):
    path = tmp_path / "data"
    path.touch()
    assert len(view(path)) == 0


@both
def test_missing_file_is_reported(tmp_path, view):
    with pytest.raises(CorruptFileError, match="missing: cannot be read"):
        view(tmp_path / "missing")


def test_small_file_is_copied_and_large_file_is_mapped(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"bytes")
    view = view_file(path)
    os.truncate(path, 0)
    assert view == b"bytes"
    os.truncate(path, (4 << 20) + 1)
    assert isinstance(view_file(path).obj, mmap.mmap)


@both
def test_device_is_not_read(view):
    assert len(view(Path("/dev/zero"))) == 0

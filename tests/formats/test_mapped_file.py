from __future__ import annotations

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.mapped_file import map_file


def test_gives_a_read_only_view(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"bytes")
    view = map_file(path)
    assert view == b"bytes"
    assert view.readonly


def test_an_empty_file_gives_an_empty_view(tmp_path):
    path = tmp_path / "data"
    path.touch()
    assert len(map_file(path)) == 0


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorruptFileError, match="missing: cannot be read"):
        map_file(tmp_path / "missing")

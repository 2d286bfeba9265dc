from __future__ import annotations

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_files import is_state_file, newest_path

TEXT = """model_checkpoint_path: "model.ckpt-20"
all_model_checkpoint_paths: "model.ckpt-10"
all_model_checkpoint_paths: "model.ckpt-20"
all_model_checkpoint_timestamps: 1.6e9
last_preserved_timestamp: 1600000000.5
"""


def state(tmp_path, text, name="checkpoint"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_newest_checkpoint_is_read(tmp_path):
    assert newest_path(state(tmp_path, TEXT)) == "model.ckpt-20"


def test_escapes_and_unknown_fields_are_read(tmp_path):
    text = "# saved\nmodel_checkpoint_path: '/a\\\\b/m\\303\\244'\nnew_field { x: 1 }"
    assert newest_path(state(tmp_path, text)) == "/a\\b/mä"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no checkpoint"),
        ('all_model_checkpoint_paths: "a"', "names no checkpoint"),
        ('model_checkpoint_path: "a', "checkpoint:1:"),
        ("model_checkpoint_path: 7", "checkpoint:1:"),
        (b'model_checkpoint_path: "\xff"', "checkpoint:1:"),
        ("garbage", "checkpoint:1:"),
        ("# " + "x" * (1 << 20), "is 1048578 bytes long"),
    ],
)
def test_state_file_without_a_checkpoint_is_refused(tmp_path, text, message):
    with pytest.raises(CorruptFileError, match=message):
        newest_path(state(tmp_path, text))


def test_state_file_is_detected_by_name_or_content(tmp_path):
    assert is_state_file(state(tmp_path, "# anything\n"))
    assert is_state_file(state(tmp_path, "\n" + TEXT, "latest"))
    assert not is_state_file(state(tmp_path, "text", "model.pbtxt"))
    assert not is_state_file(state(tmp_path, b"a table\0of a V1 checkpoint"))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(CorruptFileError, match="checkpoint: cannot be read"):
        newest_path(tmp_path / "checkpoint")

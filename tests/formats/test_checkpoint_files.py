"""Tests."""

from __future__ import annotations

import os

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_files import (
    CheckpointFiles,
    find_checkpoint,
    is_state_file,
    newest_path,
    shard_paths,
)
from tests.formats.checkpoint_writer import table

V2 = ("m.ckpt-10.index", "m.ckpt-10.data-00000-of-00001", "m.ckpt-10.meta")
V1 = ("old-5", "old-5.meta")
V1_TABLES = ("wide-00000-of-00002", "wide-00001-of-00002", "wide.meta")


def create_files(folder, *names):
    for name in names:
        (folder / name).write_bytes(table([]))
    return folder


def hint_of(path):
    with pytest.raises(CorruptFileError) as caught:
        find_checkpoint(path)
    assert str(path.parent) in str(caught.value)
    return caught.value.hint


@pytest.mark.parametrize("name", ["m.ckpt-10", *V2])
def test_prefix_and_files_of_a_v2_checkpoint_find_it(tmp_path, name):
    checkpoint = find_checkpoint(create_files(tmp_path, *V2) / name)
    assert checkpoint == CheckpointFiles(tmp_path / "m.ckpt-10")
    assert not checkpoint.is_v1


@pytest.mark.parametrize("name", V1)
def test_table_and_meta_file_find_a_v1_checkpoint(tmp_path, name):
    checkpoint = find_checkpoint(create_files(tmp_path, *V1) / name)
    assert checkpoint == CheckpointFiles(tmp_path / "old-5", (tmp_path / "old-5",))
    assert checkpoint.is_v1


@pytest.mark.parametrize("name", ["wide", "wide-?????-of-00002", *V1_TABLES])
def test_prefix_pattern_and_tables_find_a_sharded_v1_checkpoint(tmp_path, name):
    checkpoint = find_checkpoint(create_files(tmp_path, *V1_TABLES) / name)
    assert checkpoint == CheckpointFiles(
        tmp_path / "wide", tuple(tmp_path / n for n in V1_TABLES[:2])
    )


def test_v2_format_is_preferred(tmp_path):
    create_files(tmp_path, *V2, "m.ckpt-10")
    assert not find_checkpoint(tmp_path / "m.ckpt-10").is_v1


def test_missing_v1_table_is_reported(tmp_path):
    create_files(tmp_path, "wide-00000-of-00003", "wide-00002-of-00003")
    with pytest.raises(CorruptFileError, match="wide-00001-of-00003: part 2 of 3"):
        find_checkpoint(tmp_path / "wide")


def test_tables_of_two_checkpoints_are_ambiguous(tmp_path):
    create_files(tmp_path, *V1_TABLES, "wide-00000-of-00001")
    with pytest.raises(CorruptFileError, match="of 1 and of 2 files"):
        find_checkpoint(tmp_path / "wide")
    assert len(find_checkpoint(tmp_path / "wide-00000-of-00002").tables) == 2
    assert len(find_checkpoint(tmp_path / "wide-?????-of-00001").tables) == 1


@pytest.mark.parametrize("names", [V2, V1[:1], V1_TABLES])
def test_directory_with_one_checkpoint(tmp_path, names):
    checkpoint = find_checkpoint(create_files(tmp_path, *names))
    assert checkpoint.prefix.name in ("m.ckpt-10", "old-5", "wide")


def write_state(folder, name):
    text = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "old-5"\n'
    (folder / "checkpoint").write_text(text)
    return folder


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("by_file", [True, False])
def test_state_file_selects_the_newest_checkpoint(tmp_path, absolute, by_file):
    create_files(tmp_path, *V2, *V1)
    write_state(tmp_path, f"{tmp_path}/m.ckpt-10" if absolute else "m.ckpt-10")
    path = tmp_path / "checkpoint" if by_file else tmp_path
    assert find_checkpoint(path).prefix == tmp_path / "m.ckpt-10"


@pytest.mark.parametrize("path", ["/gone/m.ckpt-10", "gone/m.ckpt-10", "C:\\\\gone\\\\m.ckpt-10"])
def test_moved_directory_is_searched_for_the_same_name(tmp_path, path):
    create_files(tmp_path, *V2, *V1)
    write_state(tmp_path, path)
    assert find_checkpoint(tmp_path).prefix == tmp_path / "m.ckpt-10"


def test_state_file_with_a_pattern(tmp_path):
    create_files(tmp_path, *V1_TABLES)
    write_state(tmp_path, "/gone/wide-?????-of-00002")
    assert len(find_checkpoint(tmp_path).tables) == 2


@pytest.mark.parametrize("name", ["m.ckpt-99", "", "/", "a\\000b", "..", "n" * 5_000])
def test_state_file_with_a_missing_checkpoint_is_refused(tmp_path, name):
    create_files(tmp_path, *V2, *V1)
    write_state(tmp_path, name)
    hint_of(tmp_path / "checkpoint")


def test_v1_table_named_like_a_state_file(tmp_path):
    create_files(tmp_path, "checkpoint")
    assert find_checkpoint(tmp_path).is_v1
    assert find_checkpoint(tmp_path / "checkpoint").is_v1


def test_wrong_prefix_suggests_existing_checkpoints(tmp_path):
    create_files(tmp_path, *V2, *V1, *V1_TABLES)
    (tmp_path / "notes.txt").write_text("no checkpoint")
    hint = hint_of(tmp_path / "m.ckpt-11")
    assert hint == "did you mean 'm.ckpt-10'? the folder holds: m.ckpt-10, old-5, wide"


def test_long_list_of_checkpoints_is_abbreviated(tmp_path):
    create_files(tmp_path, *(f"m-{i:02d}.index" for i in range(15)))
    assert hint_of(tmp_path / "x").endswith("m-09 and 5 more")


def test_several_checkpoints_without_a_state_file_are_refused(tmp_path):
    create_files(tmp_path, *V2, *V1)
    assert "m.ckpt-10, old-5" in hint_of(tmp_path)


def test_missing_files_are_reported(tmp_path):
    assert "correct the path" in hint_of(tmp_path / "missing" / "m")
    assert hint_of(tmp_path / "m") == "the folder holds no checkpoint"
    with pytest.raises(CorruptFileError, match="holds no checkpoint"):
        find_checkpoint(tmp_path)
    create_files(tmp_path, *V2[1:])
    assert hint_of(tmp_path / V2[1]) == "copy m.ckpt-10.index to the same directory"


@pytest.mark.parametrize("name", ["a\0b", "n" * 5_000, "x" * 300 + ".index"])
def test_invalid_file_name_is_refused(tmp_path, name):
    hint_of(tmp_path / name)


def test_fifo_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "m")
    assert hint_of(tmp_path / "m") == "the folder holds no checkpoint"


def test_existing_data_files_are_listed(tmp_path):
    create_files(tmp_path, "m.data-00000-of-00002", "m.data-00001-of-00002")
    assert [p.name for p in shard_paths(tmp_path / "m", 2)] == [
        "m.data-00000-of-00002",
        "m.data-00001-of-00002",
    ]
    with pytest.raises(CorruptFileError, match="part 1 of 3"):
        shard_paths(tmp_path / "m", 3)


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

from __future__ import annotations

import os

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_files import CheckpointFiles, find_checkpoint, shard_paths
from tests.formats.checkpoint_writer import table

V2 = ("m.ckpt-10.index", "m.ckpt-10.data-00000-of-00001", "m.ckpt-10.meta")
V1 = ("old-5", "old-5.meta")
V1_TABLES = ("wide-00000-of-00002", "wide-00001-of-00002", "wide.meta")


def touch(folder, *names):
    for name in names:
        (folder / name).write_bytes(table([]))
    return folder


def hint_of(path):
    with pytest.raises(CorruptFileError) as caught:
        find_checkpoint(path)
    assert str(path.parent) in str(caught.value)
    return caught.value.hint


@pytest.mark.parametrize("name", ["m.ckpt-10", *V2])
def test_prefix_and_members_lead_to_a_v2_set(tmp_path, name):
    found = find_checkpoint(touch(tmp_path, *V2) / name)
    assert found == CheckpointFiles(tmp_path / "m.ckpt-10")
    assert not found.is_v1


@pytest.mark.parametrize("name", V1)
def test_file_and_meta_lead_to_a_v1_table(tmp_path, name):
    found = find_checkpoint(touch(tmp_path, *V1) / name)
    assert found == CheckpointFiles(tmp_path / "old-5", (tmp_path / "old-5",))
    assert found.is_v1


@pytest.mark.parametrize("name", ["wide", "wide-?????-of-00002", *V1_TABLES])
def test_prefix_pattern_and_members_lead_to_all_v1_tables(tmp_path, name):
    found = find_checkpoint(touch(tmp_path, *V1_TABLES) / name)
    assert found == CheckpointFiles(tmp_path / "wide", tuple(tmp_path / n for n in V1_TABLES[:2]))


def test_the_newer_format_is_preferred(tmp_path):
    touch(tmp_path, *V2, "m.ckpt-10")
    assert not find_checkpoint(tmp_path / "m.ckpt-10").is_v1


def test_a_missing_v1_table_is_named(tmp_path):
    touch(tmp_path, "wide-00000-of-00003", "wide-00002-of-00003")
    with pytest.raises(CorruptFileError, match="wide-00001-of-00003: part 2 of 3"):
        find_checkpoint(tmp_path / "wide")


def test_tables_of_two_checkpoints_are_told_apart(tmp_path):
    touch(tmp_path, *V1_TABLES, "wide-00000-of-00001")
    with pytest.raises(CorruptFileError, match="of 1 and of 2 files"):
        find_checkpoint(tmp_path / "wide")
    assert len(find_checkpoint(tmp_path / "wide-00000-of-00002").tables) == 2
    assert len(find_checkpoint(tmp_path / "wide-?????-of-00001").tables) == 1


@pytest.mark.parametrize("names", [V2, V1[:1], V1_TABLES])
def test_a_folder_with_one_checkpoint_leads_to_it(tmp_path, names):
    found = find_checkpoint(touch(tmp_path, *names))
    assert found.prefix.name in ("m.ckpt-10", "old-5", "wide")


def write_state(folder, named):
    text = f'model_checkpoint_path: "{named}"\nall_model_checkpoint_paths: "old-5"\n'
    (folder / "checkpoint").write_text(text)
    return folder


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("by_file", [True, False])
def test_a_state_file_names_the_newest(tmp_path, absolute, by_file):
    touch(tmp_path, *V2, *V1)
    write_state(tmp_path, f"{tmp_path}/m.ckpt-10" if absolute else "m.ckpt-10")
    path = tmp_path / "checkpoint" if by_file else tmp_path
    assert find_checkpoint(path).prefix == tmp_path / "m.ckpt-10"


@pytest.mark.parametrize("former", ["/gone/m.ckpt-10", "gone/m.ckpt-10", "C:\\\\gone\\\\m.ckpt-10"])
def test_a_folder_that_moved_is_searched_for_the_same_name(tmp_path, former):
    touch(tmp_path, *V2, *V1)
    write_state(tmp_path, former)
    assert find_checkpoint(tmp_path).prefix == tmp_path / "m.ckpt-10"


def test_a_state_file_may_name_a_pattern(tmp_path):
    touch(tmp_path, *V1_TABLES)
    write_state(tmp_path, "/gone/wide-?????-of-00002")
    assert len(find_checkpoint(tmp_path).tables) == 2


@pytest.mark.parametrize("named", ["m.ckpt-99", "", "/", "a\\000b", "..", "n" * 5_000])
def test_a_state_file_that_names_nothing_there_is_refused(tmp_path, named):
    touch(tmp_path, *V2, *V1)
    write_state(tmp_path, named)
    hint_of(tmp_path / "checkpoint")


def test_a_v1_table_may_bear_the_name_of_a_state_file(tmp_path):
    touch(tmp_path, "checkpoint")
    assert find_checkpoint(tmp_path).is_v1
    assert find_checkpoint(tmp_path / "checkpoint").is_v1


def test_a_wrong_prefix_names_those_that_are_there(tmp_path):
    touch(tmp_path, *V2, *V1, *V1_TABLES)
    (tmp_path / "notes.txt").write_text("no checkpoint")
    hint = hint_of(tmp_path / "m.ckpt-11")
    assert hint == "did you mean 'm.ckpt-10'? the folder holds: m.ckpt-10, old-5, wide"


def test_a_long_list_is_cut(tmp_path):
    touch(tmp_path, *(f"m-{i:02d}.index" for i in range(15)))
    assert hint_of(tmp_path / "x").endswith("m-09 and 5 more")


def test_a_folder_of_several_without_a_state_file_is_refused(tmp_path):
    touch(tmp_path, *V2, *V1)
    assert "m.ckpt-10, old-5" in hint_of(tmp_path)


def test_what_is_missing_is_told(tmp_path):
    assert "correct the path" in hint_of(tmp_path / "missing" / "m")
    assert hint_of(tmp_path / "m") == "the folder holds no checkpoint"
    with pytest.raises(CorruptFileError, match="holds no checkpoint"):
        find_checkpoint(tmp_path)
    touch(tmp_path, *V2[1:])
    assert hint_of(tmp_path / V2[1]) == "copy m.ckpt-10.index to the same directory"


@pytest.mark.parametrize("name", ["a\0b", "n" * 5_000, "x" * 300 + ".index"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    hint_of(tmp_path / name)


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "m")
    assert hint_of(tmp_path / "m") == "the folder holds no checkpoint"


def test_data_files_are_listed_while_they_are_there(tmp_path):
    touch(tmp_path, "m.data-00000-of-00002", "m.data-00001-of-00002")
    assert [p.name for p in shard_paths(tmp_path / "m", 2)] == [
        "m.data-00000-of-00002",
        "m.data-00001-of-00002",
    ]
    with pytest.raises(CorruptFileError, match="part 1 of 3"):
        shard_paths(tmp_path / "m", 3)

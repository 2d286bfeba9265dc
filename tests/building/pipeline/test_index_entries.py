"""What an index of files holds, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from mobileprep.building.pipeline.cache_files import seal
from mobileprep.building.pipeline.file_index import (
    MARGIN_NS,
    FileStamp,
    IndexEntry,
    load_entries,
    parse,
    save_entries,
)

STAMP = FileStamp(1, 2, 3, 1_000, 2_000)
ENTRY = IndexEntry("a" * 64, 2_000 + MARGIN_NS, STAMP)


def test_a_stamp_is_what_stat_tells(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    found = (tmp_path / "file").stat()
    stamp = FileStamp.of(found)
    assert stamp.size == 3
    assert stamp.text() == (
        f"{found.st_dev} {found.st_ino} 3 {found.st_mtime_ns} {found.st_ctime_ns}"
    )


def test_an_entry_is_settled_once_no_change_can_have_its_times() -> None:
    moment = ENTRY.moment
    assert ENTRY.settled(moment)
    assert ENTRY.settled(moment + 1)
    assert not ENTRY.settled(moment - 1), "the clock was set back"
    assert not structs.replace(ENTRY, moment=moment - 1).settled(moment)
    newer = structs.replace(STAMP, mtime_ns=2_001)
    assert not structs.replace(ENTRY, stamp=newer).settled(moment)
    assert not structs.replace(ENTRY, moment=0).settled(moment)


def test_an_entry_is_read_for_the_stamp_that_it_was_written_for() -> None:
    assert parse(ENTRY.text(), STAMP) == ENTRY
    for name in ("device", "inode", "size", "mtime_ns", "ctime_ns"):
        other = structs.replace(STAMP, **{name: 77})
        assert parse(ENTRY.text(), other) is None
    before_1970 = structs.replace(STAMP, mtime_ns=-5)
    assert parse(structs.replace(ENTRY, stamp=before_1970).text(), before_1970) is not None


@pytest.mark.parametrize(
    "text",
    [None, "", "x", f"{'a' * 63} 5 {STAMP.text()}", f"{'A' * 64} 5 {STAMP.text()}"],
)
def test_what_is_no_entry_is_none(text: str | None) -> None:
    assert parse(text, STAMP) is None
    assert parse(f"{'a' * 64} -5 {STAMP.text()}", STAMP) is None


def test_entries_come_back_from_their_file(tmp_path: Path) -> None:
    entries = {"/a": "one", "/b \udcff": "two"}
    save_entries(tmp_path / "deep" / "index.json", entries)
    assert load_entries(tmp_path / "deep" / "index.json") == entries


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"paths": ["/a"]},
        {"paths": ["/a"], "entries": []},
        {"paths": ["/a"], "entries": [5]},
        {"paths": [5], "entries": ["one"]},
        {"paths": 5, "entries": 5},
    ],
)
def test_a_file_of_another_form_has_no_entries(tmp_path: Path, data: object) -> None:
    path = tmp_path / "index.json"
    assert load_entries(path) == {}
    path.write_bytes(seal("file index 1", data))
    assert load_entries(path) == {}
    path.write_bytes(seal("file index 0", {"paths": ["/a"], "entries": ["one"]}))
    assert load_entries(path) == {}

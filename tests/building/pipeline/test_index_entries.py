"""What an index of files holds, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs, to_builtins

from mobileprep.building.pipeline.cache_files import seal
from mobileprep.building.pipeline.file_index import (
    MARGIN_NS,
    FileStamp,
    IndexEntry,
    load_entries,
)

STAMP = FileStamp(1, 2, 3, 1_000, 2_000)
ENTRY = IndexEntry("a" * 64, 2_000 + MARGIN_NS, STAMP)
PLAIN = to_builtins(ENTRY)


def test_stamp_matches_stat(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    facts = (tmp_path / "file").stat()
    numbers = (facts.st_dev, facts.st_ino, 3, facts.st_mtime_ns, facts.st_ctime_ns)
    assert structs.astuple(FileStamp.of(facts)) == numbers


def test_an_entry_is_settled_once_no_change_can_have_its_times() -> None:
    moment = ENTRY.moment
    assert ENTRY.settled(moment)
    assert ENTRY.settled(moment + 1)
    assert not ENTRY.settled(moment - 1), "the clock was set back"
    assert not structs.replace(ENTRY, moment=moment - 1).settled(moment)
    newer = structs.replace(STAMP, mtime_ns=2_001)
    assert not structs.replace(ENTRY, stamp=newer).settled(moment)
    assert not structs.replace(ENTRY, moment=0).settled(moment)


def test_entries_come_back_from_their_file(tmp_path: Path) -> None:
    before_1970 = structs.replace(ENTRY, stamp=structs.replace(STAMP, mtime_ns=-5))
    entries = {"/a": ENTRY, "/b \udcff": before_1970}
    (tmp_path / "index.json").write_bytes(seal("file index 2", to_builtins(entries)))
    assert load_entries(tmp_path / "index.json") == entries


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], 5, {"/a": None}, {"/a": "one"}, {"/a": PLAIN[:2]}, {"/a": {}}),
        {"/a": ["A" * 64, *PLAIN[1:]]},
        {"/a": ["a" * 63, *PLAIN[1:]]},
        {"/a": [PLAIN[0], -1, PLAIN[2]]},
        {"/a": [PLAIN[0], 1.5, PLAIN[2]]},
        {"/a": [PLAIN[0], int("9" * 400), PLAIN[2]]},
        {"/a": [*PLAIN[:2], [1, 2, 3]]},
        {"/a": [*PLAIN[:2], ["1", 2, 3, 4, 5]]},
    ],
)
def test_a_file_of_another_form_has_no_entries(tmp_path: Path, data: object) -> None:
    path = tmp_path / "index.json"
    assert load_entries(path) == {}
    path.write_bytes(seal("file index 2", data))
    entries = load_entries(path)
    assert not any(entry.settled(1 << 62) for entry in entries.values())
    path.write_bytes(seal("file index 1", {"/a": PLAIN}))
    assert load_entries(path) == {}

"""The system's locks, as folders are locked by them."""

from __future__ import annotations

import os
from pathlib import Path

from mobileprep.building.pipeline.store_lock import try_lock


def test_a_file_that_is_open_twice_is_locked_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first) is True
    assert try_lock(second) is False
    os.close(first)
    assert try_lock(second) is True
    os.close(second)


def test_what_cannot_be_locked_is_told_from_what_is_held() -> None:
    assert try_lock(987654) is None

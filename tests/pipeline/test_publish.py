"""What brings a target's folder up to date."""

from __future__ import annotations

from pathlib import Path

from mobileprep.pipeline.publish import Changes


def test_changes_are_true_where_there_is_something_to_do() -> None:
    assert not Changes(Path("a"), (), (), b"")
    assert Changes(Path("a"), ("new",), (), b"")
    assert Changes(Path("a"), (), ("old",), b"")

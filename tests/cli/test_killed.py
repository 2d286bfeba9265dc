"""Killed builds leave no partial files, and the next build completes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.building.pipeline.killed import kill_builds


@pytest.mark.slow
def test_killed_builds_leave_only_complete_files(
    tmp_path: Path,
) -> None:
    result = kill_builds(tmp_path, count=10, seed=5)
    assert result.killed

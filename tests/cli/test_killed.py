"""A build killed at any moment leaves nothing half-written, and the next one mends all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.building.pipeline.killed import kill_builds


@pytest.mark.slow
def test_a_killed_build_leaves_whole_files_and_the_next_gives_the_same_bytes(
    tmp_path: Path,
) -> None:
    result = kill_builds(tmp_path, count=10, seed=5)
    assert result.killed

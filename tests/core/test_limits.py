"""Memory limits from the command line and recipes, shared by concurrent runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mobileprep.core.limits import machine_memory, memory_limit, set_limits, shared_memory


@pytest.fixture(autouse=True)
def default_limits() -> Iterator[None]:
    set_limits()
    yield
    set_limits()


def test_concurrent_runs_share_the_limit() -> None:
    limit = memory_limit()
    assert limit == machine_memory() // 2
    with shared_memory(4):
        assert memory_limit() == limit // 4
    with shared_memory(0):
        assert memory_limit() == limit
    assert memory_limit() == limit


def test_smallest_recipe_limit_applies() -> None:
    with shared_memory(2, [None, 3000, 1000]):
        assert memory_limit() == 500
    with shared_memory(1, [None]):
        assert memory_limit() == machine_memory() // 2


def test_command_line_overrides_recipes() -> None:
    set_limits(memory=8000)
    with shared_memory(2, [1000]):
        assert memory_limit() == 4000

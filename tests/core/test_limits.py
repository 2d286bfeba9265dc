"""What runs may take: by the command line, by recipes, and each where several go on at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mobileprep.core.limits import machine_memory, memory_limit, set_limits, shared_memory


@pytest.fixture(autouse=True)
def usual_limits() -> Iterator[None]:
    set_limits()
    yield
    set_limits()


def test_runs_at_once_share_one_memory() -> None:
    whole = memory_limit()
    assert whole == machine_memory() // 2
    with shared_memory(4):
        assert memory_limit() == whole // 4
    with shared_memory(0):
        assert memory_limit() == whole
    assert memory_limit() == whole


def test_recipes_say_how_much_and_the_least_counts() -> None:
    with shared_memory(2, [None, 3000, 1000]):
        assert memory_limit() == 500
    with shared_memory(1, [None]):
        assert memory_limit() == machine_memory() // 2


def test_the_command_line_goes_before_recipes() -> None:
    set_limits(memory=8000)
    with shared_memory(2, [1000]):
        assert memory_limit() == 4000

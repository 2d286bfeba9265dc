"""How long a benchmark goes on."""

from __future__ import annotations

import pytest

from mobileprep.inspection import benchmark_runs as runs
from mobileprep.inspection.benchmark_runs import Pace, time_runs


class Clock:
    """A clock that goes on by a quarter of a second a run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def run(self) -> None:
        self.now += 0.25


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(runs.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(runs, "pause_for", clock.slept.append)
    return clock


@pytest.mark.parametrize(
    ("pace", "count"),
    [
        (Pace(3, 0), 3),
        (Pace(3, -1), 3),
        (Pace(0, 1), 5),  # until more than a second has gone by
        (Pace(-1, 0.5), 3),
        (Pace(2, 10), 2),
        (Pace(100, 0.5), 3),
        (Pace(0, 0), 1),
        (Pace(-1, -1), 1),
    ],
)
def test_runs_go_on_for_their_number_or_their_time(clock: Clock, pace: Pace, count: int) -> None:
    stat = time_runs(clock.run, pace)
    assert (stat.count, stat.total) == (count, 250_000 * count)
    assert clock.slept == [pace.delay] * (count - 1)

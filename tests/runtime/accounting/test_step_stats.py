"""Node times over several runs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.runtime.accounting.step_stats import Stat, StepStats, by_kind
from tests.transforms.graphs import node

RELU, CONV, VIEW = node("r", "Relu"), node("c", "Conv2D"), node("v", "Reshape")
ONES = np.ones((5, 5), np.float32)


def test_stat_as_text() -> None:
    stat = Stat()
    assert str(stat) == "count=0"
    stat.add(10)
    assert str(stat) == "count=1 curr=10"
    stat.add(10)
    assert str(stat) == "count=2 curr=10(all same)"
    stat.add(40)
    assert str(stat) == "count=3 first=10 curr=40 min=10 max=40 avg=20 std=14.1421"


def two_runs() -> StepStats:
    stats = StepStats()
    for seconds in (0.001, 0.003):
        stats([CONV, RELU], 100.0, seconds, [ONES])
        stats([VIEW], 100.002, 0.0005, [ONES])
        stats.end_run()
    return stats


def test_node_times() -> None:
    stats = two_runs()
    conv, view = stats.nodes["c"], stats.nodes["v"]
    assert (conv.kind, conv.calls) == ("Conv2D+Relu", 2)
    assert (conv.elapsed.first, conv.elapsed.mean) == (1000, 2000)
    assert (view.start.mean, view.order) == (2000, 2)
    assert conv.outputs == (("float32", (5, 5)),)


def test_run_totals() -> None:
    stats = two_runs()
    assert (stats.runs, stats.run_times.first, stats.run_times.newest) == (2, 1500, 3500)
    # A view has no memory of its own.
    assert (stats.run_memory.newest, stats.nodes["v"].memory.newest) == (100, 0)


def test_kinds_are_sorted_by_time() -> None:
    first, second = by_kind(two_runs())
    assert first.kind == "Conv2D+Relu"
    assert (first.count, first.micros, first.memory, first.calls) == (1, 2000, 100, 1)
    assert (second.kind, second.micros) == ("Reshape", 500)


def test_stat_as_data() -> None:
    stat = Stat()
    empty = {"count": 0, "first": 0, "min": 0, "max": 0, "avg": 0.0, "std": 0.0}
    assert stat.as_data() == empty
    assert stat.newest == 0
    for value in (4, -2, 1):
        stat.add(value)
    result = stat.as_data()
    # The squares add up to 21; 21 / 3 less the square of the mean, 1.
    assert result.pop("std") == pytest.approx(6**0.5)
    assert result == {"count": 3, "first": 4, "min": -2, "max": 4, "avg": 1.0}
    assert stat.newest == 1


def test_kinds_before_the_first_run_ends() -> None:
    stats = StepStats()
    assert by_kind(stats) == []
    stats([RELU], 1.0, 0.002, [ONES, ONES])
    [kind] = by_kind(stats)
    assert (kind.count, kind.micros, kind.memory, kind.calls) == (1, 2000, 200, 1)


def test_kinds_of_equal_time_are_sorted_by_name_descending() -> None:
    stats = StepStats()
    for step in (RELU, CONV, node("r2", "Relu")):
        stats([step], 1.0, 0.002 if step is CONV else 0.001, [ONES])
    stats.end_run()
    result = [(k.kind, k.count, k.micros, k.memory, k.calls) for k in by_kind(stats)]
    assert result == [("Relu", 2, 2000, 200, 2), ("Conv2D", 1, 2000, 100, 1)]


def test_start_times_are_relative_to_the_run() -> None:
    stats = StepStats()
    stats([RELU], 10.0, 0.001, [ONES])
    stats.end_run()
    stats([RELU], 20.0, 0.001, [ONES])
    assert (stats.nodes["r"].start.newest, stats.runs) == (0, 1)
    stats.end_run()
    assert (stats.run_times.newest, stats.run_memory.newest) == (1000, 100)


def test_strings_have_no_memory() -> None:
    stats = StepStats()
    stats([RELU], 0.0, 0.001, [np.array([b"a", b"b"], object)])
    assert stats.nodes["r"].outputs == (("string", (2,)),)
    assert stats.nodes["r"].memory.newest == 0


def test_times_are_whole_microseconds() -> None:
    stats = StepStats()
    stats([RELU], 0.0, 2.5, [ONES])
    stats.end_run()
    assert (stats.nodes["r"].elapsed.newest, stats.run_times.newest) == (2_500_000, 2_500_000)

"""Times of nodes over several runs."""

from __future__ import annotations

import numpy as np

from mobileprep.runtime.accounting.step_stats import Stat, StepStats, by_kind
from tests.transforms.graphs import node

RELU, CONV, VIEW = node("r", "Relu"), node("c", "Conv2D"), node("v", "Reshape")
ONES = np.ones((5, 5), np.float32)


def test_numbers_in_the_originals_words() -> None:
    stat = Stat()
    assert str(stat) == "count=0"
    stat.add(10)
    assert str(stat) == "count=1 curr=10"
    stat.add(10)
    assert str(stat) == "count=2 curr=10(all same)"
    stat.add(40)
    assert str(stat) == "count=3 first=10 curr=40 min=10 max=40 avg=20 std=14.1421"


def measured() -> StepStats:
    stats = StepStats()
    for seconds in (0.001, 0.003):
        stats([CONV, RELU], 100.0, seconds, [ONES])
        stats([VIEW], 100.002, 0.0005, [ONES])
        stats.end_run()
    return stats


def test_times_are_kept_for_each_node() -> None:
    stats = measured()
    conv, view = stats.nodes["c"], stats.nodes["v"]
    assert (conv.kind, conv.elapsed.first, conv.elapsed.mean, conv.calls) == (
        "Conv2D+Relu",
        1000,
        2000,
        2,
    )
    assert (view.start.mean, view.order) == (2000, 2)
    assert conv.outputs == (("float32", (5, 5)),)


def test_runs_add_up() -> None:
    stats = measured()
    assert (stats.runs, stats.run_times.first, stats.run_times.newest) == (2, 1500, 3500)
    # The view takes no memory of its own.
    assert (stats.run_memory.newest, stats.nodes["v"].memory.newest) == (100, 0)


def test_kinds_are_sorted_by_their_time_in_a_run() -> None:
    first, second = by_kind(measured())
    assert (first.kind, first.count, first.micros, first.memory, first.calls) == (
        "Conv2D+Relu",
        1,
        2000,
        100,
        1,
    )
    assert (second.kind, second.micros) == ("Reshape", 500)

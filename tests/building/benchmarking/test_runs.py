"""How long a benchmark goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from mobileprep.errors import UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.inspection import benchmark_runs as runs
from mobileprep.inspection.benchmark_runs import (
    Pace,
    by_memory,
    by_run_order,
    by_time,
    cost_table,
    kind_table,
    node_table,
    output_layers,
    output_sizes,
    readable,
    time_runs,
    zero_feeds,
)
from mobileprep.runtime.accounting.costs import GraphCosts, NodeCost
from mobileprep.runtime.accounting.step_stats import NodeStats, StepStats
from tests.building.stages.jobs import op, placeholder


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


def test_the_graph_s_ends_are_computed_or_the_layer_that_the_original_asks_for() -> None:
    assert output_layers(Graph([placeholder((1,)), op("y", "Relu", "x")])) == ("y",)
    named = Graph([placeholder((1,)), op("output", "Relu", "x"), op("y", "Relu", "x")])
    assert output_layers(named) == ("output:0",)


def test_a_graph_without_ends_needs_a_name() -> None:
    with pytest.raises(UsageError, match="no layers are named"):
        output_layers(Graph([Node("n", "NoOp")]))


def test_sizes_that_are_not_known_are_1() -> None:
    (found,) = zero_feeds(Graph([placeholder((-1, 3))])).values()
    assert found.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00k"),
        (999_999, "1000.00k"),
        (1_000_000, "1.00M"),
        (11_480_000_000, "11.48B"),
        (5_000_000_000_000_000, "5000.00T"),
    ],
)
def test_counts_are_written_as_tensorflow_does(number: int, expected: str) -> None:
    assert readable(number) == expected


def stats() -> StepStats:
    """Two runs of a, the slow one, and of b and c, which make more."""
    found = StepStats()
    for number, (name, micros, size) in enumerate([("a", 600, 4), ("b", 300, 4000), ("c", 100, 8)]):
        node = NodeStats(name, "Relu" if name == "a" else "Mul", number, calls=2)
        node.outputs = (("float32", (1, size // 4)),)
        for run in range(2):
            node.start.add(number * 1000)
            node.elapsed.add(micros + run)
            node.memory.add(size)
        found.nodes[name] = node
    for run in range(2):
        found.run_times.add(1000 + 3 * run)
    return found


def rows(lines: Iterable[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("\t")[1:]] for line in lines if "\t" in line]


def test_the_columns_of_nodes_are_as_wide_as_the_original_s() -> None:
    # stats_calculator.cc: InitField of 24, 17, 9, 9, 8, 8, 10 and 9 characters, each after a tab.
    title, heads, first, *_ = node_table("Run Order", stats(), by_run_order, 0)
    assert title == f"{'=' * 30} Run Order {'=' * 30}"
    widths = [len(cell) for cell in first.split("\t")[1:-1]]
    assert widths == [24, 17, 9, 9, 8, 8, 10, 9]
    assert heads.split("\t")[2] == "          [start]"
    assert heads.split("\t")[-1] == "[Name]"


def test_a_node_s_line_has_times_shares_and_kilobytes() -> None:
    # 600 and 601 of 1000 and 1003 microseconds.
    assert rows(node_table("t", stats(), by_run_order, 0))[1:] == [
        ["Relu", "0.000", "0.600", "0.601", "59.960%", "59.960%", "0.004", "1", "a"],
        ["Mul", "1.000", "0.300", "0.300", "30.005%", "89.965%", "4.000", "1", "b"],
        ["Mul", "2.000", "0.100", "0.101", "10.035%", "100.000%", "0.008", "1", "c"],
    ]


@pytest.mark.parametrize(
    ("order", "limit", "names"),
    [(by_run_order, 0, "abc"), (by_time, 2, "ab"), (by_memory, 0, "bca"), (by_memory, 1, "b")],
)
def test_nodes_are_sorted_and_only_so_many_are_shown(
    order: Callable[[NodeStats], float], limit: int, names: str
) -> None:
    assert [row[-1] for row in rows(node_table("t", stats(), order, limit))[1:]] == list(names)


def test_types_have_their_counts_and_shares() -> None:
    lines = list(kind_table(stats()))
    assert lines[0] == "Number of nodes executed: 3"
    assert rows(lines)[1:] == [
        ["Relu", "1", "0.600", "60.000%", "60.000%", "0.004", "1"],
        ["Mul", "2", "0.400", "40.000%", "100.000%", "4.008", "2"],
    ]


def test_outputs_have_dtype_rank_and_sizes() -> None:
    assert list(output_sizes(stats()))[1:] == [
        "a\t1\tfloat32\t2\t1\t1",
        "b\t1\tfloat32\t2\t1\t1000",
        "c\t1\tfloat32\t2\t1\t2",
    ]


def test_costs_go_by_operations_and_equal_ones_by_name() -> None:
    nodes = (
        NodeCost("r", "Relu", 10, 400, 600),
        NodeCost("a", "Add", 10, 800, 400),
        NodeCost("m1", "MatMul", 60, 2000, 100),
        NodeCost("m2", "MatMul", 20, 1000, 100),
        NodeCost("o", "Odd", None, 0, 1000),
        NodeCost("s", "Shape", 0, 0, 0),
    )
    assert rows(cost_table(GraphCosts(nodes, 0, 0, 0)))[1:] == [
        ["MatMul", "2", "80", "80.000%", "3.000", "0.200"],
        ["Add", "1", "10", "10.000%", "0.800", "0.400"],
        ["Relu", "1", "10", "10.000%", "0.400", "0.600"],
        ["Odd", "1", "?", "0.000%", "0.000", "1.000"],
    ]

"""Calibration in several processes and on Dask clusters."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.calibration import shards
from mobileprep.data.calibration.observation import ranges_of
from mobileprep.data.calibration.shards import observed
from mobileprep.data.source import Batch
from mobileprep.errors import AccuracyError, UnsupportedError, UsageError
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge
from tests.building.stages.jobs import op, placeholder
from tests.data.calibration.graphs import samples, subject

METHODS = ["min_max", "moving_average", "percentile", "entropy", "mse"]


def ranges(method: str, data=None, **where):
    task = subject(method)
    return ranges_of(observed(task, data or samples(), **where), task.method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_workers_give_the_same_ranges_as_one_process(method) -> None:
    alone, count = ranges(method)
    assert count == 40
    assert ranges(method, workers=3) == (alone, 40)


def test_killed_process_is_replaced(tmp_path: Path) -> None:
    alone, _ = ranges("percentile")
    data = replace(samples(), kills=tmp_path / "killed")
    assert ranges("percentile", data, workers=2) == (alone, 40)
    assert data.kills.exists()


def test_repeatedly_killed_processes_are_reported(tmp_path: Path) -> None:
    data = replace(samples(), kills=tmp_path / "killed", always=True)
    with pytest.raises(AccuracyError, match=r"a process that ran samples .* was killed") as caught:
        ranges("min_max", data, workers=2)
    assert "memory" in caught.value.hint


def test_sample_errors_in_a_worker_are_reported() -> None:
    data = samples()
    data.rows[33, 1] = float("nan")
    with pytest.raises(AccuracyError, match="'x' is NaN or infinite for sample 33"):
        ranges("min_max", data, workers=2)


def test_script_without_main_guard_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(shards.multiprocessing, "parent_process", lambda: object())
    with pytest.raises(UsageError, match="begun again by one of its own processes") as caught:
        ranges("min_max", workers=2)
    assert "if __name__ == '__main__'" in caught.value.hint


def test_number_of_pending_pieces_is_limited() -> None:
    started: list[int] = []

    class Handle:
        def __init__(self, number: int) -> None:
            self.number = number
            started.append(number)

        def result(self) -> int:
            assert len(started) <= self.number + 4
            return self.number

    pieces = [(n, n + 1) for n in range(30)]
    assert list(shards._in_order(lambda p: Handle(p[0]), pieces, 4)) == list(range(30))


def test_missing_distributed_is_reported_with_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnsupportedError, match="distributed is not installed") as caught:
        ranges("min_max", dask="tcp://127.0.0.1:1")
    assert caught.value.hint == "install it: pip install 'mobileprep[dask]'"


@pytest.fixture
def cluster():
    """A local scheduler and two worker processes."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
    ) as local:
        yield local


@pytest.mark.filterwarnings("ignore")  # distributed's own warnings differ by release
class TestDask:
    @pytest.mark.slow
    def test_cluster_gives_the_same_ranges_as_one_process(self, cluster) -> None:
        for method in METHODS:
            assert ranges(method, dask=cluster.scheduler_address) == ranges(method)

    def test_killed_worker_does_not_change_the_ranges(self, cluster, tmp_path: Path) -> None:
        alone, _ = ranges("entropy")
        data = replace(samples(), kills=tmp_path / "killed")
        assert ranges("entropy", data, dask=cluster.scheduler_address) == (alone, 40)
        assert data.kills.exists()

    def test_unreachable_scheduler_is_reported(self, monkeypatch) -> None:
        pytest.importorskip("distributed", reason="distributed is not installed")
        monkeypatch.setattr(shards, "_PATIENCE", "0.5s")
        with pytest.raises(
            UnsupportedError, match=r"no Dask scheduler found at tcp://127\.0\.0\.1:1"
        ):
            ranges("min_max", dask="tcp://127.0.0.1:1")


POOL = np.random.default_rng(8).normal(size=(16, 32, 32, 8)).astype(np.float32)
GRAPH = Graph([placeholder((-1, 32, 32, 8)), op("sum", "AddV2", "x", "x"), op("y", "Relu", "sum")])
TENSORS: tuple[Edge, ...] = (("x", 0), ("sum", 0), ("y", 0))


class Repeated:
    """Images that are generated on demand."""

    name = "repeated"

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def batches(
        self, size: int, start: int = 0, stop: int | None = None, unread: object = None
    ) -> Iterator[Batch]:
        end = self._count if stop is None else stop
        for first in range(start, end, size):
            count = min(size, end - first)
            rows = POOL[np.arange(first, first + count) % len(POOL)]
            yield Batch({"x": rows}, None, ("",) * count)


def peak(method: str, count: int) -> int:
    """The peak of bytes allocated by Python and numpy."""
    task = subject(method, graph=GRAPH, tensors=TENSORS, batch=8)
    tracemalloc.start()
    try:
        ranges, samples = ranges_of(observed(task, Repeated(count)), task.method)
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (set(ranges), samples) == (set(TENSORS), count)
    return allocated


@pytest.mark.slow
@pytest.mark.parametrize("method", ["min_max", "moving_average", "percentile"])
def test_memory_does_not_grow_with_the_samples(method: str) -> None:
    peak(method, 16)  # one-time allocations
    # Free lists of Python grow a little; a leak of one batch in a hundred would exceed this.
    assert peak(method, 10_000) <= peak(method, 100) + (1 << 20)

"""Calibration in several processes and on Dask clusters."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mobileprep.data.calibration import shards
from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.data.calibration.shards import observed
from mobileprep.errors import AccuracyError, UnsupportedError, UsageError
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

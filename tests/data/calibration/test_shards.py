"""Samples that are run in pieces, elsewhere, by processes that die: always the same ranges."""

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
    wanted = subject(method)
    return ranges_of(observed(wanted, data or samples(), **where), wanted.method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_processes_give_what_one_does(method) -> None:
    alone, count = ranges(method)
    assert count == 40
    assert ranges(method, workers=3) == (alone, 40)


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    alone, _ = ranges("percentile")
    data = replace(samples(), kills=tmp_path / "killed")
    assert ranges("percentile", data, workers=2) == (alone, 40)
    assert data.kills.exists()


def test_processes_that_are_killed_again_and_again_are_told(tmp_path: Path) -> None:
    data = replace(samples(), kills=tmp_path / "killed", always=True)
    with pytest.raises(AccuracyError, match=r"a process that ran samples .* was killed") as told:
        ranges("min_max", data, workers=2)
    assert "memory" in told.value.hint


def test_what_is_wrong_with_a_sample_is_told_from_a_process() -> None:
    data = samples()
    data.rows[33, 1] = float("nan")
    with pytest.raises(AccuracyError, match="'x' is NaN or infinite for sample 33"):
        ranges("min_max", data, workers=2)


def test_a_script_that_begins_itself_again_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(shards.multiprocessing, "parent_process", lambda: object())
    with pytest.raises(UsageError, match="begun again by one of its own processes") as told:
        ranges("min_max", workers=2)
    assert "if __name__ == '__main__'" in told.value.hint


def test_no_more_than_asked_is_under_way() -> None:
    begun: list[int] = []

    class Handle:
        def __init__(self, number: int) -> None:
            self.number = number
            begun.append(number)

        def result(self) -> int:
            assert len(begun) <= self.number + 4
            return self.number

    pieces = [(n, n + 1) for n in range(30)]
    assert list(shards._in_order(lambda p: Handle(p[0]), pieces, 4)) == list(range(30))


def test_without_distributed_it_is_said_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnsupportedError, match="distributed is not installed") as told:
        ranges("min_max", dask="tcp://127.0.0.1:1")
    assert told.value.hint == "install it: pip install 'mobileprep[dask]'"


@pytest.fixture
def cluster():
    """A scheduler here, and two workers in processes of their own."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
    ) as found:
        yield found


@pytest.mark.filterwarnings("ignore")  # of distributed's own, which differ by release
class TestDask:
    @pytest.mark.slow
    def test_a_cluster_gives_what_one_process_does(self, cluster) -> None:
        for method in METHODS:
            assert ranges(method, dask=cluster.scheduler_address) == ranges(method)

    def test_a_worker_that_is_killed_changes_nothing(self, cluster, tmp_path: Path) -> None:
        alone, _ = ranges("entropy")
        data = replace(samples(), kills=tmp_path / "killed")
        assert ranges("entropy", data, dask=cluster.scheduler_address) == (alone, 40)
        assert data.kills.exists()

    def test_a_scheduler_that_is_not_there_is_told(self, monkeypatch) -> None:
        pytest.importorskip("distributed", reason="distributed is not installed")
        monkeypatch.setattr(shards, "_PATIENCE", "0.5s")
        with pytest.raises(
            UnsupportedError, match=r"no Dask scheduler found at tcp://127\.0\.0\.1:1"
        ):
            ranges("min_max", dask="tcp://127.0.0.1:1")

"""Recipes of more steps than Python's stack has room for, and of more tensors than ways to try."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, Stale
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import Upstream
from tests.building.pipeline.stages import executor_of, say, spec, state_of, use

_COUNT = 700
LONG = (spec("r/0"), *(spec(f"r/{n}", f"r/{n - 1}", say=".") for n in range(1, _COUNT)))
LAST = Upstream(LONG[-1].task, "text")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    use(monkeypatch, say)
    return Store(tmp_path / "store")


def test_the_last_of_many_steps_is_judged_before_any_other(store: Store) -> None:
    verdict = state_of(LONG, store).verdict(LAST.task)
    assert isinstance(verdict, Stale)
    assert verdict.reasons == (f"{LONG[-2].task} runs first",)


def test_an_output_of_many_stale_steps_is_obtained(store: Store) -> None:
    executor = executor_of(state_of(LONG, store))
    assert executor.obtain(LAST).size == _COUNT - 1
    assert len(executor.ran) == _COUNT


@pytest.mark.slow
def test_many_steps_are_built_found_fresh_and_lost(store: Store) -> None:
    build(executor_of(state_of(LONG, store)))
    state = state_of(LONG, store)
    found = state.verdict(LAST.task)
    assert isinstance(found, Fresh)
    shutil.rmtree(store.folder / "cas")
    state = state_of(LONG, store)
    state.check_outputs([LAST])
    executor = executor_of(state)
    build(executor)
    assert len(executor.ran) == _COUNT
    assert executor.obtain(LAST) == found.record.outputs["text"]


def test_only_lost_steps_run_again(store: Store) -> None:
    specs = LONG[:10]
    build(executor_of(state_of(specs, store)))
    state = state_of(specs, store)
    for number in (9, 8, 7, 5):
        verdict = state.verdict(f"r/{number}")
        assert isinstance(verdict, Fresh)
        store.objects.path(verdict.record.outputs["text"].sha256).unlink()
    state = state_of(specs, store)
    state.check_outputs([Upstream("r/9", "text")])
    executor = executor_of(state)
    build(executor)
    assert [ran.task for ran in executor.ran] == ["r/7", "r/8", "r/9"]

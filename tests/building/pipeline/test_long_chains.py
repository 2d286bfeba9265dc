"""Recipes of more steps than Python's stack has room for, and of more tensors than ways to try."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from mobileprep.building.pipeline.needs import _Healers, foretell
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


@pytest.mark.slow
def test_many_steps_are_built_found_fresh_and_lost(store: Store) -> None:
    build(executor_of(state_of(LONG, store)))
    state = state_of(LONG, store)
    found = state.verdict(LAST.task)
    assert isinstance(found, Fresh)
    first = state.verdict(LONG[0].task)
    assert isinstance(first, Fresh)
    state.lose(LONG[0].task, "text", first.record)
    assert isinstance(state.verdict(LONG[1].task), Fresh), "its object is still there"
    shutil.rmtree(store.folder / "cas")
    told = foretell(state_of(LONG, store), [LAST])
    assert (len(told.certain), len(told.perhaps)) == (_COUNT, 0)
    executor = executor_of(state_of(LONG, store))
    output = executor.obtain(LAST)
    assert len(executor.ran) == _COUNT
    assert output == found.record.outputs["text"]


def test_only_what_is_lost_runs_again_for_the_last(store: Store) -> None:
    specs = LONG[:10]
    build(executor_of(state_of(specs, store)))
    state = state_of(specs, store)
    for number in (9, 8, 7, 5):
        verdict = state.verdict(f"r/{number}")
        assert isinstance(verdict, Fresh)
        store.objects.path(verdict.record.outputs["text"].sha256).unlink()
    executor = executor_of(state_of(specs, store))
    executor.obtain(Upstream("r/9", "text"))
    assert [ran.task for ran in executor.ran] == ["r/7", "r/8", "r/9"]


def test_what_surely_runs_for_many_tensors_takes_no_time_for_every_way() -> None:
    steps, tensors = 12, 50
    leaves = {f"s{n}": [f"{n}-{tensor}" for tensor in range(tensors)] for n in range(steps)}
    by_digest = {digest: {step} for step, digests in leaves.items() for digest in digests}
    needs = {f"s{n}": frozenset(leaves.get(f"s{n - 1}", ())) for n in range(steps)}
    begun = time.perf_counter()
    assert _Healers(by_digest, needs).surely(f"{steps - 1}-0") == set(leaves)
    assert time.perf_counter() - begun < 10

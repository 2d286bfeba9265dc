"""Which stages run again because what they left is lost, told before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from mobileprep.pipeline.needs import lose_what_is_gone
from mobileprep.pipeline.runner import build
from mobileprep.pipeline.state import Fresh, State
from mobileprep.pipeline.store import Store
from mobileprep.plan.spec import StageSpec, Upstream
from tests.pipeline.stages import executor_of, say, spec, state_of, text_path, use

CHAIN = (
    spec("r/a", say="a"),
    spec("r/b", "r/a", say="b"),
    spec("r/c", "r/b", say="c"),
    spec("r/beside", say="beside"),
)
LAST_ASKED = (*CHAIN[:2], spec("r/c", "r/b", say="C"), CHAIN[3])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    use(monkeypatch, say)
    store = Store(tmp_path / "store")
    build(executor_of(state_of(CHAIN, store)))
    return store


def after(store: Store, lost: Iterable[str], specs: tuple[StageSpec, ...] = CHAIN) -> State:
    """The state of stages, the texts of some lost from the store."""
    state = state_of(CHAIN, store)
    for task in [s.task for s in CHAIN]:
        assert isinstance(state.verdict(task), Fresh)
    for task in lost:
        text_path(state, task).unlink()
    return state_of(specs, store)


def stale(state: State) -> list[str]:
    return [s.task for s in state.plan.stages if not isinstance(state.verdict(s.task), Fresh)]


def test_what_nothing_needs_may_be_gone(store: Store) -> None:
    state = after(store, ["r/a", "r/b", "r/c", "r/beside"])
    lose_what_is_gone(state)
    assert stale(state) == []


def test_what_is_wanted_and_there_loses_nothing(store: Store) -> None:
    state = after(store, [])
    lose_what_is_gone(state, [Upstream("r/c", "text"), Upstream("r/c", "text")])
    assert stale(state) == []


def test_what_is_wanted_and_gone_runs_again_but_not_what_it_reads(store: Store) -> None:
    state = after(store, ["r/b"])
    lose_what_is_gone(state, [Upstream("r/b", "text")])
    assert stale(state) == ["r/b", "r/c"]


def test_what_a_lost_stage_reads_is_needed_too(store: Store) -> None:
    state = after(store, ["r/a", "r/b", "r/beside"])
    lose_what_is_gone(state, [Upstream("r/b", "text")])
    assert stale(state) == ["r/a", "r/b", "r/c"]


def test_what_a_stale_stage_reads_is_needed(store: Store) -> None:
    state = after(store, ["r/a", "r/b"], LAST_ASKED)
    lose_what_is_gone(state)
    assert stale(state) == ["r/a", "r/b", "r/c"]
    state = after(store, [], LAST_ASKED)


def test_what_only_the_first_of_a_chain_lost_does_not_reach_a_stale_last(store: Store) -> None:
    state = after(store, ["r/a"], LAST_ASKED)
    lose_what_is_gone(state)
    assert stale(state) == ["r/c"]

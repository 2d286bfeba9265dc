"""Which stages run again because what they left is lost, told before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from mobileprep.building.pipeline.needs import foretell
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import StageSpec, Upstream
from tests.building.pipeline.stages import executor_of, say, spec, state_of, text_path, use

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


def foretold(
    store: Store, lost: Iterable[str], *wanted: str, specs: tuple[StageSpec, ...] = CHAIN
) -> tuple[list[str], list[str]]:
    """The stages that surely run, and those that may."""
    state = after(store, lost, specs)
    told = foretell(state, [Upstream(task, "text") for task in wanted])
    tasks = [*told.certain, *told.perhaps]
    assert all(told.runs(spec.task) == (spec.task in tasks) for spec in specs)
    return sorted(told.certain), sorted(told.perhaps)


def test_what_nothing_needs_may_be_gone(store: Store) -> None:
    assert foretold(store, ["r/a", "r/b", "r/c", "r/beside"]) == ([], [])


def test_what_is_wanted_and_there_does_not_run(store: Store) -> None:
    assert foretold(store, [], "r/c", "r/a") == ([], [])


def test_what_is_wanted_and_gone_runs_again_but_not_what_it_reads(store: Store) -> None:
    assert foretold(store, ["r/b"], "r/b") == (["r/b"], ["r/c"])


def test_what_a_lost_stage_reads_is_needed_too(store: Store) -> None:
    assert foretold(store, ["r/a", "r/b", "r/beside"], "r/b") == (["r/a", "r/b"], ["r/c"])


def test_what_a_stale_stage_reads_is_needed(store: Store) -> None:
    found = foretold(store, ["r/a", "r/b"], specs=LAST_ASKED)
    assert found == (["r/a", "r/b", "r/c"], [])


def test_what_only_a_fresh_stage_reads_may_be_gone(store: Store) -> None:
    assert foretold(store, ["r/a"], specs=LAST_ASKED) == (["r/c"], [])


def test_the_reason_names_what_is_lost(store: Store) -> None:
    told = foretell(after(store, ["r/b"]), [Upstream("r/b", "text")])
    (reason,) = told.certain["r/b"]
    assert reason.startswith("the stored text is missing or damaged, expected ")
    assert told.perhaps["r/c"] == ("r/b runs first",)

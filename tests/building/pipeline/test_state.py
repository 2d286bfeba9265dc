"""Which stages are fresh, and what makes them stale again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.pipeline.output import Output, Record
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, Stale, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import StageSpec, Upstream
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError
from tests.building.pipeline.stages import executor_of, file, say, spec, state_of, text_path, use

CHAIN = (
    spec("r/a", say="a"),
    spec("r/b", "r/a", say="b"),
    spec("r/c", "r/b", say="c"),
    spec("r/other"),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    use(monkeypatch, say)
    return Store(tmp_path / "store")


def built(specs: tuple[StageSpec, ...], store: Store) -> State:
    """All stages built, and judged by another process."""
    build(executor_of(state_of(specs, store)))
    state = state_of(specs, store)
    assert stale(state) == {}
    return state


def stale(state: State) -> dict[str, tuple[str, ...]]:
    """The reasons of the stages that would run."""
    found = {s.task: state.verdict(s.task) for s in state.plan.stages}
    return {task: v.reasons for task, v in found.items() if isinstance(v, Stale)}


def lose(state: State, *tasks: str) -> State:
    """Remove the outputs of some stages; the state of another process that needs the last."""
    for task in tasks:
        text_path(state, task).unlink()
    again = state_of(state.plan.stages, state.store)
    again.check_outputs([Upstream(tasks[-1], "text")])
    return again


def test_only_needed_lost_outputs_are_rebuilt(store: Store) -> None:
    state = lose(built(CHAIN, store), "r/a", "r/other", "r/b")
    assert list(stale(state)) == ["r/a", "r/b", "r/c"]


def test_inputs_of_stale_stages_are_needed(store: Store) -> None:
    state = built(CHAIN, store)
    for task in ("r/a", "r/b"):
        text_path(state, task).unlink()
    state = state_of((*CHAIN[:2], spec("r/c", "r/b", say="C")), store)
    assert list(stale(state)) == ["r/a", "r/b", "r/c"]


def test_new_plan_ignores_entries_of_earlier_builds(store: Store) -> None:
    state = built(CHAIN, store)
    state.finished("r/a", state.record("r/a"))
    state.plan_again(())
    assert list(stale(state)) == ["r/b", "r/c", "r/other"]
    state.verdict("r/a")
    state.plan_again(["r/a"])
    assert list(stale(state)) == ["r/a", "r/b", "r/c", "r/other"]


def test_before_the_first_build_all_is_stale(store: Store) -> None:
    assert stale(state_of(CHAIN, store)) == {
        "r/a": ("it has not run before",),
        "r/b": ("r/a runs first",),
        "r/c": ("r/b runs first",),
        "r/other": ("it has not run before",),
    }


def test_a_lost_output_makes_stale_the_stage_and_all_that_read_it(store: Store) -> None:
    state = built(CHAIN, store)
    assert stale(lose(state, "r/a")) == {
        "r/a": ("the stored text is missing or damaged, expected ca978112ca1b",),
        "r/b": ("r/a runs first",),
        "r/c": ("r/b runs first",),
    }


def test_stale_stage_keeps_earlier_stages_fresh(store: Store) -> None:
    state = built(CHAIN, store)
    assert list(stale(lose(state, "r/b"))) == ["r/b", "r/c"]


def test_stages_are_fresh_after_rebuilding_a_lost_output(store: Store) -> None:
    state = built(CHAIN, store)
    before = state.verdict("r/a")
    assert isinstance(before, Fresh)
    state = lose(state, "r/a")
    state.finished("r/a", before.record)
    assert stale(state) == {}


def test_different_output_makes_readers_stale(store: Store) -> None:
    state = built(CHAIN, store)
    digest = sha256_bytes(b"z")
    state.finished("r/a", Record({}, {"text": Output(digest, 1)}, 0.0))
    assert stale(state) == {
        "r/b": (f"input text has changed: ca978112ca1b became {digest[:12]}",),
        "r/c": ("r/b runs first",),
    }


def test_equal_output_keeps_readers_fresh(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    state = built(CHAIN, store)
    before = state.verdict("r/a")
    assert isinstance(before, Fresh)
    monkeypatch.setattr(state, "_judge", lambda spec: pytest.fail(f"{spec.task} is judged again"))
    state.finished("r/a", Record({}, before.record.outputs, 9.0))
    assert stale(state) == {}


def test_force_holds_until_a_stage_has_run(store: Store) -> None:
    built(CHAIN, store)
    state = state_of(CHAIN, store, force=True)
    assert stale(state)["r/a"] == ("--force was given",)
    again = state_of(CHAIN, store).verdict("r/a")
    assert isinstance(again, Fresh)
    state.finished("r/a", again.record)
    assert stale(state) == {
        "r/b": ("--force was given",),
        "r/c": ("r/b runs first",),
        "r/other": ("--force was given",),
    }
    state.plan_again(["r/a"])
    assert stale(state)["r/a"] == ("--force was given",)


def test_a_record_without_all_that_the_plan_promises_is_none(store: Store) -> None:
    state = built(CHAIN, store)
    record = store.load(next(p.stem for p in (store.folder / "ac").rglob("*.json")))
    assert record is not None
    for path in (store.folder / "ac").rglob("*.json"):
        store.save(path.stem, Record(record.components, {"more": Output("0" * 64, 0)}, 0.0))
    assert stale(state_of(CHAIN, store))["r/a"] == ("its record is gone",)
    assert stale(state) == {}


def test_stale_verdict_is_computed_again(store: Store) -> None:
    state = state_of(CHAIN, store)
    assert len(stale(state)) == len(CHAIN)
    build(executor_of(state_of(CHAIN, store)))
    assert stale(state) == {}


def test_damaged_last_run_is_reported(store: Store) -> None:
    state = built(CHAIN, store)
    changed = spec("r/a", say="b")
    store.save_last_run(state.latest_key(changed), Record({"package": 1}, {}, 0.0))
    assert stale(state_of((changed,), store)) == {"r/a": ("its record cannot be read",)}


def test_stale_stage_has_its_last_run_and_components(
    store: Store,
) -> None:
    built(CHAIN, store)
    found = state_of((spec("r/a", say="b"), CHAIN[1]), store)
    first, second = found.verdict("r/a"), found.verdict("r/b")
    assert isinstance(first, Stale)
    assert isinstance(second, Stale)
    assert first.parts is not None
    assert first.parts["parameters"]["say"] == "b"
    assert [c.key for c in first.changes] == ["say"]
    assert first.last is not None
    assert second.parts is None
    assert second.last is not None


def test_the_key_of_the_last_run_is_of_the_task(store: Store) -> None:
    state = state_of(CHAIN, store)
    assert state.latest_key(CHAIN[0]) == sha256_bytes(b"r/a")


def test_input_is_hashed_once_and_its_change_is_detected(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text("abc")
    reader = spec("r/a", source=file(source))
    state = state_of((reader,), store)
    (member,) = reader.input_files
    assert state.digest(member) == sha256_bytes(b"abc")
    state.check_unchanged(reader)
    source.write_text("abcd")
    assert state.digest(member) == sha256_bytes(b"abc")
    with pytest.raises(CorruptFileError, match=r"source\.txt changed during the build") as caught:
        state.check_unchanged(reader)
    assert (caught.value.where, caught.value.hint) == (str(source), "build again")


def test_a_stage_is_found_by_its_task(store: Store) -> None:
    state = state_of(CHAIN, store)
    assert state.spec("r/b") is CHAIN[1]
    assert isinstance(state.verdict("r/b"), Stale)

"""Which stages are fresh, and what makes them stale again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.pipeline.execute import Executor, Handover
from mobileprep.building.pipeline.output import Output, Record
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, Stale, State, files_read, folders_read
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan, Stage, StageSpec, Upstream
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError
from mobileprep.graph.graph import Graph
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
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


DIGITS = Path(__file__).parents[3] / "recipes" / "digits" / "recipe.yaml"


class ReadStage(Stage, frozen=True, kw_only=True):
    """Reads a graph."""

    stage_name: ClassVar[str] = "read"
    stage_version: ClassVar[int] = 1

    graph: Upstream | None = None


GRAPH = Upstream("r/a", "graph.pb")
FIRST = StageSpec("r/a", ReadStage())
READERS = [StageSpec(f"r/{name}", ReadStage(graph=GRAPH)) for name in "bc"]


def test_a_graph_is_there_until_the_last_that_reads_it_is_done() -> None:
    handover = Handover(Plan((FIRST, *READERS), ()))
    graph = Graph()
    handover.leave(GRAPH, graph)
    for reader in READERS:
        assert handover.find(GRAPH) is graph
        handover.done(reader)
        handover.done(reader)
    assert handover.find(GRAPH) is None


def test_graph_without_readers_is_released() -> None:
    handover = Handover(Plan((FIRST, READERS[0]), ()))
    handover.done(READERS[0])
    handover.leave(GRAPH, Graph())
    assert handover.find(GRAPH) is None
    handover.leave(Upstream("r/b", "graph.pb"), Graph())
    assert handover.find(Upstream("r/b", "graph.pb")) is None


def outputs(store: Path) -> dict[str, dict[str, Output]]:
    """What each stage of the digits recipe leaves, in a new store."""
    recipe = load_recipe(DIGITS, environ={})
    state = State(plan_recipes([recipe]), Store(store))
    build(Executor(state))
    found = {}
    for stage_spec in state.plan.stages:
        verdict = state.verdict(stage_spec.task)
        assert isinstance(verdict, Fresh)
        found[stage_spec.task] = dict(verdict.record.outputs)
    return found


def test_graphs_in_memory_and_in_the_cache_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = outputs(tmp_path / "handed")
    monkeypatch.setattr(Handover, "find", lambda *_: None)
    assert outputs(tmp_path / "stored") == handed


_COUNT = 700
LONG = (spec("r/0"), *(spec(f"r/{n}", f"r/{n - 1}", say=".") for n in range(1, _COUNT)))
LAST = Upstream(LONG[-1].task, "text")


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


RECIPE = """
version: 1
name: r
source:
  saved_model: model
  sha256: {model/saved_model.pb: SHA}
inputs: {x: {}}
targets: {phone: {}}
outputs: [y]
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A SavedModel with variables, and a recipe that extends another."""
    monkeypatch.chdir(tmp_path)
    for name in ("saved_model.pb", "variables/deep/index", "assets/words"):
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "base.yaml").write_text(RECIPE.replace("SHA", "0" * 64))
    (tmp_path / "recipe.yaml").write_text("extends: base.yaml\nname: mine\n")
    return load_recipe(tmp_path / "recipe.yaml", environ={})


def planned(recipe: Recipe) -> Plan:
    return plan_recipes([recipe])


def test_recipes_and_all_that_stages_read_are_files_of_a_build(
    recipe: Recipe, tmp_path: Path
) -> None:
    found = {p.absolute().relative_to(tmp_path) for p in files_read([recipe], planned(recipe))}
    assert set(map(str, found)) == {
        "recipe.yaml",
        "base.yaml",
        "model/saved_model.pb",
        "model/variables/deep/index",
        "model/assets/words",
    }


def test_overridden_recipe_is_an_input(recipe: Recipe, tmp_path: Path) -> None:
    base, own = tmp_path / "base.yaml", tmp_path / "recipe.yaml"
    own.write_text(f"extends: base.yaml\n{base.read_text()}")
    base.write_text("extends: first.yaml\n")
    (tmp_path / "first.yaml").write_text("name: r\n")
    found = load_recipe(own, environ={})
    names = {path.name for path in files_read([found], planned(found))}
    assert {"recipe.yaml", "base.yaml", "first.yaml"} <= names


def test_the_profile_of_a_device_is_read(recipe: Recipe, tmp_path: Path) -> None:
    own = tmp_path / "recipe.yaml"
    own.write_text(f"{own.read_text()}device: ours.yaml\n")
    (tmp_path / "ours.yaml").write_text("title: ours\ngflops: 2\nsource: measured\n")
    found = load_recipe(own, environ={})
    assert tmp_path / "ours.yaml" in files_read([found], planned(found))


def test_a_folder_counts_with_those_below_it(recipe: Recipe, tmp_path: Path) -> None:
    found = {p.absolute().relative_to(tmp_path) for p in folders_read(planned(recipe))}
    assert set(map(str, found)) == {
        "model",
        "model/variables",
        "model/variables/deep",
        "model/assets",
    }


def test_nothing_planned_reads_nothing() -> None:
    assert files_read([], Plan((), ())) == set()
    assert folders_read(Plan((), ())) == set()

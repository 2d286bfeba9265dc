"""Graphs handed from stage to stage in memory."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.pipeline.execute import Executor, Handover
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan, Stage, StageSpec, Upstream
from mobileprep.graph.graph import Graph
from mobileprep.recipe.load import load_recipe

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
    for spec in state.plan.stages:
        verdict = state.verdict(spec.task)
        assert isinstance(verdict, Fresh)
        found[spec.task] = dict(verdict.record.outputs)
    return found


def test_graphs_in_memory_and_in_the_cache_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = outputs(tmp_path / "handed")
    monkeypatch.setattr(Handover, "find", lambda *_: None)
    assert outputs(tmp_path / "stored") == handed

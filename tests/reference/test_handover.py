"""Stages get the same inputs from memory as from the cache, for real models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline.execute import Executor, Handover
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph
from mobileprep.graph.reachability import ends, placeholders
from mobileprep.recipe.load import load_recipe
from tests.reference.real_graphs import GRAPHS

pytestmark = pytest.mark.reference

# The others have variables with values in a checkpoint.
FROZEN = sorted({*GRAPHS} - {"made-qat-mnist-tf115/eval_graph.pb", "sugyan-mnist-v1ckpt/graph.pb"})
CHAIN = [
    "strip_unused_nodes",
    {"remove_nodes": {"op": ["Identity", "CheckNumerics"]}},
    {"fold_constants": {"ignore_errors": True}},
    {"fold_batch_norms": {"ignore_errors": True}},
    {"fold_old_batch_norms": {"ignore_errors": True}},
    "merge_duplicate_nodes",
    {"round_weights": {"num_steps": 100}},
    {"quantize_weights": {"minimum_size": 16}},
    {"quantize_nodes": {"ignore_errors": True}},
    "obfuscate_names",
    "sort_by_execution_order",
    "add_default_attributes",
    "backport_concatv2",
]


def outputs(recipe: Path, store: Path) -> dict[str, dict[str, Output]]:
    """The outputs of each stage of a recipe, in a new cache."""
    state = State(plan_recipes([load_recipe(recipe, environ={})]), Store(store))
    build(Executor(state), jobs=2)
    outputs_by_task = {}
    for spec in state.plan.stages:
        verdict = state.verdict(spec.task)
        assert isinstance(verdict, Fresh)
        outputs_by_task[spec.task] = dict(verdict.record.outputs)
    return outputs_by_task


# A release that loads all of these models.
RELEASE = {"tensorflow": ["2.21"]}


@pytest.mark.parametrize("name", FROZEN)
def test_outputs_are_equal_without_the_handover(
    models: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = read_graph(models / name)
    shutil.copy(models / name, tmp_path / "model.pb")
    fed = [n for n in placeholders(graph) if graph[n].attr_dtype("dtype") != DType.RESOURCE]
    data = {
        "version": 1,
        "name": "model",
        "source": {"frozen": "model.pb"},
        "inputs": {name: {} for name in fed},
        "outputs": ends(graph)[:2],
        "transforms": CHAIN,
        "targets": {
            "t": {"platform": "linux", "registration": RELEASE},
            "u": {"platform": "ios", "registration": RELEASE, "quantize": "weights"},
        },
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(data))
    handed = outputs(tmp_path / "recipe.yaml", tmp_path / "handed")
    monkeypatch.setattr(Handover, "find", lambda *_: None)
    assert outputs(tmp_path / "recipe.yaml", tmp_path / "stored") == handed

"""Builds with ``quantize: auto``: which layers stay out of eight bits, for which limits."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.quantization_debugging import debug_quantization
from mobileprep.building.targets import plan_state
from mobileprep.building.verdicts import Forecast, forecast_of
from mobileprep.errors import AccuracyError, MissedLimitError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import op, placeholder

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {shape: [-1, 16]}}
outputs: [y]
calibration: {data: data.npz, method: min_max}
validation: {data: data.npz, metric: peak_agreement, at_least: %s}
targets: {phone: {quantize: %s}}
"""
LAYERS = ("first", "second", "third", "fourth")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four dense layers; the second has weights of which eight bits lose most."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    draw = np.random.default_rng(7)
    nodes, last = [placeholder((-1, 16))], "x"
    for name in LAYERS:
        weights = draw.normal(0, 0.3, (16, 16)).astype(np.float32)
        if name == "second":
            weights[:, 3] *= 60
            weights[3, :] *= 60
        nodes += [
            constant(f"{name}/w", Tensor.of(weights)),
            op(name, "MatMul", last, f"{name}/w"),
            op(f"{name}/relu", "Relu", name),
        ]
        last = f"{name}/relu"
    write_graph(tmp_path / "model.pb", Graph([*nodes, op("y", "Relu", last)]))
    x = draw.random((40, 16), np.float32)
    write_arrays(tmp_path / "data.npz", {"x": x})
    return tmp_path / "recipe.yaml"


def built(recipe: Path, limit: object, quantize: str = "auto") -> tuple[list[str], tuple[str, ...]]:
    """The warnings of the step, and what ran."""
    recipe.write_text(RECIPE % (limit, quantize))
    done = build(recipe, recipe.parent / "out", jobs=1, warn=lambda _: None)
    (step,) = done.targets[0].report.steps
    return [text for text in step.warnings if text.startswith("auto:")], done.ran


def model(recipe: Path) -> Graph:
    return read_graph(recipe.parent / "out/r/phone/r.pb")


def agreement(recipe: Path) -> float:
    manifest = json.loads((recipe.parent / "out/r/phone/report.json").read_text())
    (metric,) = manifest["accuracy"]["metrics"]
    return float(metric["after"])


def ops(recipe: Path) -> Counter[str]:
    return Counter(node.op for node in model(recipe))


def test_all_layers_are_in_eight_bits_where_that_is_good_enough(recipe: Path) -> None:
    warnings, ran = built(recipe, 0)
    assert not warnings
    assert ops(recipe)["QuantizedMatMul"] == 4
    # The second trial has nothing to try, and leaves what the first has left.
    assert [t for t in ran if "evaluate" in t] == [
        "r/evaluate-source",
        "r/01-quantize_nodes-evaluate-1",
        "r/phone/evaluate",
    ]
    assert "r/01-quantize_nodes-trial-3" not in ran
    assert built(recipe, 0)[1] == ()


def test_excluded_layers_are_reported_as_an_equivalent_rule(recipe: Path) -> None:
    built(recipe, 0)
    before = agreement(recipe)
    warnings, _ = built(recipe, (1 + before) / 2)
    assert agreement(recipe) >= (1 + before) / 2
    assert 0 < ops(recipe)["QuantizedMatMul"] < 4
    assert "of 4 layers" in warnings[0]
    found = (recipe.parent / "out/r/phone/r.pb").read_bytes()
    rules = ", ".join(re.findall(r"as a rule: (\{.*\})$", "\n".join(warnings), re.MULTILINE))
    built(recipe, 0, f"{{mode: nodes, ranges: observed, rules: [{rules}]}}")
    assert (recipe.parent / "out/r/phone/r.pb").read_bytes() == found


def test_the_search_is_repeated_from_the_cache_and_gives_the_same_bytes(recipe: Path) -> None:
    built(recipe, 0)
    limit = (1 + agreement(recipe)) / 2
    built(recipe, limit)
    found = (recipe.parent / "out/r/phone/r.pb").read_bytes()
    _, ran = built(recipe, limit, "{mode: auto, trials: 20}")
    assert not [task for task in ran if "evaluate" in task or "rank" in task]
    assert (recipe.parent / "out/r/phone/r.pb").read_bytes() == found


def test_unreachable_limit_error_names_the_closest_trial(recipe: Path) -> None:
    built(recipe, 0)
    kept = (recipe.parent / "out/r/phone/r.pb").read_bytes()
    with pytest.raises(AccuracyError) as caught:
        built(recipe, 2)
    assert caught.value.exit_code == 8
    assert "none of 3 tries of 'quantize: auto' keeps the limits; nearest is" in str(caught.value)
    assert "at least 2.0 is required" in str(caught.value)
    hint = caught.value.hint
    assert len([name for name in LAYERS if name in hint]) == 3
    assert "trials" not in hint
    assert re.search(r"\n    rules: \[\{mode: float, nodes: '\^\(.*\)\$'\}\]$", hint)
    assert caught.value.where.endswith("recipe.yaml:7:1")
    assert (recipe.parent / "out/r/phone/r.pb").read_bytes() == kept


def test_too_few_trials_are_reported(recipe: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        built(recipe, 2, "{mode: auto, trials: 1}")
    assert "the one try" in str(caught.value)
    assert "raise 'trials'" in caught.value.hint


def test_layers_that_a_rule_is_about_stay_as_it_says(recipe: Path) -> None:
    rules = "{mode: auto, rules: [{nodes: ^first$, mode: float}, {nodes: ^third$, mode: nodes}]}"
    built(recipe, 0, rules)
    warnings, _ = built(recipe, agreement(recipe) + 1e-4, rules)
    by_name = model(recipe).by_name
    assert by_name["first"].op == "MatMul"
    assert by_name["third"].op != "MatMul"
    assert warnings
    assert all("of 2 layers" in text for text in warnings)
    assert all("first" not in text and "third" not in text for text in warnings)


def forecast(recipe: Path) -> Forecast:
    state = plan_state([load_recipe(recipe)])
    return forecast_of(state.verdicts(spec.task for spec in state.plan.stages))


def test_a_forecast_has_all_that_runs(recipe: Path) -> None:
    built(recipe, 0)
    limit = (1 + agreement(recipe)) / 2
    recipe.write_text(RECIPE % (limit, "auto"))
    told = forecast(recipe)
    _, ran = built(recipe, limit)
    assert set(told.certain) <= set(ran) <= {*told.certain, *told.perhaps}
    told = forecast(recipe)
    assert not told.certain
    assert not told.perhaps


def test_its_layers_are_debugged_as_those_of_nodes(recipe: Path) -> None:
    recipe.write_text(RECIPE % (0, "auto"))
    damage = debug_quantization(load_recipe(recipe), samples=8)
    assert {layer.layer for layer in damage.layers} == {*LAYERS}


def test_a_limit_missed_after_the_search_names_layers_that_are_still_quantized(
    recipe: Path,
) -> None:
    built(recipe, 0)
    limit = (1 + agreement(recipe)) / 2
    left = " ".join(built(recipe, limit)[0])
    floats = {name for name in LAYERS if name in left}
    assert "second" in floats
    check = "check: {data: data.npz, max_difference: 1.0e-6}\n"
    recipe.write_text(RECIPE % (limit, "auto") + check)
    with pytest.raises(MissedLimitError) as caught:
        build(recipe, recipe.parent / "out", jobs=1, warn=lambda _: None)
    rule = re.search(r"\n    rules: \[(.*)\]$", caught.value.hint)
    assert rule is not None, caught.value.hint
    assert {name for name in LAYERS if name in rule[1]} == set(LAYERS) - floats

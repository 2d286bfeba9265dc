"""What has changed between two runs of a stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.plan.fingerprints import Change, changes_of, components
from mobileprep.building.plan.spec import StageSpec, Upstream
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.building.stages.validate.spec import JudgedMetric, ValidateStage
from mobileprep.core.files import canonical

ASKED = TransformStage(
    transform="round_weights",
    options={"num_steps": 256, "minimum": 2},
    named={},
    graph=Upstream("r/freeze", "graph.pb"),
    interface=Upstream("r/freeze", "interface.json"),
)
DIGESTS = {"plugin:own.py": "a" * 64, "graph": "b" * 64}
PLACES = {"transforms": "recipe.yaml:9:5"}


def found(changes: dict[str, Any] | None = None, **digests: str) -> tuple[Change, ...]:
    """What differs from the stage above, as a record of it would have it."""
    old = json.loads(canonical(components(ASKED, DIGESTS)))
    asked = structs.replace(ASKED, **(changes or {}))
    spec = StageSpec("r/01", asked, PLACES)
    return changes_of(spec, old, components(asked, {**DIGESTS, **digests}))


def told(changes: dict[str, Any] | None = None, **digests: str) -> list[str]:
    return [str(change) for change in found(changes, **digests)]


def test_nothing_changed_is_nothing_told() -> None:
    assert found() == ()


def test_a_parameter_is_told_by_its_key_and_place() -> None:
    assert told({"transform": "quantize_weights"}) == [
        'transform: "round_weights" became "quantize_weights" (recipe.yaml:9:5)'
    ]
    assert told({"options": {"num_steps": 64, "more": True}}) == [
        "options.minimum: 2 became nothing (recipe.yaml:9:5)",
        "options.more: nothing became true (recipe.yaml:9:5)",
        "options.num_steps: 256 became 64 (recipe.yaml:9:5)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(-0.0, 0.0, "-0.0 became 0.0"), (1, True, "1 became true"), (2, 2.0, "2 became 2.0")],
)
def test_what_is_equal_and_spelt_otherwise_is_another(
    before: object, after: object, words: str
) -> None:
    """As it is to fingerprints, by which the stage runs again."""
    asked = structs.replace(ASKED, options={"value": before})
    old = json.loads(canonical(components(asked, DIGESTS)))
    now = structs.replace(ASKED, options={"value": after})
    (change,) = changes_of(StageSpec("r/01", now, PLACES), old, components(now, DIGESTS))
    assert str(change) == f"options.value: {words} (recipe.yaml:9:5)"


def test_an_input_is_told_with_its_digests() -> None:
    assert told(graph="c" * 64) == ["input graph has changed: bbbbbbbbbbbb became cccccccccccc"]
    assert told(graph2="x" * 64) == ["input graph2 has changed: none became xxxxxxxxxxxx"]


def test_versions_are_told() -> None:
    old = components(ASKED, DIGESTS)
    spec = StageSpec("r/01", ASKED)
    (change,) = changes_of(spec, {**old, "package": "0.0.1"}, old)
    assert str(change) == f"mobileprep 0.0.1 became {old['package']}"
    (change,) = changes_of(spec, {**old, "version": 0}, old)
    assert str(change) == "the stage itself has changed"


def test_a_change_is_data_too() -> None:
    (change,) = found({"options": {"num_steps": 64, "minimum": 2}})
    assert change.as_data() == {
        "what": "parameter",
        "key": "options.num_steps",
        "before": 256,
        "after": 64,
        "place": "recipe.yaml:9:5",
    }


def test_long_values_are_cut() -> None:
    (line,) = told({"transform": "x" * 500})
    assert len(line) < 130
    assert "... (recipe.yaml:9:5)" in line


def test_only_what_is_cut_begins_near_where_it_differs() -> None:
    common = "abcdefghij" * 20
    assert told({"options": {"num_steps": f"{common}!", "minimum": 2}}) == [
        f'options.num_steps: 256 became "{common[:56]}... (recipe.yaml:9:5)'
    ]
    before, after = f"{common}old{common}", f"{common}new"
    assert str(Change("parameter", "name", before, after)) == (
        f'name: ...{common[-20:]}old{common[:31]}... became ...{common[-20:]}new"'
    )


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"max_drop": 0.02}, ["metrics.0.max_drop: 0.01 became 0.02 (recipe.yaml:20:1)"]),
        ({"at_least": 0.5}, ["metrics.0.at_least: nothing became 0.5 (recipe.yaml:20:1)"]),
        ({}, []),
    ],
)
def test_what_is_in_a_list_is_told_by_its_number(
    limit: dict[str, float], expected: list[str]
) -> None:
    def stage(**limits: float) -> ValidateStage:
        up = Upstream("r/evaluate", "evaluation.json")
        metrics = (JudgedMetric(**{"max_drop": 0.01, **limits}), JudgedMetric(at_most=1.0))
        return ValidateStage(
            metrics=metrics, before=up, after=up, before_outputs=up, after_outputs=up
        )

    old = json.loads(canonical(components(stage(), {})))
    spec = StageSpec("r/validate", stage(**limit), {"validation": "recipe.yaml:20:1"})
    changes = changes_of(spec, old, components(spec.stage, {}))
    assert list(map(str, changes)) == expected


def test_lists_of_values_or_of_other_lengths_are_told_whole() -> None:
    assert list(_told_of({"op": ["Relu", "Elu"]}, {"op": ["Relu", "Selu"]})) == [
        'options.op: ["Relu","Elu"] became ["Relu","Selu"] (recipe.yaml:9:5)'
    ]
    assert list(_told_of({"rules": [{"a": 1}]}, {"rules": [{"a": 1}, {"a": 2}]})) == [
        'options.rules: [{"a":1}] became [{"a":1},{"a":2}] (recipe.yaml:9:5)'
    ]


def _told_of(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    old = components(structs.replace(ASKED, options=before), DIGESTS)
    asked = structs.replace(ASKED, options=after)
    spec = StageSpec("r/01", asked, PLACES)
    yield from map(str, changes_of(spec, old, components(asked, DIGESTS)))


@pytest.mark.parametrize("old", [{}, {"package": 1}, {"package": "", "version": 1}])
def test_what_is_no_run_is_refused(old: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        changes_of(StageSpec("r/01", ASKED), old, components(ASKED, DIGESTS))

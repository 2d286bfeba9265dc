"""What has changed between two runs of a stage."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from mobileprep.plan.canonical import canonical
from mobileprep.plan.changes import Change, changes_of
from mobileprep.plan.fingerprints import components
from mobileprep.plan.spec import StageSpec, Upstream
from mobileprep.plan.stages import TransformStage

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
    asked = dataclasses.replace(ASKED, **(changes or {}))
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


@pytest.mark.parametrize("old", [{}, {"package": 1}, {"package": "", "version": 1}])
def test_what_is_no_run_is_refused(old: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        changes_of(StageSpec("r/01", ASKED), old, components(ASKED, DIGESTS))

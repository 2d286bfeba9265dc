"""What a fingerprint depends on, and what it does not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from mobileprep.plan import fingerprints
from mobileprep.plan import spec as specs
from mobileprep.plan.fingerprints import canonical, components, explain, fingerprint
from mobileprep.plan.spec import InputFile, StageSpec, Upstream

SPEC = StageSpec(
    "r/01-round_weights",
    "transform",
    {"name": "round_weights", "options": {"num_steps": 256}},
    {"plugin": (InputFile("own.py", Path("/here/own.py")),)},
    {"plugin": Path("/here/own.py")},
    {"graph": Upstream("r/freeze", "graph.pb")},
    ("graph.pb", "step.json"),
    {"transforms": "recipe.yaml:4:1"},
)
DIGESTS = {"plugin:own.py": "aa", "graph": "bb"}


def of(spec: StageSpec = SPEC, digests: dict[str, str] = DIGESTS) -> str:
    return fingerprint(components(spec, digests))


def test_it_is_a_whole_sha256() -> None:
    assert len(of()) == 64
    assert set(of()) <= set("0123456789abcdef")
    assert of() == of()


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": "package"},
        {"parameters": {"name": "round_weights", "options": {"num_steps": 128}}},
        {"parameters": {"name": "round_weights", "options": {"num_steps": "256"}}},
        {"parameters": {"name": "round_weights", "options": {"num_steps": 256.5}}},
        {"parameters": {"name": "round_weights", "options": {"num_steps": None}}},
        {"parameters": {"name": "round_weights", "options": {}}},
        {"outputs": ("graph.pb",)},
    ],
)
def test_what_a_stage_is_told_counts(changes: dict[str, Any]) -> None:
    assert of(dataclasses.replace(SPEC, **changes)) != of()


@pytest.mark.parametrize(
    "digests",
    [
        {"plugin:own.py": "aa", "graph": "cc"},
        {"plugin:own.py": "ab", "graph": "bb"},
        {"plugin:other.py": "aa", "graph": "bb"},
        {"graph": "aa", "plugin:own.py": "bb"},
        {"graph": "bb"},
        {**DIGESTS, "more": "dd"},
    ],
)
def test_every_input_counts(digests: dict[str, str]) -> None:
    assert of(digests=digests) != of()


def test_the_stage_s_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(fingerprints, "STAGE_VERSIONS", {**specs.STAGE_VERSIONS, "transform": 99})
    assert of() != before


def test_the_package_s_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(fingerprints, "__version__", "99.0")
    assert of() != before


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "r/07-round_weights"},
        {"places": {"transforms": "elsewhere.yaml:90:1"}},
        {"places": {}},
        {"files": {"plugin": (InputFile("own.py", Path("/there/own.py")),)}},
        {"roots": {"plugin": Path("/there/own.py")}},
        {"upstream": {"graph": Upstream("r/earlier", "graph.pb")}},
    ],
)
def test_names_and_places_do_not_count(changes: dict[str, Any]) -> None:
    assert of(dataclasses.replace(SPEC, **changes)) == of()


def test_order_does_not_count() -> None:
    turned = {"options": {"num_steps": 256}, "name": "round_weights"}
    assert of(dataclasses.replace(SPEC, parameters=turned)) == of()
    assert of(digests=dict(reversed(DIGESTS.items()))) == of()


def test_components_survive_a_record() -> None:
    parts = components(SPEC, DIGESTS)
    assert fingerprint(json.loads(canonical(parts))) == fingerprint(parts)


def test_canonical_text_is_plain_and_sorted() -> None:
    assert canonical({"b": [1, None], "a": "\N{DEGREE SIGN}"}) == '{"a":"\\u00b0","b":[1,null]}'


def told(parameters: dict[str, Any] | None = None, **digests: str) -> list[str]:
    """What differs from the stage above, as a record of it would have it."""
    old = json.loads(canonical(components(SPEC, DIGESTS)))
    spec = dataclasses.replace(SPEC, parameters=parameters or SPEC.parameters)
    return explain(old, components(spec, {**DIGESTS, **digests}))


def test_nothing_changed_is_nothing_told() -> None:
    assert told() == []


def test_each_change_is_told() -> None:
    assert told({"name": "quantize_weights", "options": {"num_steps": 256}}, graph="cc") == [
        'parameter name: "round_weights" became "quantize_weights"',
        "input graph has changed",
    ]
    assert told({"name": "round_weights"}) == [
        'parameter options: {"num_steps":256} became null',
    ]
    assert told(graph2="x") == ["input graph2 has changed"]


def test_long_values_are_cut() -> None:
    (line,) = told({"name": "x" * 500, "options": {"num_steps": 256}})
    assert len(line) < 120
    assert line.endswith("...")


def test_new_versions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old = components(SPEC, DIGESTS)
    monkeypatch.setattr(fingerprints, "__version__", "99.0")
    monkeypatch.setattr(fingerprints, "STAGE_VERSIONS", {**specs.STAGE_VERSIONS, "transform": 99})
    assert explain(old, components(SPEC, DIGESTS)) == [
        f"mobileprep {old['package']} became 99.0",
        "the stage itself has changed",
    ]

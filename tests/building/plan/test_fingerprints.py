"""Fingerprints of stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.plan import fingerprints
from mobileprep.building.plan.fingerprints import components, fingerprint
from mobileprep.building.plan.spec import Files, Stage, StageFile, Upstream
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.core.files import canonical

OWN = Files("own.py", Path("/here/own.py"), (StageFile("own.py", Path("/here/own.py")),))
STAGE = TransformStage(
    transform="round_weights",
    options={"num_steps": 256},
    plugin=OWN,
    named={},
    graph=Upstream("r/freeze", "graph.pb"),
    interface=Upstream("r/freeze", "interface.json"),
)
DIGESTS = {"plugin:own.py": "aa", "graph": "bb"}


def of(stage: Stage = STAGE, digests: dict[str, str] = DIGESTS) -> str:
    return fingerprint(components(stage, digests))


def test_fingerprint_is_a_sha256() -> None:
    assert len(of()) == 64
    assert set(of()) <= set("0123456789abcdef")
    assert of() == of()


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": "quantize_weights"},
        {"options": {"num_steps": 128}},
        {"options": {"num_steps": "256"}},
        {"options": {"num_steps": 256.5}},
        {"options": {"num_steps": None}},
        {"options": {"steps": (256,)}},
        {"options": {}},
        {"ignore_errors": True},
        {"plugin": None},
        {"plugin": structs.replace(OWN, name="other.py")},
        {"named": {"parameter log": OWN}},
    ],
)
def test_parameters_change_the_fingerprint(changes: dict[str, Any]) -> None:
    assert of(structs.replace(STAGE, **changes)) != of()


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
def test_inputs_change_the_fingerprint(digests: dict[str, str]) -> None:
    assert of(digests=digests) != of()


def test_stage_version_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(TransformStage, "stage_version", 99)
    assert of() != before


def test_package_version_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(fingerprints, "__version__", "99.0")
    assert of() != before


@pytest.mark.parametrize(
    "changes",
    [
        {"plugin": structs.replace(OWN, root=Path("/there/own.py"))},
        {"plugin": structs.replace(OWN, members=(StageFile("own.py", Path("/there")),))},
        {"graph": Upstream("r/earlier", "graph.pb")},
    ],
)
def test_paths_and_tasks_do_not_change_the_fingerprint(changes: dict[str, Any]) -> None:
    assert of(structs.replace(STAGE, **changes)) == of()


def test_order_does_not_change_the_fingerprint() -> None:
    before = structs.replace(STAGE, options={"a": 1, "b": 2})
    assert of(structs.replace(STAGE, options={"b": 2, "a": 1})) == of(before)
    assert of(digests=dict(reversed(DIGESTS.items()))) == of()


def test_fingerprint_of_recorded_components() -> None:
    parts = components(STAGE, DIGESTS)
    assert fingerprint(json.loads(canonical(parts))) == fingerprint(parts)


def test_canonical_json_is_ascii_and_sorted() -> None:
    assert canonical({"b": [1, None], "a": "\N{DEGREE SIGN}"}) == '{"a":"\\u00b0","b":[1,null]}'

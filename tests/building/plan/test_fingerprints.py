"""What a fingerprint depends on, and what it does not."""

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
ASKED = TransformStage(
    transform="round_weights",
    options={"num_steps": 256},
    plugin=OWN,
    named={},
    graph=Upstream("r/freeze", "graph.pb"),
    interface=Upstream("r/freeze", "interface.json"),
)
DIGESTS = {"plugin:own.py": "aa", "graph": "bb"}


def of(asked: Stage = ASKED, digests: dict[str, str] = DIGESTS) -> str:
    return fingerprint(components(asked, digests))


def test_it_is_a_whole_sha256() -> None:
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
def test_what_a_stage_is_told_counts(changes: dict[str, Any]) -> None:
    assert of(structs.replace(ASKED, **changes)) != of()


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
    monkeypatch.setattr(TransformStage, "stage_version", 99)
    assert of() != before


def test_the_package_s_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_names_and_places_do_not_count(changes: dict[str, Any]) -> None:
    assert of(structs.replace(ASKED, **changes)) == of()


def test_order_does_not_count() -> None:
    before = structs.replace(ASKED, options={"a": 1, "b": 2})
    assert of(structs.replace(ASKED, options={"b": 2, "a": 1})) == of(before)
    assert of(digests=dict(reversed(DIGESTS.items()))) == of()


def test_components_survive_a_record() -> None:
    parts = components(ASKED, DIGESTS)
    assert fingerprint(json.loads(canonical(parts))) == fingerprint(parts)


def test_canonical_text_is_plain_and_sorted() -> None:
    assert canonical({"b": [1, None], "a": "\N{DEGREE SIGN}"}) == '{"a":"\\u00b0","b":[1,null]}'

"""Fingerprints of stages."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from zlib import ZLIB_RUNTIME_VERSION

import pytest
from msgspec import structs

from mobileprep.building.plan import fingerprints
from mobileprep.building.plan.fingerprints import (
    LEVEL,
    Change,
    changes_of,
    components,
    compressor,
    computing_libraries,
    fingerprint,
    library_version,
)
from mobileprep.building.plan.spec import Files, Stage, StageFile, StageSpec, Upstream
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.building.stages.validate.spec import JudgedMetric, ValidateStage
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


CHANGES_STAGE = TransformStage(
    transform="round_weights",
    options={"num_steps": 256, "minimum": 2},
    named={},
    graph=Upstream("r/freeze", "graph.pb"),
    interface=Upstream("r/freeze", "interface.json"),
)
CHANGES_DIGESTS = {"plugin:own.py": "a" * 64, "graph": "b" * 64}
PLACES = {"transforms": "recipe.yaml:9:5"}


def changes(after: dict[str, Any] | None = None, **digests: str) -> tuple[Change, ...]:
    """The changes from a record of ``STAGE``."""
    old = json.loads(canonical(components(CHANGES_STAGE, CHANGES_DIGESTS)))
    stage = structs.replace(CHANGES_STAGE, **(after or {}))
    spec = StageSpec("r/01", stage, PLACES)
    return changes_of(spec, old, components(stage, {**CHANGES_DIGESTS, **digests}))


def messages(after: dict[str, Any] | None = None, **digests: str) -> list[str]:
    return [str(change) for change in changes(after, **digests)]


def option_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The changes of options from a record."""
    stage = structs.replace(CHANGES_STAGE, options=before)
    old = json.loads(canonical(components(stage, CHANGES_DIGESTS)))
    stage = structs.replace(CHANGES_STAGE, options=after)
    spec = StageSpec("r/01", stage, PLACES)
    return list(map(str, changes_of(spec, old, components(stage, CHANGES_DIGESTS))))


def test_equal_stages_have_no_changes() -> None:
    assert changes() == ()


def test_changed_parameters_have_key_and_position() -> None:
    assert messages({"transform": "quantize_weights"}) == [
        'transform: "round_weights" became "quantize_weights" (recipe.yaml:9:5)'
    ]
    assert messages({"options": {"num_steps": 64, "more": True}}) == [
        "options.minimum: 2 became nothing (recipe.yaml:9:5)",
        "options.more: nothing became true (recipe.yaml:9:5)",
        "options.num_steps: 256 became 64 (recipe.yaml:9:5)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(-0.0, 0.0, "-0.0 became 0.0"), (1, True, "1 became true"), (2, 2.0, "2 became 2.0")],
)
def test_equal_values_of_different_types_are_changes(
    before: object, after: object, words: str
) -> None:
    """Their fingerprints differ, so the stage runs again."""
    (change,) = option_changes({"value": before}, {"value": after})
    assert change == f"options.value: {words} (recipe.yaml:9:5)"


def test_changed_inputs_have_their_digests() -> None:
    assert messages(graph="c" * 64) == ["input graph has changed: bbbbbbbbbbbb became cccccccccccc"]
    assert messages(graph2="x" * 64) == ["input graph2 has changed: none became xxxxxxxxxxxx"]


def test_changed_versions() -> None:
    old = components(CHANGES_STAGE, CHANGES_DIGESTS)
    spec = StageSpec("r/01", CHANGES_STAGE)
    (change,) = changes_of(spec, {**old, "package": "0.0.1"}, old)
    assert str(change) == f"mobileprep 0.0.1 became {old['package']}"
    (change,) = changes_of(spec, {**old, "version": 0}, old)
    assert str(change) == "the stage itself has changed"


def test_change_as_data() -> None:
    (change,) = changes({"options": {"num_steps": 64, "minimum": 2}})
    assert structs.asdict(change) == {
        "what": "parameter",
        "key": "options.num_steps",
        "before": 256,
        "after": 64,
        "place": "recipe.yaml:9:5",
    }


def test_long_values_are_truncated() -> None:
    (line,) = messages({"transform": "x" * 500})
    assert len(line) < 130
    assert "... (recipe.yaml:9:5)" in line


def test_truncated_values_start_near_the_difference() -> None:
    common = "abcdefghij" * 20
    assert messages({"options": {"num_steps": f"{common}!", "minimum": 2}}) == [
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
def test_list_items_are_named_by_index(limit: dict[str, float], expected: list[str]) -> None:
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


def test_lists_of_values_or_other_lengths_are_shown_whole() -> None:
    assert option_changes({"op": ["Relu", "Elu"]}, {"op": ["Relu", "Selu"]}) == [
        'options.op: ["Relu","Elu"] became ["Relu","Selu"] (recipe.yaml:9:5)'
    ]
    assert option_changes({"rules": [{"a": 1}]}, {"rules": [{"a": 1}, {"a": 2}]}) == [
        'options.rules: [{"a":1}] became [{"a":1},{"a":2}] (recipe.yaml:9:5)'
    ]


@pytest.mark.parametrize("old", [{}, {"package": 1}, {"package": "", "version": 1}])
def test_invalid_records_are_refused(old: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        changes_of(
            StageSpec("r/01", CHANGES_STAGE), old, components(CHANGES_STAGE, CHANGES_DIGESTS)
        )


def test_name_has_version_and_level() -> None:
    assert compressor() == f"deflate by zlib {ZLIB_RUNTIME_VERSION} at level {LEVEL}"
    assert LEVEL == 1


def test_versions_come_from_metadata() -> None:
    names = ("numpy", "protobuf")
    assert computing_libraries() == {name: metadata.version(name) for name in names}
    assert library_version("no_such_module", "no-such-library") == ""
    assert library_version("json", "no-such-library") == "unknown"


def test_libraries_are_not_imported() -> None:
    code = (
        "import sys; from mobileprep.building.plan.fingerprints import computing_libraries;"
        "computing_libraries(); print('numpy' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

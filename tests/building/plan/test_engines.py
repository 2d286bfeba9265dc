"""Engine choices of stages that run graphs."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.plan.engines import (
    EngineChoice,
    engine_choice,
    engine_version,
    litert_choice,
    regex_engine,
)
from mobileprep.building.plan.planner import target_settings
from mobileprep.errors import UnsupportedError
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Check, Data, InputFile, Source
from mobileprep.recipe.validation_settings import NamedValidation, Validation

DATA = Data(InputFile("data.npz", Path("data.npz")))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of distributions that count as installed."""
    versions: dict[str, str] = {}

    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        if not any(d.startswith(name) for d in versions):
            return None
        return importlib.machinery.ModuleSpec(name, None, origin=f"{name}/__init__.py")

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"openvino": [*versions]})
    engine_version.cache_clear()
    yield versions
    engine_version.cache_clear()


def target(engine: str) -> Target:
    source = Source("frozen", InputFile("model.pb", Path("model.pb")))
    return Target("phone", "phone", None, source, engine=engine)  # type: ignore[arg-type]


def test_interpreter_needs_no_version(installed: dict[str, str]) -> None:
    installed |= {"openvino": "2026.4", "tensorflow-cpu": "2.21"}
    assert engine_choice(target("numpy")) == EngineChoice("numpy", {}, regex_engine())


def test_auto_has_the_versions_of_all_engines(installed: dict[str, str]) -> None:
    assert engine_choice(target("auto")).versions == {}
    engine_version.cache_clear()
    installed |= {"tensorflow-cpu": "2.21.0", "openvino": "2026.4"}
    installed |= {"ai_edge_litert": "", "ai-edge-litert": "2.3.0"}
    versions = {"litert": "2.3.0", "openvino": "2026.4", "tensorflow": "2.21.0"}
    assert engine_choice(target("auto")) == EngineChoice("auto", versions, regex_engine())


def test_named_engine_has_its_version(installed: dict[str, str]) -> None:
    installed |= {"openvino": "2026.4", "tensorflow": "2.21.0"}
    assert engine_choice(target("openvino")).versions == {"openvino": "2026.4"}
    installed |= {"ai_edge_litert": "", "ai-edge-litert": "2.3.0"}
    assert engine_choice(target("litert")).versions == {"litert": "2.3.0"}


@pytest.mark.parametrize(
    ("engine", "hint"),
    [
        ("openvino", "pip install 'mobileprep[openvino]', or write 'engine: auto'"),
        ("litert", "pip install 'mobileprep[litert]', or write 'engine: auto'"),
        ("tensorflow", "pip install tensorflow-cpu, or write 'engine: auto'"),
    ],
)
def test_missing_engine_is_reported_with_a_hint(
    engine: str, hint: str, installed: dict[str, str]
) -> None:
    with pytest.raises(UnsupportedError, match=f"engine {engine}, which is not installed") as c:
        engine_choice(target(engine))
    assert c.value.hint == hint


def test_distribution_of_another_name_is_found(installed: dict[str, str]) -> None:
    installed["openvino-of-my-own"] = "7"
    assert engine_version("openvino") == "7"


def test_directory_with_the_name_is_not_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openvino").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    engine_version.cache_clear()
    assert engine_version("openvino") == ""
    engine_version.cache_clear()


def test_engines_are_not_imported() -> None:
    code = (
        "import sys; from mobileprep.building.plan.engines import engine_version as version;"
        "version('openvino'), version('tensorflow');"
        "assert not {'numpy', 'openvino', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (Check(), {"check": Check()}),
        (Validation(DATA), {"validations": (Validation(DATA),)}),
        (
            NamedValidation(DATA, name="b"),
            {"validations": (NamedValidation(DATA, name="a"), NamedValidation(DATA, name="b"))},
        ),
    ],
)
def test_tflite_file_needs_litert_unless_the_graph_is_run(
    installed: dict[str, str], settings: Check | Validation, fields: dict[str, Any]
) -> None:
    lite = structs.replace(target("numpy"), artifact="tflite", **fields)
    section = "check" if isinstance(settings, Check) else "validation"
    with pytest.raises(UnsupportedError, match=f"{section} runs the .tflite file") as caught:
        litert_choice(lite, settings)
    assert caught.value.exit_code == 6
    assert "pip install 'mobileprep[litert]'" in caught.value.hint
    assert "'engine: graph'" in caught.value.hint
    engine_version.cache_clear()
    installed |= {"ai_edge_litert": "", "ai-edge-litert": "2.1.0"}
    choice = EngineChoice("litert", {"litert": "2.1.0"}, regex_engine())
    assert litert_choice(lite, settings) == choice
    assert litert_choice(lite, structs.replace(settings, engine="graph")) is None
    frozen = structs.replace(lite, artifact="frozen")
    assert litert_choice(frozen, settings) is None


@pytest.mark.parametrize(
    ("checks", "validates", "expected"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_settings_have_engine_versions_if_graphs_run(
    installed: dict[str, str], *, checks: bool, validates: bool, expected: bool
) -> None:
    installed |= {"openvino": "2026.4"}
    settings = structs.replace(
        target("openvino"),
        check=Check() if checks else None,
        validations=(Validation(DATA),) if validates else (),
    )
    versions = target_settings(settings)["engine_versions"]
    assert versions == ({"openvino": "2026.4"} if expected else {})

"""What the check of licences in CI refuses."""

from __future__ import annotations

import importlib.util
from email.message import Message
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "licences.py"


@pytest.fixture
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dist(requires: list[str], **facts: str) -> SimpleNamespace:
    metadata = Message()
    for name, text in facts.items():
        metadata[name.replace("_", "-")] = text
    return SimpleNamespace(metadata=metadata, requires=requires)


def test_what_is_required_is_followed_but_for_tests(
    licences: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {
        "mobileprep": dist(
            ["numpy>=1", "Zoo>=2; extra == 's3'", "pytest; extra == 'test'"], License="Apache-2.0"
        ),
        "numpy": dist(["deep", "opt; extra == 'x'"], License_Expression="BSD-3-Clause"),
        "deep": dist([], Classifier="License :: OSI Approved :: MIT License"),
    }

    def found(name: str) -> SimpleNamespace:
        if name not in known:
            raise licences.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(licences, "distribution", found)
    listed = licences.required_by("mobileprep")
    assert sorted(listed) == ["deep", "mobileprep", "numpy", "zoo"]
    assert listed["zoo"] == "not installed"
    assert licences.main() == 0
    known["deep"] = dist([], License="GPL-3.0")
    assert licences.main() == 1
    assert "deep: GPL-3.0  <- look at it" in capsys.readouterr().out

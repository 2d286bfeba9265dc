"""The license check of CI."""

from __future__ import annotations

from email.message import Message
from types import SimpleNamespace

import pytest

from tools import licenses


def dist(requires: list[str], **facts: str) -> SimpleNamespace:
    metadata = Message()
    for name, text in facts.items():
        metadata[name.replace("_", "-")] = text
    return SimpleNamespace(metadata=metadata, requires=requires)


def test_transitive_requirements_are_checked_except_those_of_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributions = {
        "mobileprep": dist(
            ["numpy>=1", "Zoo>=2; extra == 's3'", "pytest; extra == 'test'"], License="Apache-2.0"
        ),
        "numpy": dist(["deep", "opt; extra == 'x'"], License_Expression="BSD-3-Clause"),
        "deep": dist([], Classifier="License :: OSI Approved :: MIT License"),
    }

    def distribution(name: str) -> SimpleNamespace:
        if name not in distributions:
            raise licenses.PackageNotFoundError(name)
        return distributions[name]

    monkeypatch.setattr(licenses, "distribution", distribution)
    listed = licenses.required_by("mobileprep")
    assert sorted(listed) == ["deep", "mobileprep", "numpy", "zoo"]
    assert listed["zoo"] == "not installed"
    assert licenses.main() == 0
    distributions["deep"] = dist([], License="GPL-3.0")
    assert licenses.main() == 1
    assert "deep: GPL-3.0  <- look at it" in capsys.readouterr().out

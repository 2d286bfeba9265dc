"""Checks of the release tool, and the CI workflow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import mobileprep
from tools import release

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that is ready to release 1.2.3."""
    (tmp_path / "mobileprep").mkdir()
    (tmp_path / "mobileprep/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-12-01)\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "_git", lambda *_: "")
    return tmp_path


def test_ready_checkout_has_no_problems(checkout: Path) -> None:
    assert checkout.is_dir()
    assert list(release.problems()) == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("mobileprep/__init__.py", '__version__ = "1.2.2"\n', "has version 1.2.3"),
        ("CHANGELOG.md", "## 1.2.2 (2026-12-01)\n", "is not that of 1.2.3"),
        ("CHANGELOG.md", "## 1.2.3 (unreleased)\n", "set the date of 1.2.3"),
    ],
)
def test_versions_and_dates_must_agree(checkout: Path, file: str, text: str, problem: str) -> None:
    (checkout / file).write_text(text)
    (message,) = release.problems()
    assert problem in message


def test_uncommitted_changes_and_existing_tag_are_problems(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkout.is_dir()
    monkeypatch.setattr(release, "_git", lambda *_: "something")
    assert len(list(release.problems())) == 2


def test_readme_example_commands() -> None:
    assert [command.split()[:2] for command in release.example_commands()] == [
        ["mobileprep", "init"],
        ["mobileprep", "build"],
    ]


def test_examples_use_the_current_version() -> None:
    text = (ROOT / "examples/ci/github.yml").read_text("utf-8")
    assert set(re.findall(r"mobileprep[=-]+(\d+\.\d+\.\d+)", text)) == {mobileprep.__version__}


def test_supported_pythons_are_tested_on_three_systems() -> None:
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    names = {name.removesuffix("-latest") for name in matrix["os"]}
    assert names == {"ubuntu", "macos", "windows"}
    prefix = "Programming Language :: Python :: "
    listed = [c.removeprefix(prefix) for c in release.project()["classifiers"] if prefix in c]
    assert matrix["python"] == [version for version in listed if version.startswith("3.")]


def test_workflow_runs_readme_commands_and_linters() -> None:
    runs = " ".join(
        step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"]
    )
    for command in (
        *("mobileprep build recipes/digits/recipe.yaml", "pip install -e", "pytest -n auto"),
        *("ruff check .", "ruff format --check .", "mypy"),
    ):
        assert command in runs


def test_actions_are_pinned_by_commit() -> None:
    uses = [
        step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in uses)

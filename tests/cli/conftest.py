"""Fixtures for the tests of the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mobileprep.building.report.page.render import PAGE
from mobileprep.cli.main import main

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


Run = Callable[..., CommandResult]


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace all occurrences of a string, of which there is at least one, in a text file."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def output_files(folder: Path) -> dict[str, bytes]:
    """All files below a directory by name, except report pages, which contain durations."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != PAGE]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with its own cache in ``store``."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def call(*arguments: object) -> CommandResult:
        code = main([str(a) for a in arguments])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return CommandResult(code, output.out, output.err)

    return call


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the digits recipe, its cache, and its outputs, built once for all tests."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(RECIPES / "digits", folder / "digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        patch.chdir(folder)
        assert main(["build", str(folder / "digits" / "recipe.yaml"), "--out", "out"]) == 0
    return folder


@pytest.fixture
def built(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the digits recipe, already built into ``out``."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(built_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "digits" / "recipe.yaml"


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the digits recipe with an empty cache."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECIPES / "digits", tmp_path / "digits")
    return tmp_path / "digits" / "recipe.yaml"


@pytest.fixture
def litert() -> None:
    """Skip a test that runs models with LiteRT if its interpreter is not installed."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")

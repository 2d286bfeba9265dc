"""What the tests of the command line share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mobileprep.cli.main import main

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@dataclass(frozen=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str


Run = Callable[..., Told]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process."""

    def call(*arguments: object) -> Told:
        code = main([str(a) for a in arguments])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return Told(code, told.out, told.err)

    return call


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits recipe, its store and its outputs, built once for all tests."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(RECIPES / "digits", folder / "digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        patch.chdir(folder)
        assert main(["build", str(folder / "digits" / "recipe.yaml"), "--out", "out"]) == 0
    return folder


@pytest.fixture
def built(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the digits recipe that is built already, into ``out``."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(built_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "digits" / "recipe.yaml"


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the digits recipe, with an empty store of its own."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECIPES / "digits", tmp_path / "digits")
    return tmp_path / "digits" / "recipe.yaml"

"""Recipes whose variables hold absolute paths share cached builds of equal files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import RECIPES, Run, output_files

TEXT = (RECIPES / "digits" / "recipe.yaml").read_text()


def machine(top: Path, name: str) -> Path:
    """Write a recipe, and the files that it reads into a directory with a machine-specific name."""
    own = top / name / f"files-of-{name}"
    own.parent.mkdir()
    shutil.copytree(RECIPES / "digits", own)
    (own / "recipe.yaml").unlink()
    recipe = top / name / "recipe.yaml"
    recipe.write_text(TEXT.replace(" model/", " ${M}/model/").replace(" data/", " ${M}/data/"))
    return own


def test_machines_with_different_paths_share_builds(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", (tmp_path / "shared").as_uri())
    (tmp_path / "shared").mkdir()
    outputs_by_machine = {}
    for name, ran in (("first", "24 of 24"), ("second", "0 of 24")):
        own = machine(tmp_path, name)
        monkeypatch.chdir(own.parent)
        monkeypatch.setenv("MOBILEPREP_CACHE", str(own.parent / "store"))
        result = run("build", "recipe.yaml", "--set", f"M={own}", "--provenance")
        assert result.code == 0, result.err
        assert f"{ran} stages ran" in result.err
        outputs_by_machine[name] = output_files(Path("out"))
        assert run("verify", "out", "--set", f"M={own}").code == 0
    assert outputs_by_machine["first"] == outputs_by_machine["second"]
    contents = [*outputs_by_machine["first"].values(), *output_files(tmp_path / "shared").values()]
    assert contents
    assert not [data for data in contents if str(tmp_path).encode() in data]


def test_errors_name_the_absolute_path(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = machine(tmp_path, "only")
    monkeypatch.chdir(own.parent)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(own.parent / "store"))
    (own / "data" / "test.npz").write_bytes((own / "model" / "graph.pbtxt").read_bytes())
    result = run("build", "recipe.yaml", "--set", f"M={own}")
    assert result.code
    assert f"{own}/data/test.npz" in result.err
    assert "*/" not in result.err

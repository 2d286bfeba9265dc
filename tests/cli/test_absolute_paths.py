"""Recipes whose variables hold absolute paths: two machines share what is built of equal files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mobileprep.building.report.page.render import PAGE
from tests.cli.conftest import RECIPES, Run

TEXT = (RECIPES / "digits" / "recipe.yaml").read_text()


def machine(top: Path, name: str) -> Path:
    """A folder with the recipe, and one that is the machine's own with the files."""
    own = top / name / f"files-of-{name}"
    own.parent.mkdir()
    shutil.copytree(RECIPES / "digits", own)
    (own / "recipe.yaml").unlink()
    recipe = top / name / "recipe.yaml"
    recipe.write_text(TEXT.replace(" model/", " ${M}/model/").replace(" data/", " ${M}/data/"))
    return own


def files_below(folder: Path) -> dict[str, bytes]:
    """All files but pages, which tell how long stages took."""
    found = [p for p in folder.rglob("*") if p.is_file() and p.name != PAGE]
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def test_machines_share_what_lies_in_folders_of_their_own(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", (tmp_path / "shared").as_uri())
    (tmp_path / "shared").mkdir()
    found = {}
    for name, ran in (("first", "24 of 24"), ("second", "0 of 24")):
        own = machine(tmp_path, name)
        monkeypatch.chdir(own.parent)
        monkeypatch.setenv("MOBILEPREP_CACHE", str(own.parent / "store"))
        told = run("build", "recipe.yaml", "--set", f"M={own}", "--provenance")
        assert told.code == 0, told.err
        assert f"{ran} stages ran" in told.err
        found[name] = files_below(Path("out"))
        assert run("verify", "out", "--set", f"M={own}").code == 0
    assert found["first"] == found["second"]
    left = [*found["first"].values(), *files_below(tmp_path / "shared").values()]
    assert left
    assert not [data for data in left if str(tmp_path).encode() in data]


def test_what_fails_is_told_by_its_path(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = machine(tmp_path, "only")
    monkeypatch.chdir(own.parent)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(own.parent / "store"))
    (own / "data" / "test.npz").write_bytes((own / "model" / "graph.pbtxt").read_bytes())
    told = run("build", "recipe.yaml", "--set", f"M={own}")
    assert told.code
    assert f"{own}/data/test.npz" in told.err
    assert "*/" not in told.err

"""The verb ``clean`` removes outputs of builds and no other files."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline.locks import share
from tests.cli.conftest import Run

FOLDER = Path("out/digits/phone")


def test_clean_removes_only_files_of_the_manifest(built: Path, run: Run) -> None:
    listed = json.loads((FOLDER / "manifest.json").read_text())["files"]
    (FOLDER / "notes.txt").write_text("mine")
    result = run("clean", built)
    assert (result.code, result.out) == (0, "")
    removed = int(result.err.split()[0])
    assert removed > len(listed)
    assert [p.name for p in FOLDER.rglob("*")] == ["notes.txt"]
    assert run("clean", built).err == "0 files removed\n"


def test_clean_removes_partial_files_of_killed_builds(built: Path, run: Run) -> None:
    for path in (FOLDER / "digits.pb", FOLDER / "manifest.json", FOLDER.with_name("report.html")):
        path.with_name(f".{path.name}.0123456789abcdef").touch()
    assert run("clean", built).code == 0
    assert not FOLDER.parent.exists()


@pytest.mark.parametrize("name", ["digits.pb", "report.html"])
def test_file_that_cannot_be_removed_is_reported(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Path.unlink

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    result = run("clean", built)
    assert result.code == 9
    assert f"{name}: cannot be removed: Permission denied" in result.err


def test_other_output_directories_stay(built: Path, run: Run) -> None:
    before = sorted(FOLDER.rglob("*"))
    assert run("clean", built, "--out", "elsewhere").err == "0 files removed\n"
    assert sorted(FOLDER.rglob("*")) == before


def test_cache_is_cleared_only_with_cache_option(built: Path, run: Run) -> None:
    run("clean", built)
    assert run("plan", built, "--exit-code").code == 1
    assert run("report", built).code == 0
    run("clean", built, "--cache")
    assert run("report", built).code == 2


def test_symlinked_cache_is_unlinked_and_its_target_stays(
    built: Path, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "store" / "v2"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    result = run("clean", built, "--cache")
    assert result.code == 0
    assert f"{folder} is a symlink: its target is kept" in result.err
    assert not folder.is_symlink()
    assert (tmp_path / "elsewhere" / "cas").is_dir()
    assert run("report", built).code == 2


def test_cache_in_use_is_refused_without_waiting(built: Path, run: Run, tmp_path: Path) -> None:
    release = share(tmp_path / "store" / "v2")
    result = run("clean", built, "--cache", "--no-wait")
    assert (result.code, "being used by a build" in result.err) == (9, True)
    assert (tmp_path / "store" / "v2" / "cas").is_dir()
    release()
    assert run("clean", built, "--cache", "--no-wait").code == 0
    assert not (tmp_path / "store").exists() or not any((tmp_path / "store").iterdir())

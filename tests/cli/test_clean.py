"""The verb ``clean``: removes what builds left, and nothing else."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline.locks import share
from tests.cli.conftest import Run

FOLDER = Path("out/digits/phone")


def test_what_the_manifest_lists_goes_and_what_the_user_added_stays(built: Path, run: Run) -> None:
    listed = json.loads((FOLDER / "manifest.json").read_text())["files"]
    (FOLDER / "notes.txt").write_text("mine")
    told = run("clean", built)
    assert (told.code, told.out) == (0, "")
    removed = int(told.err.split()[0])
    assert removed > len(listed)
    assert [p.name for p in FOLDER.rglob("*")] == ["notes.txt"]
    assert run("clean", built).err == "0 files removed\n"


def test_what_killed_builds_have_left_half_written_goes_too(built: Path, run: Run) -> None:
    for path in (FOLDER / "digits.pb", FOLDER / "manifest.json", FOLDER.with_name("report.html")):
        path.with_name(f".{path.name}.0123456789abcdef").touch()
    assert run("clean", built).code == 0
    assert not FOLDER.parent.exists()


@pytest.mark.parametrize("name", ["digits.pb", "report.html"])
def test_what_cannot_be_removed_is_told(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Path.unlink

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    told = run("clean", built)
    assert told.code == 9
    assert f"{name}: cannot be removed: Permission denied" in told.err


def test_another_output_folder_is_left_alone(built: Path, run: Run) -> None:
    before = sorted(FOLDER.rglob("*"))
    assert run("clean", built, "--out", "elsewhere").err == "0 files removed\n"
    assert sorted(FOLDER.rglob("*")) == before


def test_the_store_is_emptied_only_where_that_is_asked_for(built: Path, run: Run) -> None:
    run("clean", built)
    assert run("plan", built, "--exit-code").code == 1
    assert run("report", built).code == 0
    run("clean", built, "--cache")
    assert run("report", built).code == 2


def test_a_link_in_the_store_goes_and_what_it_leads_to_stays(
    built: Path, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "store" / "v2"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    told = run("clean", built, "--cache")
    assert told.code == 0
    assert f"{folder} is a symlink: its target is kept" in told.err
    assert not folder.is_symlink()
    assert (tmp_path / "elsewhere" / "cas").is_dir()
    assert run("report", built).code == 2


def test_a_store_that_a_build_uses_is_waited_for(built: Path, run: Run, tmp_path: Path) -> None:
    release = share(tmp_path / "store" / "v2")
    told = run("clean", built, "--cache", "--no-wait")
    assert (told.code, "being used by a build" in told.err) == (9, True)
    assert (tmp_path / "store" / "v2" / "cas").is_dir()
    release()
    assert run("clean", built, "--cache", "--no-wait").code == 0
    assert not (tmp_path / "store").exists() or not any((tmp_path / "store").iterdir())

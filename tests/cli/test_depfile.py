"""``build --depfile``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building import builder as building
from tests.cli.conftest import Run

OUT = Path("out/digits")


@pytest.mark.parametrize(
    "name",
    ["digits/recipe.yaml", "digits/model/graph.pbtxt", "out/digits/phone/digits.pb", "link"],
)
def test_depfile_does_not_overwrite_inputs_or_outputs(built: Path, run: Run, name: str) -> None:
    Path("link").symlink_to(built)
    file = Path(name)
    before = file.read_bytes()
    result = run("build", "digits", "--depfile", name)
    assert result.code == 9, result.err
    assert "which the build reads" in result.err or "among the outputs" in result.err
    assert file.read_bytes() == before


def test_unrepresentable_path_stops_the_build(digits: Path, run: Run) -> None:
    digits.parent.rename("a;b")
    result = run("build", "a;b", "--depfile", "models.d")
    assert result.code == 2
    assert "cannot be written to a depfile, because of ';'" in result.err
    assert not OUT.exists()


def test_lock_file_is_listed_for_locked_builds(built: Path, run: Run) -> None:
    assert run("lock", "digits").code == 0
    for flags, is_listed in (((), False), (("--locked",), True)):
        assert run("build", "digits", "--depfile", "models.d", *flags).code == 0
        assert ("digits/mobileprep.lock" in Path("models.d").read_text()) is is_listed


def test_file_edited_during_a_build_is_newer_than_outputs(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, whole = built.parent / "model" / "graph.pbtxt", building.publish_target

    def edited(*arguments: Any) -> Any:
        graph.write_text(f"{graph.read_text()}\n")
        time.sleep(0.05)  # the clock of files moves in steps
        return whole(*arguments)

    monkeypatch.setattr(building, "publish_target", edited)
    for _ in range(2):
        before = time.time_ns()
        assert run("build", "digits", "--depfile", "models.d").code == 0
        manifests = [OUT / name / "manifest.json" for name in ("phone", "download")]
        # Ninja takes the depfile's time for that of the build, where rules have ``restat``.
        for path in (*manifests, Path("models.d")):
            assert before <= path.stat().st_mtime_ns < graph.stat().st_mtime_ns


def test_output_path_may_go_through_a_missing_directory(built: Path, run: Run) -> None:
    result = run("build", "digits", "--out", "missing/../made", "--depfile", "models.d")
    assert result.code == 0, result.err
    assert Path("made/digits/phone/manifest.json").is_file()
    assert "missing/../made/digits/phone/manifest.json" in Path("models.d").read_text()


def test_undecodable_names_are_written_as_bytes(digits: Path, run: Run) -> None:
    folder = os.fsdecode(b"d\xffgits")
    digits.parent.rename(folder)
    result = run("build", folder, "--depfile", "models.d")
    assert result.code == 0, result.err
    assert b" d\xffgits/recipe.yaml" in Path("models.d").read_bytes()


def test_depfile_and_json_on_stdout_are_refused(built: Path, run: Run) -> None:
    result = run("build", "digits", "--json", "--depfile", "-")
    assert result.code == 2
    assert "cannot both be written to the standard output" in result.err + result.out
    assert "manifest.json" in run("build", "digits", "--depfile", "-").out

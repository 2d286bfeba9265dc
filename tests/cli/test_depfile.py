"""``build --depfile``: what is written, and what is refused before anything is built."""

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
def test_nothing_of_the_build_is_written_over(built: Path, run: Run, name: str) -> None:
    Path("link").symlink_to(built)
    file = Path(name)
    before = file.read_bytes()
    told = run("build", "digits", "--depfile", name)
    assert told.code == 9, told.err
    assert "which the build reads" in told.err or "among the outputs" in told.err
    assert file.read_bytes() == before


def test_a_name_that_no_depfile_can_hold_ends_the_build_before_it_begins(
    digits: Path, run: Run
) -> None:
    digits.parent.rename("a;b")
    told = run("build", "a;b", "--depfile", "models.d")
    assert told.code == 2
    assert "cannot be written to a depfile, because of ';'" in told.err
    assert not OUT.exists()


def test_the_lock_counts_where_the_build_goes_by_it(built: Path, run: Run) -> None:
    assert run("lock", "digits").code == 0
    for flags, there in (((), False), (("--locked",), True)):
        assert run("build", "digits", "--depfile", "models.d", *flags).code == 0
        assert ("digits/mobileprep.lock" in Path("models.d").read_text()) is there


def test_what_is_edited_while_a_build_runs_is_newer_than_what_it_leaves(
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


def test_outputs_may_be_named_by_way_of_a_folder_that_is_not_there(built: Path, run: Run) -> None:
    told = run("build", "digits", "--out", "missing/../made", "--depfile", "models.d")
    assert told.code == 0, told.err
    assert Path("made/digits/phone/manifest.json").is_file()
    assert "missing/../made/digits/phone/manifest.json" in Path("models.d").read_text()


def test_names_are_written_as_the_system_has_them(digits: Path, run: Run) -> None:
    folder = os.fsdecode(b"d\xffgits")
    digits.parent.rename(folder)
    told = run("build", folder, "--depfile", "models.d")
    assert told.code == 0, told.err
    assert b" d\xffgits/recipe.yaml" in Path("models.d").read_bytes()


def test_the_standard_output_holds_one_thing(built: Path, run: Run) -> None:
    told = run("build", "digits", "--json", "--depfile", "-")
    assert told.code == 2
    assert "cannot both be written to the standard output" in told.err + told.out
    assert "manifest.json" in run("build", "digits", "--depfile", "-").out

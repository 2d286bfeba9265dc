"""The verb ``verify``: what it finds, and what it cannot find out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mobileprep.core.files import sha256_bytes
from tests.cli.conftest import Run

PHONE = Path("out/digits/phone")
SAME = "out/digits/download: same as the rebuild, 13 files\n"


def edited(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_what_was_built_is_built_again_to_the_same_bytes(built: Path, run: Run) -> None:
    told = run("verify", "out")
    assert (told.code, told.out) == (0, f"{SAME}{PHONE}: same as the rebuild, 13 files\n")
    shutil.rmtree("store")
    assert run("verify", PHONE, "--recipe", built, "-j", "2").code == 0
    assert not Path("store").exists()


@pytest.mark.usefixtures("built")
def test_no_seed_of_hashes_matters() -> None:
    command = [sys.executable, "-m", "mobileprep", "verify", str(PHONE)]
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environ, check=True, capture_output=True)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("flags", [(), ("--quick",)], ids=["rebuilt", "quick"])
def test_every_file_that_is_not_right_is_told(run: Run, flags: tuple[str, ...]) -> None:
    with (PHONE / "digits.pb").open("ab") as stream:
        stream.write(b"x")
    (PHONE / "report.json").unlink()
    (PHONE / "notes.txt").write_text("mine")
    told = run("verify", "out", *flags)
    assert told.code == 4
    beside = "its manifest" if flags else "the rebuild"
    found = sha256_bytes((PHONE / "digits.pb").read_bytes())
    first, model, notes, report = told.out.splitlines()
    assert first == f"out/digits/download: same as {beside}, 13 files"
    assert model.startswith(f"{PHONE}/digits.pb: differs: its sha256 is {found}, and {beside} has ")
    assert notes == f"{PHONE}/notes.txt: extra: {beside} has no such file"
    assert report == f"{PHONE}/report.json: missing: {beside} has it"
    (folder,) = json.loads(run("verify", PHONE, "--json", *flags).out)
    assert (folder["recipe"], folder["target"]) == ("digits", "phone")
    assert (folder["is_same"], folder["is_rebuilt"]) == (False, not flags)
    assert {f["name"]: f["status"] for f in folder["files"] if f["status"] != "same"} == {
        "digits.pb": "differs",
        "notes.txt": "extra",
        "report.json": "missing",
    }


@pytest.mark.usefixtures("built")
def test_a_link_is_not_taken_for_the_file_that_it_leads_to(run: Run) -> None:
    shutil.move(PHONE / "digits.pb", "kept.pb")
    (PHONE / "digits.pb").symlink_to(Path("kept.pb").absolute())
    told = run("verify", PHONE, "--quick")
    assert told.code == 4
    assert "differs: its sha256 is none, because it is not a regular file" in told.out


@pytest.mark.usefixtures("built")
def test_an_output_and_its_manifest_altered_together_are_found(run: Run) -> None:
    """Which comparing with the manifest alone cannot."""
    before = (PHONE / "digits.pb").read_bytes()
    (PHONE / "digits.pb").write_bytes(before + b"x")
    edited(PHONE / "manifest.json", sha256_bytes(before), sha256_bytes(before + b"x"))
    assert run("verify", PHONE, "--quick").code == 0
    told = run("verify", PHONE)
    assert told.code == 4
    assert [line.partition(": ")[0] for line in told.out.splitlines()] == [
        f"{PHONE}/digits.pb",
        f"{PHONE}/manifest.json",
    ]


def test_a_source_that_changed_is_told_instead(built: Path, run: Run) -> None:
    graph = built.parent / "model" / "graph.pbtxt"
    before, after = graph.read_bytes(), graph.read_bytes() + b"\n"
    graph.write_bytes(after)
    told = run("verify", PHONE)
    assert told.code == 4
    assert told.out == (
        f"{PHONE}: not built again: 'model/graph.pbtxt' has the sha256 {sha256_bytes(after)}, "
        f"and had {sha256_bytes(before)}\n{PHONE}: same as its manifest, 13 files\n"
    )
    graph.unlink()
    told = run("verify", PHONE)
    assert told.code == 4
    assert "not built again: " in told.out
    assert "model/graph.pbtxt does not exist" in told.out


def test_a_recipe_that_changed_is_told_and_one_target_s_alone(built: Path, run: Run) -> None:
    edited(built, "quantize: weights", "quantize: {mode: weights, minimum_size: 4}")
    told = run("verify", "out")
    assert told.code == 4
    assert told.out.startswith(SAME)
    changed = r"'transforms\[\d\]\.options\.minimum_size' is '4', and was '1024'"
    assert re.search(f"{PHONE}: not built again: {changed}", told.out)
    edited(built, "max_drop: 0.01", "max_drop: 0.02")
    edited(built, "clear_devices: true", "clear_devices: false")
    told = run("verify", PHONE)
    assert "'validation.metrics[0].max_drop' is '0.02', and was '0.01'" in told.out
    assert "'freeze.clear_devices' is 'false', and was 'true'" in told.out


def test_what_differs_far_inside_a_long_setting_is_shown(built: Path, run: Run) -> None:
    edited(built, "  - fold_batch_norms\n", "")
    told = run("verify", PHONE)
    (line,) = (one for one in told.out.splitlines() if "not built again" in one)
    start, _, before = line.partition(", and was ")
    now = start.partition("'transforms' is ")[2]
    assert now.startswith("'...")
    assert now != before
    assert "fold_batch_norms" in before
    assert len(line) < 400


@pytest.mark.usefixtures("built")
def test_another_version_is_told_with_how_to_get_it(run: Run) -> None:
    edited(PHONE / "manifest.json", '"tool": "mobileprep 0.1.0"', '"tool": "mobileprep 0.0.9"')
    told = run("verify", PHONE)
    assert told.code == 4
    assert "it was built by 'mobileprep 0.0.9', and this is mobileprep 0.1.0" in told.out
    assert "pip install 'mobileprep==0.0.9'" in told.out


def test_a_recipe_that_is_not_here_is_told(built: Path, run: Run) -> None:
    shutil.move(built.parent, "elsewhere")
    Path("elsewhere/recipe.yaml").rename("elsewhere/other.yaml")
    told = run("verify", PHONE)
    assert told.code == 4
    assert "no recipe is named 'digits': name its file with --recipe" in told.out
    assert run("verify", PHONE, "--recipe", "elsewhere/other.yaml").code == 0
    edited(Path("elsewhere/other.yaml"), "  phone:", "  tablet:")
    told = run("verify", PHONE, "--recipe", "elsewhere/other.yaml")
    assert "elsewhere/other.yaml has no target 'phone'" in told.out


@pytest.mark.usefixtures("built")
def test_a_recipe_of_something_else_is_no_hindrance(run: Run) -> None:
    Path("broken").mkdir()
    Path("broken/recipe.yaml").write_text("{")
    told = run("verify", PHONE)
    assert told.code == 0
    assert "warning: passed over broken/recipe.yaml" in told.err
    assert run("verify", PHONE, "--recipe", "broken").code == 3


def test_equal_folders_are_each_compared(built: Path, run: Run) -> None:
    shutil.copytree("out", "out/copy")
    (Path("out/copy/digits/phone") / "report.json").write_text("{}")
    told = run("verify", "out", "--recipe", built)
    assert told.code == 4
    assert [line.partition(": ")[::2] for line in told.out.splitlines()][:1] == [
        ("out/copy/digits/download", "same as the rebuild, 13 files")
    ]
    assert told.out.count("same as the rebuild") == 3
    assert told.out.count("differs") == 1


def test_what_cannot_be_verified_at_all_is_an_error(tmp_path: Path, run: Run) -> None:
    assert run("verify", tmp_path).code == 4
    (tmp_path / "manifest.json").write_text("{}")
    assert "not a manifest of a build" in run("verify", tmp_path).err
    assert run("verify", tmp_path, "-j", "0").code == 2


@pytest.mark.usefixtures("built")
def test_a_name_does_nothing_to_the_terminal(run: Run) -> None:
    (PHONE / "a\x1b[2J\udc80").write_text("")
    told = run("verify", PHONE, "--quick")
    assert told.code == 4
    assert f"{PHONE}/a\\x1b[2J\\udc80: extra" in told.out
    assert run("verify", PHONE, "--quick", "--json").code == 4


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("flags", [(), ("--quick",), ("--recipe", "digits")], ids=str)
def test_files_whose_manifest_is_gone_do_not_go_unseen(run: Run, flags: tuple[str, ...]) -> None:
    (PHONE / "digits.pb").write_bytes(b"other")
    (PHONE / "manifest.json").unlink()
    told = run("verify", "out", *flags)
    assert told.code == 4
    first, second = told.out.splitlines()
    assert first.startswith("out/digits/download: same as ")
    assert second == f"{PHONE}: has no manifest.json"
    _, folder = json.loads(run("verify", "out", "--json", *flags).out)
    assert (folder["folder"], folder["recipe"], folder["target"]) == (str(PHONE), "digits", "phone")
    assert (folder["is_same"], folder["files"]) == (False, [])
    assert folder["reasons"] == ["has no manifest.json"]


@pytest.mark.usefixtures("built")
def test_targets_may_be_built_alone(run: Run) -> None:
    shutil.rmtree(PHONE)
    assert run("verify", "out").code == 0
    assert run("build", "digits", "--target", "phone", "--out", "one").code == 0
    assert run("verify", "one", "--recipe", "digits").code == 0

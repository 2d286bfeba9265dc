"""The verb ``verify``."""

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
from tests.cli.conftest import Run, replace_text

PHONE = Path("out/digits/phone")
SAME = "out/digits/download: same as the rebuild, 13 files\n"


def test_build_is_reproducible(built: Path, run: Run) -> None:
    result = run("verify", "out")
    assert (result.code, result.out) == (0, f"{SAME}{PHONE}: same as the rebuild, 13 files\n")
    shutil.rmtree("store")
    assert run("verify", PHONE, "--recipe", built, "-j", "2").code == 0
    assert not Path("store").exists()


@pytest.mark.usefixtures("built")
def test_hash_seed_does_not_matter() -> None:
    command = [sys.executable, "-m", "mobileprep", "verify", str(PHONE)]
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environ, check=True, capture_output=True)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("flags", [(), ("--quick",)], ids=["rebuilt", "quick"])
def test_changed_files_are_reported(run: Run, flags: tuple[str, ...]) -> None:
    with (PHONE / "digits.pb").open("ab") as stream:
        stream.write(b"x")
    (PHONE / "report.json").unlink()
    (PHONE / "notes.txt").write_text("mine")
    result = run("verify", "out", *flags)
    assert result.code == 4
    reference = "its manifest" if flags else "the rebuild"
    digest = sha256_bytes((PHONE / "digits.pb").read_bytes())
    first, model, notes, report = result.out.splitlines()
    assert first == f"out/digits/download: same as {reference}, 13 files"
    assert model.startswith(
        f"{PHONE}/digits.pb: differs: its sha256 is {digest}, and {reference} has "
    )
    assert notes == f"{PHONE}/notes.txt: extra: {reference} has no such file"
    assert report == f"{PHONE}/report.json: missing: {reference} has it"
    (folder,) = json.loads(run("verify", PHONE, "--json", *flags).out)
    assert (folder["recipe"], folder["target"]) == ("digits", "phone")
    assert (folder["is_same"], folder["is_rebuilt"]) == (False, not flags)
    assert {f["name"]: f["status"] for f in folder["files"] if f["status"] != "same"} == {
        "digits.pb": "differs",
        "notes.txt": "extra",
        "report.json": "missing",
    }


@pytest.mark.usefixtures("built")
def test_symlinked_output_is_reported(run: Run) -> None:
    shutil.move(PHONE / "digits.pb", "kept.pb")
    (PHONE / "digits.pb").symlink_to(Path("kept.pb").absolute())
    result = run("verify", PHONE, "--quick")
    assert result.code == 4
    assert "differs: its sha256 is none, because it is not a regular file" in result.out


@pytest.mark.usefixtures("built")
def test_tampered_output_and_manifest_are_reported(run: Run) -> None:
    before = (PHONE / "digits.pb").read_bytes()
    (PHONE / "digits.pb").write_bytes(before + b"x")
    replace_text(PHONE / "manifest.json", sha256_bytes(before), sha256_bytes(before + b"x"))
    assert run("verify", PHONE, "--quick").code == 0
    result = run("verify", PHONE)
    assert result.code == 4
    assert [line.partition(": ")[0] for line in result.out.splitlines()] == [
        f"{PHONE}/digits.pb",
        f"{PHONE}/manifest.json",
    ]


def test_changed_source_is_reported(built: Path, run: Run) -> None:
    graph = built.parent / "model" / "graph.pbtxt"
    before, after = graph.read_bytes(), graph.read_bytes() + b"\n"
    graph.write_bytes(after)
    result = run("verify", PHONE)
    assert result.code == 4
    assert result.out == (
        f"{PHONE}: not built again: 'model/graph.pbtxt' has the sha256 {sha256_bytes(after)}, "
        f"and had {sha256_bytes(before)}\n{PHONE}: same as its manifest, 13 files\n"
    )
    graph.unlink()
    result = run("verify", PHONE)
    assert result.code == 4
    assert "not built again: " in result.out
    assert "model/graph.pbtxt does not exist" in result.out


def test_changed_recipe_is_reported_per_target(built: Path, run: Run) -> None:
    replace_text(built, "quantize: weights", "quantize: {mode: weights, minimum_size: 4}")
    result = run("verify", "out")
    assert result.code == 4
    assert result.out.startswith(SAME)
    changed = r"'transforms\[\d\]\.options\.minimum_size' is '4', and was '1024'"
    assert re.search(f"{PHONE}: not built again: {changed}", result.out)
    replace_text(built, "max_drop: 0.01", "max_drop: 0.02")
    replace_text(built, "clear_devices: true", "clear_devices: false")
    result = run("verify", PHONE)
    assert "'validation.metrics[0].max_drop' is '0.02', and was '0.01'" in result.out
    assert "'freeze.clear_devices' is 'false', and was 'true'" in result.out


def test_difference_in_a_long_setting_is_printed(built: Path, run: Run) -> None:
    replace_text(built, "  - fold_batch_norms\n", "")
    result = run("verify", PHONE)
    (line,) = (one for one in result.out.splitlines() if "not built again" in one)
    start, _, before = line.partition(", and was ")
    now = start.partition("'transforms' is ")[2]
    assert now.startswith("'...")
    assert now != before
    assert "fold_batch_norms" in before
    assert len(line) < 400


@pytest.mark.usefixtures("built")
def test_other_version_is_reported_with_a_hint(run: Run) -> None:
    replace_text(
        PHONE / "manifest.json", '"tool": "mobileprep 0.1.0"', '"tool": "mobileprep 0.0.9"'
    )
    result = run("verify", PHONE)
    assert result.code == 4
    assert "it was built by 'mobileprep 0.0.9', and this is mobileprep 0.1.0" in result.out
    assert "pip install 'mobileprep==0.0.9'" in result.out


def test_missing_recipe_is_reported(built: Path, run: Run) -> None:
    shutil.move(built.parent, "elsewhere")
    Path("elsewhere/recipe.yaml").rename("elsewhere/other.yaml")
    result = run("verify", PHONE)
    assert result.code == 4
    assert "no recipe is named 'digits': name its file with --recipe" in result.out
    assert run("verify", PHONE, "--recipe", "elsewhere/other.yaml").code == 0
    replace_text(Path("elsewhere/other.yaml"), "  phone:", "  tablet:")
    result = run("verify", PHONE, "--recipe", "elsewhere/other.yaml")
    assert "elsewhere/other.yaml has no target 'phone'" in result.out


@pytest.mark.usefixtures("built")
def test_unrelated_invalid_recipe_causes_a_warning(run: Run) -> None:
    Path("broken").mkdir()
    Path("broken/recipe.yaml").write_text("{")
    result = run("verify", PHONE)
    assert result.code == 0
    assert "warning: passed over broken/recipe.yaml" in result.err
    assert run("verify", PHONE, "--recipe", "broken").code == 3


def test_copied_directories_are_compared_separately(built: Path, run: Run) -> None:
    shutil.copytree("out", "out/copy")
    (Path("out/copy/digits/phone") / "report.json").write_text("{}")
    result = run("verify", "out", "--recipe", built)
    assert result.code == 4
    assert [line.partition(": ")[::2] for line in result.out.splitlines()][:1] == [
        ("out/copy/digits/download", "same as the rebuild, 13 files")
    ]
    assert result.out.count("same as the rebuild") == 3
    assert result.out.count("differs") == 1


def test_directory_without_a_build_is_refused(tmp_path: Path, run: Run) -> None:
    assert run("verify", tmp_path).code == 4
    (tmp_path / "manifest.json").write_text("{}")
    assert "not a manifest of a build" in run("verify", tmp_path).err
    assert run("verify", tmp_path, "-j", "0").code == 2


@pytest.mark.usefixtures("built")
def test_control_characters_in_names_are_escaped(run: Run) -> None:
    (PHONE / "a\x1b[2J\udc80").write_text("")
    result = run("verify", PHONE, "--quick")
    assert result.code == 4
    assert f"{PHONE}/a\\x1b[2J\\udc80: extra" in result.out
    assert run("verify", PHONE, "--quick", "--json").code == 4


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("flags", [(), ("--quick",), ("--recipe", "digits")], ids=str)
def test_missing_manifest_is_reported(run: Run, flags: tuple[str, ...]) -> None:
    (PHONE / "digits.pb").write_bytes(b"other")
    (PHONE / "manifest.json").unlink()
    result = run("verify", "out", *flags)
    assert result.code == 4
    first, second = result.out.splitlines()
    assert first.startswith("out/digits/download: same as ")
    assert second == f"{PHONE}: has no manifest.json"
    _, folder = json.loads(run("verify", "out", "--json", *flags).out)
    assert (folder["folder"], folder["recipe"], folder["target"]) == (str(PHONE), "digits", "phone")
    assert (folder["is_same"], folder["files"]) == (False, [])
    assert folder["reasons"] == ["has no manifest.json"]


@pytest.mark.usefixtures("built")
def test_separately_built_target_is_verified(run: Run) -> None:
    shutil.rmtree(PHONE)
    assert run("verify", "out").code == 0
    assert run("build", "digits", "--target", "phone", "--out", "one").code == 0
    assert run("verify", "one", "--recipe", "digits").code == 0

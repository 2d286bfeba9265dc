"""What ``plan`` and a dry run tell: to people, by their exit code, and as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

MODEL = Path("out/digits/phone/digits.pb")
VERBS = [["plan"], ["build", "--dry-run"]]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def steps(run: Run, recipe: Path, *arguments: str) -> dict[str, Any]:
    """The steps of a plan by their tasks."""
    told = run("plan", recipe, "--json", *arguments)
    return {step["task"]: step for step in json.loads(told.out)}


@pytest.mark.parametrize("verb", VERBS)
def test_the_exit_code_tells_whether_anything_would_run(
    built: Path, run: Run, verb: list[str]
) -> None:
    assert run(*verb, built).code == 0
    assert run(*verb, built, "--exit-code").code == 0
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    assert run(*verb, built).code == 0
    assert run(*verb, built, "--exit-code").code == 1
    # The page is of the targets that are asked for.
    assert run(*verb, built, "--exit-code", "--target", "phone").code == 1
    assert run("build", built, "--target", "phone").code == 0
    assert run(*verb, built, "--exit-code", "--target", "phone").code == 0


def alter() -> None:
    MODEL.write_bytes(b"altered")


def remove() -> None:
    MODEL.unlink()


def remove_folder() -> None:
    shutil.rmtree(MODEL.parent)


def remove_manifest() -> None:
    (MODEL.parent / "manifest.json").unlink()


def put_folder() -> None:
    MODEL.unlink()
    MODEL.mkdir()


def leave_behind() -> None:
    manifest = MODEL.parent / "manifest.json"
    data = json.loads(manifest.read_bytes())
    data["files"]["old.pb"] = {"sha256": "0" * 64}
    manifest.write_text(json.dumps(data))
    (MODEL.parent / "old.pb").write_bytes(b"")


def keep_older() -> None:
    manifest = MODEL.parent / "manifest.json"
    data = json.loads(manifest.read_bytes())
    MODEL.write_bytes(b"older")
    data["files"]["digits.pb"] = {"sha256": digest(MODEL)}
    manifest.write_text(json.dumps(data))


@pytest.mark.parametrize("verb", [*VERBS, ["build", "--explain"]])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (alter, f"was altered: its sha256 is {hashlib.sha256(b'altered').hexdigest()[:12]}, "),
        (remove, "out/digits/phone/digits.pb is missing"),
        (remove_folder, "digits/phone/publish: out/digits/phone does not exist"),
        (remove_manifest, "out/digits/phone/manifest.json is missing"),
        (put_folder, "out/digits/phone/digits.pb is not a regular file"),
        (leave_behind, "out/digits/phone/old.pb remains from an earlier build"),
        (keep_older, "out/digits/phone/digits.pb is of an earlier build: its sha256 is "),
    ],
)
def test_a_published_file_that_is_not_as_built_is_named(
    built: Path, run: Run, verb: list[str], damage: Callable[[], None], told: str
) -> None:
    expected = digest(MODEL)[:12]
    damage()
    if "--explain" not in verb:
        assert run(*verb, built, "--exit-code").code == 1
    answer = run(*verb, built)
    assert told in answer.out + answer.err
    if "its sha256 is" in told:
        assert f", expected {expected}" in answer.out + answer.err


def test_what_plan_says_is_mended_by_a_build(built: Path, run: Run) -> None:
    for damage in (alter, remove, remove_folder, remove_manifest, leave_behind, keep_older):
        damage()
        assert run("plan", built, "--exit-code").code == 1
        assert run("build", built).code == 0
        assert run("plan", built, "--exit-code").code == 0


def test_another_folder_is_another_answer(built: Path, run: Run) -> None:
    assert run("plan", built, "--exit-code", "--out", "elsewhere").code == 1
    run("build", built, "--out", "elsewhere")
    assert run("plan", built, "--exit-code", "--out", "elsewhere").code == 0


def test_a_damaged_object_of_the_store_is_named(built: Path, run: Run) -> None:
    header = digest(MODEL.parent / "tensorflow-1.15" / "ops_to_register.h")
    stored = Path(os.environ["MOBILEPREP_CACHE"]).glob(f"*/cas/{header[:2]}/{header}")
    next(stored).write_bytes(b"damaged")
    assert run("plan", built, "--exit-code").code == 0, "nothing needs it"
    (MODEL.parent / "tensorflow-1.15" / "ops_to_register.h").unlink()
    told = run("plan", built, "--exit-code")
    assert told.code == 1
    name = "files/tensorflow-1.15/ops_to_register.h"
    reason = f"the stored {name} is missing or damaged, expected {header[:12]}"
    assert f"digits/phone/package: {reason}" in told.out
    assert "digits/phone/publish: digits/phone/package runs first" in told.out


def test_json_lists_the_files_that_stages_read_and_leave(built: Path, run: Run) -> None:
    plan = steps(run, built)
    assert all(step["fresh"] for step in plan.values())
    freeze = plan["digits/freeze"]
    graph = next(file for file in freeze["inputs"] if file["slot"] == "graph")
    assert graph["name"] == "model/graph.pbtxt"
    assert graph["sha256"] == digest(Path(graph["path"]))
    assert {file["name"] for file in freeze["outputs"]} >= {"graph.pb", "freeze.json"}
    assert all(len(file["sha256"]) == 64 for file in freeze["outputs"])
    folder = plan["digits/phone/publish"]
    assert folder["stage"] == "publish"
    assert "digits/phone/package" in folder["needs"]
    assert {file["path"]: file["sha256"] for file in folder["outputs"]} == {
        str(path): digest(path) for path in MODEL.parent.rglob("*") if path.is_file()
    }


def test_json_of_what_has_not_run_tells_what_is_known(digits: Path, run: Run) -> None:
    plan = steps(run, digits)
    assert not any(step["fresh"] for step in plan.values())
    freeze = plan["digits/freeze"]
    assert freeze["reasons"] == ["it has not run before"]
    assert all(len(file["sha256"]) == 64 for file in freeze["inputs"])
    assert {file["sha256"] for file in freeze["outputs"]} == {None}
    folder = plan["digits/phone/publish"]
    assert folder["reasons"] == ["digits/freeze runs first"]
    paths = [file["path"] for file in folder["outputs"]]
    assert {str(MODEL), str(MODEL.parent / "manifest.json")} < {*paths}


def test_a_dry_run_gives_the_same_json(built: Path, run: Run) -> None:
    alter()
    dry = run("build", built, "--dry-run", "--json", "--exit-code")
    plan = run("plan", built, "--json", "--exit-code")
    assert (dry.code, dry.out) == (plan.code, plan.out)
    assert dry.code == 1
    assert digest(MODEL) == hashlib.sha256(b"altered").hexdigest()


def test_force_makes_a_dry_run_tell_everything(built: Path, run: Run) -> None:
    assert run("build", built, "--dry-run", "--force", "--exit-code").code == 1


def test_an_exit_code_of_what_would_run_needs_a_dry_run(built: Path, run: Run) -> None:
    told = run("build", built, "--exit-code")
    assert (told.code, "--dry-run" in told.err) == (2, True)


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "--json"], ["build"], ["build", "--json"]]
)
def test_what_is_fresh_is_found_so_without_numpy_or_doit(built: Path, arguments: list[str]) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or bool({'numpy', 'doit', 'google.protobuf'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *arguments, str(built)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_a_dry_run_sums_up_what_it_tells(built: Path, run: Run) -> None:
    assert "would run" not in run("build", built, "--dry-run").err
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    told = run("build", built, "--dry-run").err.splitlines()[-1]
    found = re.fullmatch(
        r"would run: 1 for certain \([\d.]+ s last time\), (\d) perhaps \([\d.]+ s last time\); "
        r"would write folders: 0 for certain, 1 perhaps; the store gives [\d.]+ KB",
        told,
    )
    assert found, told
    done = run("build", built).err
    ran = int(re.search(r"(\d+) of \d+ stages ran", done)[1])  # type: ignore[index]
    assert 1 <= ran <= 1 + int(found[1])


def test_a_dry_run_of_nothing_built_knows_no_times(digits: Path, run: Run) -> None:
    told = run("build", digits, "--dry-run").err.splitlines()[-1]
    assert told.startswith("would run: 1 for certain, ")
    assert told.endswith("would write folders: 0 for certain, 2 perhaps; the store gives 0 bytes")


def test_what_the_remote_store_would_give_is_told_apart(
    digits: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_REMOTE_CACHE", (tmp_path / "remote").as_uri())
    (tmp_path / "remote").mkdir()
    assert run("build", digits).code == 0
    size = MODEL.stat().st_size
    MODEL.unlink()
    here = steps(run, digits)["digits/phone/publish"]
    assert here["store_bytes"] >= size
    assert here["remote_bytes"] == 0
    shutil.rmtree("store/v2/cas")
    there = steps(run, digits)["digits/phone/publish"]
    assert there["store_bytes"] == 0
    assert there["remote_bytes"] >= size
    told = run("build", digits, "--dry-run").err.splitlines()[-1]
    assert re.search(r"the store gives 0 bytes, the remote store [0-9.]+ KB$", told), told
    assert "\n0 of " in run("build", digits).err
    assert MODEL.stat().st_size == size


AUTO = """\
version: 1
name: auto
extends: digits/recipe.yaml
calibration: {data: digits/data/test.npz}
targets: {phone: {quantize: {mode: auto, trials: 5}}, download: null}
"""
FOLDED = "auto/07-quantize_nodes: 16 trial stages: "


def test_trials_of_auto_are_one_line_unless_asked_for(digits: Path, run: Run) -> None:
    recipe = Path("auto.yaml")
    recipe.write_text(AUTO)
    for verb in ("plan",), ("build", "--dry-run"):
        told = run(*verb, recipe)
        lines = (told.out or told.err).splitlines()
        assert [line for line in lines if "-trial-" in line or "-verdict-" in line] == []
        assert lines.count(f"{FOLDED}16 would run (list them with -v)") == 1
        told = run(*verb, recipe, "-v")
        lines = (told.out or told.err).splitlines()
        assert any(line.startswith("auto/07-quantize_nodes-trial-5: ") for line in lines)
        assert not any(FOLDED in line for line in lines)
    told = run("build", recipe, "--explain")
    assert f"{FOLDED}16 would run (list them with -v)" in told.err
    assert "-verdict-5: " not in told.err
    assert f"{FOLDED}fresh (list them with -v)" in run("plan", recipe).out
    assert len(steps(run, recipe)) > 16

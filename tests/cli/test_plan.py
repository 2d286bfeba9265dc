"""Text, exit codes, and JSON of ``plan`` and ``build --dry-run``."""

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

from tests.cli.conftest import Run, replace_text

MODEL = Path("out/digits/phone/digits.pb")
VERBS = [["plan"], ["build", "--dry-run"]]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def steps(run: Run, recipe: Path, *arguments: str) -> dict[str, Any]:
    """The steps of a plan by their tasks."""
    result = run("plan", recipe, "--json", *arguments)
    return {step["task"]: step for step in json.loads(result.out)}


@pytest.mark.parametrize("verb", VERBS)
def test_exit_code_shows_pending_stages(built: Path, run: Run, verb: list[str]) -> None:
    assert run(*verb, built).code == 0
    assert run(*verb, built, "--exit-code").code == 0
    replace_text(built, "num_steps: 256", "num_steps: 64")
    assert run(*verb, built).code == 0
    assert run(*verb, built, "--exit-code").code == 1
    # The page shows only the selected targets.
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


def replace_by_directory() -> None:
    MODEL.unlink()
    MODEL.mkdir()


def add_obsolete_file() -> None:
    manifest = MODEL.parent / "manifest.json"
    data = json.loads(manifest.read_bytes())
    data["files"]["old.pb"] = {"sha256": "0" * 64}
    manifest.write_text(json.dumps(data))
    (MODEL.parent / "old.pb").write_bytes(b"")


def restore_older_file() -> None:
    manifest = MODEL.parent / "manifest.json"
    data = json.loads(manifest.read_bytes())
    MODEL.write_bytes(b"older")
    data["files"]["digits.pb"] = {"sha256": digest(MODEL)}
    manifest.write_text(json.dumps(data))


@pytest.mark.parametrize("verb", [*VERBS, ["build", "--explain"]])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (alter, f"was altered: its sha256 is {hashlib.sha256(b'altered').hexdigest()[:12]}, "),
        (remove, "out/digits/phone/digits.pb is missing"),
        (remove_folder, "digits/phone/publish: out/digits/phone does not exist"),
        (remove_manifest, "out/digits/phone/manifest.json is missing"),
        (replace_by_directory, "out/digits/phone/digits.pb is not a regular file"),
        (add_obsolete_file, "out/digits/phone/old.pb remains from an earlier build"),
        (restore_older_file, "out/digits/phone/digits.pb is of an earlier build: its sha256 is "),
    ],
)
def test_changed_published_file_is_named(
    built: Path, run: Run, verb: list[str], damage: Callable[[], None], message: str
) -> None:
    expected = digest(MODEL)[:12]
    damage()
    if "--explain" not in verb:
        assert run(*verb, built, "--exit-code").code == 1
    result = run(*verb, built)
    assert message in result.out + result.err
    if "its sha256 is" in message:
        assert f", expected {expected}" in result.out + result.err


def test_build_fixes_changed_published_files(built: Path, run: Run) -> None:
    for damage in (
        alter,
        remove,
        remove_folder,
        remove_manifest,
        add_obsolete_file,
        restore_older_file,
    ):
        damage()
        assert run("plan", built, "--exit-code").code == 1
        assert run("build", built).code == 0
        assert run("plan", built, "--exit-code").code == 0


def test_plan_depends_on_the_output_directory(built: Path, run: Run) -> None:
    assert run("plan", built, "--exit-code", "--out", "elsewhere").code == 1
    run("build", built, "--out", "elsewhere")
    assert run("plan", built, "--exit-code", "--out", "elsewhere").code == 0


def test_damaged_cache_object_is_named(built: Path, run: Run) -> None:
    header = digest(MODEL.parent / "tensorflow-1.15" / "ops_to_register.h")
    stored = Path(os.environ["MOBILEPREP_CACHE"]).glob(f"*/cas/{header[:2]}/{header}")
    next(stored).write_bytes(b"damaged")
    assert run("plan", built, "--exit-code").code == 0, "nothing needs it"
    (MODEL.parent / "tensorflow-1.15" / "ops_to_register.h").unlink()
    result = run("plan", built, "--exit-code")
    assert result.code == 1
    name = "files/tensorflow-1.15/ops_to_register.h"
    reason = f"the stored {name} is missing or damaged, expected {header[:12]}"
    assert f"digits/phone/package: {reason}" in result.out
    assert "digits/phone/publish: digits/phone/package runs first" in result.out


def test_json_lists_inputs_and_outputs(built: Path, run: Run) -> None:
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


def test_json_of_pending_stages(digits: Path, run: Run) -> None:
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


def test_dry_run_prints_the_same_json(built: Path, run: Run) -> None:
    alter()
    dry = run("build", built, "--dry-run", "--json", "--exit-code")
    plan = run("plan", built, "--json", "--exit-code")
    assert (dry.code, dry.out) == (plan.code, plan.out)
    assert dry.code == 1
    assert digest(MODEL) == hashlib.sha256(b"altered").hexdigest()


def test_force_makes_all_stages_pending(built: Path, run: Run) -> None:
    assert run("build", built, "--dry-run", "--force", "--exit-code").code == 1


def test_exit_code_option_requires_dry_run(built: Path, run: Run) -> None:
    result = run("build", built, "--exit-code")
    assert (result.code, "--dry-run" in result.err) == (2, True)


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "--json"], ["build"], ["build", "--json"]]
)
def test_up_to_date_check_does_not_import_numpy_or_doit(built: Path, arguments: list[str]) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or bool({'numpy', 'doit', 'google.protobuf'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *arguments, str(built)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_dry_run_prints_a_summary(built: Path, run: Run) -> None:
    assert "would run" not in run("build", built, "--dry-run").err
    replace_text(built, "num_steps: 256", "num_steps: 64")
    result = run("build", built, "--dry-run").err.splitlines()[-1]
    match = re.fullmatch(
        r"would run: 1 for certain \([\d.]+ s last time\), (\d) perhaps \([\d.]+ s last time\); "
        r"would write folders: 0 for certain, 1 perhaps; the store gives [\d.]+ KB",
        result,
    )
    assert match, result
    done = run("build", built).err
    ran = int(re.search(r"(\d+) of \d+ stages ran", done)[1])  # type: ignore[index]
    assert 1 <= ran <= 1 + int(match[1])


def test_dry_run_without_earlier_builds_has_no_times(digits: Path, run: Run) -> None:
    result = run("build", digits, "--dry-run").err.splitlines()[-1]
    assert result.startswith("would run: 1 for certain, ")
    assert result.endswith("would write folders: 0 for certain, 2 perhaps; the store gives 0 bytes")


def test_dry_run_distinguishes_local_and_remote_cache(
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
    result = run("build", digits, "--dry-run").err.splitlines()[-1]
    assert re.search(r"the store gives 0 bytes, the remote store [0-9.]+ KB$", result), result
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


def test_auto_trials_are_summarized_without_verbose(digits: Path, run: Run) -> None:
    recipe = Path("auto.yaml")
    recipe.write_text(AUTO)
    for verb in ("plan",), ("build", "--dry-run"):
        result = run(*verb, recipe)
        lines = (result.out or result.err).splitlines()
        assert [line for line in lines if "-trial-" in line or "-verdict-" in line] == []
        assert lines.count(f"{FOLDED}16 would run (list them with -v)") == 1
        result = run(*verb, recipe, "-v")
        lines = (result.out or result.err).splitlines()
        assert any(line.startswith("auto/07-quantize_nodes-trial-5: ") for line in lines)
        assert not any(FOLDED in line for line in lines)
    result = run("build", recipe, "--explain")
    assert f"{FOLDED}16 would run (list them with -v)" in result.err
    assert "-verdict-5: " not in result.err
    assert f"{FOLDED}fresh (list them with -v)" in run("plan", recipe).out
    assert len(steps(run, recipe)) > 16

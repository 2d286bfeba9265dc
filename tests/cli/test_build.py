"""``mobileprep build`` on the digits recipe: successful builds and errors."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mobileprep.building import builder as building
from mobileprep.building import verdicts
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.state import State
from mobileprep.building.report.page.render import PAGE
from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph
from tests.building.pipeline.killed import kill_builds
from tests.cli.conftest import Run, output_files, replace_text

OUT = ["--out", "out"]


def test_build_creates_a_directory_per_target(digits: Path, run: Run) -> None:
    result = run("build", digits, *OUT)
    assert result.code == 0, result.err
    files_by_name = output_files(Path("out"))
    for target in ("phone", "download"):
        files = {n.removeprefix(f"digits/{target}/") for n in files_by_name if f"/{target}/" in n}
        assert {"digits.pb", "manifest.json", "report.json"} <= files
        for release in ("1.15", "2.21"):
            assert f"tensorflow-{release}/ops_to_register.h" in files
        assert len(read_graph(Path(f"out/digits/{target}/digits.pb"))) > 10
    assert "accuracy top-1" in result.out
    assert "quantize_weights" in result.out


def test_outputs_contain_no_absolute_paths(built: Path, run: Run) -> None:
    for name, data in output_files(Path("out")).items():
        assert str(Path.cwd()).encode() not in data, name
        assert b"/store" not in data or name.endswith(".pb"), name


def test_builds_in_different_directories_are_identical(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("build", digits, *OUT)
    first = output_files(Path("out"))
    other = digits.parent.parent / "else" / "where"
    shutil.copytree(digits.parent, other / "digits")
    monkeypatch.chdir(other)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(other / "store"))
    run("build", other / "digits" / "recipe.yaml", *OUT, "-j", "2")
    assert output_files(Path("out")) == first


def test_second_build_runs_no_stages(built: Path, run: Run) -> None:
    # Only target directories and their files: the lock file changes.
    before = {p: p.stat().st_mtime_ns for p in Path("out/digits").glob("*/**/*")}
    assert len(before) > 10
    result = run("build", built, *OUT)
    assert result.code == 0
    assert "\n0 of " in f"\n{result.err}"
    assert {p: p.stat().st_mtime_ns for p in Path("out/digits").glob("*/**/*")} == before


def test_shared_transform_chains_run_once(digits: Path, run: Run) -> None:
    plan = json.loads(run("plan", digits, "--json").out)
    names = [s["task"] for s in plan]
    assert len(names) == len(set(names))
    assert sum("fold_constants" in n for n in names) == 1
    assert sum(s["stage"] == "freeze" for s in plan) == 1


def test_edited_transform_reruns_only_later_stages(built: Path, run: Run) -> None:
    replace_text(built, "num_steps: 256", "num_steps: 64")
    result = run("build", built, *OUT, "--dry-run")
    stale = [line.split(":")[0] for line in result.err.splitlines()]
    assert any("round_weights" in name for name in stale)
    assert not any("fold" in name or "freeze" in name or "phone" in name for name in stale)


def test_dry_run_writes_nothing(digits: Path, run: Run) -> None:
    result = run("build", digits, *OUT, "--dry-run")
    assert result.code == 0
    assert "it has not run before" in result.err
    assert not Path("out").exists()


def test_target_option_builds_only_that_target(digits: Path, run: Run) -> None:
    assert run("build", digits, *OUT, "--target", "phone").code == 0
    assert {p.name for p in Path("out/digits").iterdir()} == {"phone", PAGE}
    result = run("build", digits, *OUT, "--target", "fone")
    assert (result.code, "did you mean 'phone'?" in result.err) == (2, True)


def test_tampered_outputs_are_restored(built: Path, run: Run) -> None:
    good = output_files(Path("out"))
    Path("out/digits/phone/digits.pb").write_bytes(b"tampered")
    Path("out/digits/phone/manifest.json").unlink()
    assert run("build", built, *OUT).code == 0
    assert output_files(Path("out")) == good


def test_manifest_has_the_digest_of_every_file(built: Path, run: Run) -> None:
    folder = Path("out/digits/phone")
    manifest = json.loads((folder / "manifest.json").read_text())
    files = output_files(folder)
    files.pop("manifest.json")
    assert {n: e["sha256"] for n, e in manifest["files"].items()} == {
        n: hashlib.sha256(data).hexdigest() for n, data in files.items()
    }
    assert "data/test.npz" in manifest["sources"]


def test_json_is_the_only_output_on_stdout(digits: Path, run: Run) -> None:
    result = run("build", digits, *OUT, "--json")
    reports = json.loads(result.out)
    assert [r["target"] for r in reports] == ["phone", "download"]
    assert reports[0]["accuracy"]["metrics"][0]["before"] >= 0.97
    assert reports[0]["steps"][-1]["bytes"] > 0


def test_clean_removes_outputs(built: Path, run: Run) -> None:
    assert run("clean", built, *OUT).code == 0
    assert not any(Path("out").rglob("*.pb"))


def test_report_of_a_stale_build_is_refused(digits: Path, run: Run) -> None:
    assert run("report", digits).code == 2
    run("build", digits, *OUT)
    result = run("report", digits)
    assert (result.code, "accuracy" in result.out) == (0, True)


def edit(old: str, new: str) -> Callable[[Path], None]:
    """Replace text in the recipe."""

    def apply(recipe: Path) -> None:
        text = recipe.read_text()
        assert old in text
        recipe.write_text(text.replace(old, new, 1))

    return apply


def cut(name: str, size: int) -> Callable[[Path], None]:
    """Truncate a file of the recipe."""

    def apply(recipe: Path) -> None:
        path = recipe.parent / name
        path.write_bytes(path.read_bytes()[:size])

    return apply


def flip(name: str, position: int) -> Callable[[Path], None]:
    """Flip one bit in a file of the recipe."""

    def apply(recipe: Path) -> None:
        path = recipe.parent / name
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(bytes(data))

    return apply


def remove(name: str) -> Callable[[Path], None]:
    """Delete a file of the recipe."""
    return lambda recipe: (recipe.parent / name).unlink()


SHARD = "model/model.ckpt-1000.data-00000-of-00002"
INDEX = "model/model.ckpt-1000.index"


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (remove("model/graph.pbtxt"), 4, "model/graph.pbtxt"),
        (cut("model/graph.pbtxt", 1000), 4, "graph.pbtxt"),
        (cut("model/graph.pbtxt", 0), 4, "is empty"),
        (remove(INDEX), 4, "model.ckpt-1000"),
        (remove(SHARD), 4, "00000-of-00002"),
        (cut(SHARD, 5000), 4, "00000-of-00002"),
        (flip(SHARD, 700), 4, "checksum"),
        (flip(INDEX, 40), 4, "ckpt-1000.index"),
        (cut(INDEX, 60), 4, "ckpt-1000.index"),
        (remove("data/test.npz"), 4, "data/test.npz"),
        (cut("data/test.npz", 900), 4, "test.npz"),
        (edit("outputs: [probabilities]", "outputs: [probabilites]"), 5, "'probabilities'"),
        (
            edit("outputs: [probabilities]", "outputs: [nothing]"),
            5,
            "probabilities (float32 [-1, 10])",
        ),
        (edit("dtype: float32", "dtype: int32"), 5, "is float32 in the graph, not int32"),
        (edit("[-1, 8, 8, 1]", "[-1, 9, 8, 1]"), 5, "does not fit"),
        (edit("image:", "imag:"), 5, "'image'"),
        (edit("labels: label", "labels: lable"), 8, "'label'"),
        (edit("targets:", "targts:"), 3, "'targets'"),
        (edit("name: digits", "name: ../digits"), 3, "recipe.yaml:3:7"),
        (edit("fold_batch_norms", "fold_batch_norm"), 3, "'fold_batch_norms'"),
        (edit("  - strip", "\t- strip"), 3, "tab"),
        (edit("version: 1", "version: 1\nversion: 1"), 3, "version"),
    ],
)
def test_bad_input_is_reported_in_one_message(
    built: Path, run: Run, damage: Callable[[Path], None], code: int, message: str
) -> None:
    before = output_files(Path("out"))
    damage(built)
    result = run("build", built, *OUT)
    assert result.code == code, result.err
    assert result.err.count("error:") == 1
    assert message in result.err
    assert output_files(Path("out")) == before


def test_accuracy_drop_above_the_limit_fails(digits: Path, run: Run) -> None:
    text = digits.read_text().replace("num_steps: 256", "num_steps: 2")
    digits.write_text(text.replace("max_drop: 0.01", "max_drop: 0.0001"))
    result = run("build", digits, *OUT)
    assert result.code == 8
    assert "top-1 accuracy fell by" in result.err
    assert "recipe.yaml:" in result.err


def test_exceeded_size_budget_fails(digits: Path, run: Run) -> None:
    replace_text(digits, "quantize: weights", "quantize: weights\n    budget: {model_bytes: 1 KB}")
    result = run("build", digits, *OUT)
    assert result.code == 8
    assert "over the budget of 1,000" in result.err


def test_pinned_file_with_another_digest_is_refused(digits: Path, run: Run) -> None:
    pin = f"sha256: {{model/graph.pbtxt: {'0' * 64}}}"
    replace_text(digits, "  graph: model", f"  {pin}\n  graph: model")
    result = run("build", digits, *OUT)
    assert result.code == 4
    assert "the recipe pins 000" in result.err


def test_unwritable_cache_is_reported_with_a_hint(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in-the-way").write_text("")
    monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("in-the-way").resolve()))
    result = run("build", digits, *OUT)
    assert result.code == 9
    assert "in-the-way" in result.err
    assert "MOBILEPREP_CACHE" in result.err
    assert not Path("out").exists()


def test_up_to_date_build_needs_no_writable_cache(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert run("build", built, *OUT).code == 0


def test_full_disk_is_reported_and_outputs_stay(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = output_files(Path("out"))
    replace_text(built, "num_steps: 256", "num_steps: 64")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        result = run("build", built, *OUT)
    assert (result.code, "No space left" in result.err) == (9, True)
    assert output_files(Path("out")) == before
    assert run("build", built, *OUT).code == 0
    assert output_files(Path("out")) != before


def test_bug_in_a_stage_prints_its_traceback(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stage_with_a_bug(_job: object) -> None:
        message = "oops"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(execution, "stage_function", lambda _name: stage_with_a_bug)
    assert main(["build", str(digits), *OUT]) == 70
    err = capsys.readouterr().err
    assert err.count("ZeroDivisionError: oops") == 1
    assert "stage_with_a_bug" in err
    assert "bug in mobileprep" in err
    assert not Path("out").exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_jobs_below_one_are_refused(digits: Path, run: Run, jobs: str) -> None:
    assert run("build", digits, "-j", jobs).code == 2


@pytest.mark.parametrize("verb", [["build", "--dry-run"], ["plan"]])
def test_control_characters_in_reasons_are_escaped(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    judged = verdicts.verdicts

    def with_marks(
        state: State, out: Path, partial: Collection[str] = ()
    ) -> list[verdicts.Verdict]:
        marked = ("input \u202e became 1",)
        return [replace(v, reasons=marked) for v in judged(state, out, partial)]

    monkeypatch.setattr(verdicts, "verdicts", with_marks)
    result = run(verb[0], built, *OUT, *verb[1:])
    assert "input \\u202e became 1" in result.out + result.err
    assert "\u202e" not in result.out + result.err


def test_explain_prints_reasons_and_builds(built: Path, run: Run) -> None:
    result = run("build", built, *OUT, "--explain")
    assert "nothing to do: every stage is fresh" in result.err
    replace_text(built, "num_steps: 256", "num_steps: 64")
    result = run("build", built, *OUT, "--explain")
    assert "options.num_steps: 256 became 64 (" in result.err
    assert "digits/08-obfuscate_names: digits/07-round_weights runs first" in result.err
    assert "\n8 of " in result.err


def test_force_runs_every_stage(built: Path, run: Run) -> None:
    before = output_files(Path("out"))
    result = run("build", built, *OUT, "--force")
    ran, _, total, *_ = result.err.splitlines()[-1].split()
    assert ran == total
    assert output_files(Path("out")) == before


def test_overlong_path_is_reported(digits: Path, run: Run) -> None:
    replace_text(digits, "data/test.npz", "x" * 300)
    result = run("build", digits, *OUT)
    assert (result.code, "does not exist" in result.err) == (4, True)


@pytest.mark.parametrize("destination", ["out of it", "nowhere", "within"])
def test_symlink_in_place_of_an_output_is_reported_and_replaced(
    built: Path, run: Run, tmp_path: Path, destination: str
) -> None:
    model = Path("out/digits/phone/digits.pb")
    data = model.read_bytes()
    copy = {"out of it": tmp_path / "copy", "within": model.with_name("copy").absolute()}
    model.unlink()
    model.symlink_to(copy.get(destination, tmp_path / "nothing"))
    if destination in copy:
        copy[destination].write_bytes(data)
    reason = f"digits/phone/publish: {model} is a link\n"
    result = run("build", built, "--dry-run", "--exit-code")
    assert (result.code, reason in result.err) == (1, True)
    assert run("plan", built, "--exit-code").code == 1
    (status,) = [f["status"] for f in verified(run, model)]
    assert status == "differs"
    result = run("build", built, "--explain")
    assert (result.code, reason in result.err) == (0, True)
    assert (model.is_symlink(), model.read_bytes()) == (False, data)


def verified(run: Run, file: Path) -> list[dict[str, Any]]:
    """The result of ``verify`` for one file of a target directory."""
    (folder,) = json.loads(run("verify", file.parent, "--quick", "--json").out)
    return [one for one in folder["files"] if one["name"] == file.name]


def test_file_in_place_of_a_target_directory_is_reported(built: Path, run: Run) -> None:
    folder = Path("out/digits/phone")
    shutil.rmtree(folder)
    folder.write_text("mine")
    result = run("build", built, "--dry-run", "--exit-code")
    assert result.code == 1
    assert f"digits/phone/publish: {folder} is not a directory\n" in result.err
    result = run("build", built)
    assert result.code == 9
    assert f"cannot be written: {folder.absolute()} is not a directory" in result.err
    assert folder.read_text() == "mine"


def test_dry_run_reports_a_missing_page(built: Path, run: Run) -> None:
    page = Path("out/digits/report.html")
    page.unlink()
    result = run("build", built, "--dry-run", "--exit-code")
    assert result.code == 1
    assert f"digits/report.html: {page} is missing" in result.err
    assert "would write pages: 1; " in result.err
    assert run("build", built).code == 0
    result = run("build", built, "--dry-run", "--exit-code")
    assert (result.code, "nothing to do" in result.err) == (0, True)
    page.write_text("mine")
    assert run("build", built, "--dry-run", "--exit-code").code == 0


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Directories in which no file can be created, as on a read-only disk."""
    folders: set[Path] = set()
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and Path(os.fsdecode(path)).resolve().parent in folders:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *rest, **named)

    def refuse_to_open(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if "r" not in mode and path.resolve().parent in folders:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return io.open(path, mode, *rest, **named)  # noqa: UP020 - what Path.open does

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "open", refuse_to_open)
    return folders


def test_unwritable_output_is_reported_before_the_build(
    built: Path, run: Run, refused: set[Path]
) -> None:
    replace_text(built, "num_steps: 256", "num_steps: 64")
    for folder in ("out/digits", "out/digits/download"):
        refused.clear()
        refused.add(Path(folder).resolve())
        result = run("build", built, *OUT)
        assert (result.code, "Read-only file system" in result.err) == (9, True)
        assert folder in result.err
        assert "round_weights" not in result.err
    refused.clear()
    assert "8 of 24 stages ran" in run("build", built, *OUT).err


@pytest.mark.parametrize("name", ["digits.pb", "manifest.json"])
def test_directory_in_place_of_an_output_is_reported_before_the_build(
    digits: Path, run: Run, name: str
) -> None:
    in_the_way = Path("out/digits/phone") / name
    in_the_way.mkdir(parents=True)
    result = run("build", digits, *OUT)
    assert (result.code, f"{name}: cannot be written: there is a folder" in result.err) == (9, True)
    assert "digits/freeze" not in result.err


def test_file_in_place_of_the_output_directory_is_reported_before_the_build(
    digits: Path, run: Run
) -> None:
    Path("out").write_text("mine")
    result = run("build", digits, *OUT)
    assert (result.code, "out is not a directory" in result.err) == (9, True)
    assert "digits/freeze" not in result.err


def test_keep_going_builds_other_targets_of_an_unwritable_one(
    digits: Path, run: Run, refused: set[Path]
) -> None:
    Path("out/digits/phone").mkdir(parents=True)
    refused.add(Path("out/digits/phone").resolve())
    result = run("build", digits, *OUT, "--keep-going")
    assert (result.code, "download: written" in result.err) == (9, True)


@pytest.mark.slow
def test_killed_builds_leave_only_complete_files(
    tmp_path: Path,
) -> None:
    result = kill_builds(tmp_path, count=10, seed=5)
    assert result.killed


DEPFILE_OUT = Path("out/digits")


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
    assert not DEPFILE_OUT.exists()


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
        manifests = [DEPFILE_OUT / name / "manifest.json" for name in ("phone", "download")]
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

"""``mobileprep build`` on the digits recipe: the main job, and what can go wrong with it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mobileprep.building import verdicts
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.state import State
from mobileprep.building.report.page.render import PAGE
from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph
from tests.cli.conftest import Run

OUT = ["--out", "out"]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the page, which tells how long stages took, by name."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != PAGE)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_a_build_leaves_a_folder_for_each_target(digits: Path, run: Run) -> None:
    told = run("build", digits, *OUT)
    assert told.code == 0, told.err
    left = tree(Path("out"))
    for target in ("phone", "download"):
        files = {n.removeprefix(f"digits/{target}/") for n in left if f"/{target}/" in n}
        assert {"digits.pb", "manifest.json", "report.json"} <= files
        for release in ("1.15", "2.21"):
            assert f"tensorflow-{release}/ops_to_register.h" in files
        assert len(read_graph(Path(f"out/digits/{target}/digits.pb"))) > 10
    assert "accuracy top-1" in told.out
    assert "quantize_weights" in told.out


def test_nothing_in_the_outputs_tells_time_place_or_machine(built: Path, run: Run) -> None:
    for name, data in tree(Path("out")).items():
        assert str(Path.cwd()).encode() not in data, name
        assert b"/store" not in data or name.endswith(".pb"), name


def test_two_builds_from_different_folders_give_the_same_bytes(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("build", digits, *OUT)
    first = tree(Path("out"))
    other = digits.parent.parent / "else" / "where"
    shutil.copytree(digits.parent, other / "digits")
    monkeypatch.chdir(other)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(other / "store"))
    run("build", other / "digits" / "recipe.yaml", *OUT, "-j", "2")
    assert tree(Path("out")) == first


def test_a_second_build_runs_nothing(built: Path, run: Run) -> None:
    # Of the targets' folders and what is in them; beside them the lock comes and goes.
    before = {p: p.stat().st_mtime_ns for p in Path("out/digits").glob("*/**/*")}
    assert len(before) > 10
    told = run("build", built, *OUT)
    assert told.code == 0
    assert "\n0 of " in f"\n{told.err}"
    assert {p: p.stat().st_mtime_ns for p in Path("out/digits").glob("*/**/*")} == before


def test_chains_that_targets_share_run_once(digits: Path, run: Run) -> None:
    plan = json.loads(run("plan", digits, "--json").out)
    names = [s["task"] for s in plan]
    assert len(names) == len(set(names))
    assert sum("fold_constants" in n for n in names) == 1
    assert sum(s["stage"] == "freeze" for s in plan) == 1


def test_editing_the_last_transform_reruns_from_there(built: Path, run: Run) -> None:
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    told = run("build", built, *OUT, "--dry-run")
    stale = [line.split(":")[0] for line in told.err.splitlines()]
    assert any("round_weights" in name for name in stale)
    assert not any("fold" in name or "freeze" in name or "phone" in name for name in stale)


def test_a_dry_run_leaves_nothing(digits: Path, run: Run) -> None:
    told = run("build", digits, *OUT, "--dry-run")
    assert told.code == 0
    assert "it has not run before" in told.err
    assert not Path("out").exists()


def test_only_the_named_target_is_built(digits: Path, run: Run) -> None:
    assert run("build", digits, *OUT, "--target", "phone").code == 0
    assert {p.name for p in Path("out/digits").iterdir()} == {"phone", PAGE}
    told = run("build", digits, *OUT, "--target", "fone")
    assert (told.code, "did you mean 'phone'?" in told.err) == (2, True)


def test_a_tampered_output_is_mended(built: Path, run: Run) -> None:
    good = tree(Path("out"))
    Path("out/digits/phone/digits.pb").write_bytes(b"tampered")
    Path("out/digits/phone/manifest.json").unlink()
    assert run("build", built, *OUT).code == 0
    assert tree(Path("out")) == good


def test_the_manifest_has_the_digest_of_every_file(built: Path, run: Run) -> None:
    import hashlib

    folder = Path("out/digits/phone")
    manifest = json.loads((folder / "manifest.json").read_text())
    left = tree(folder)
    left.pop("manifest.json")
    assert {n: e["sha256"] for n, e in manifest["files"].items()} == {
        n: hashlib.sha256(data).hexdigest() for n, data in left.items()
    }
    assert "data/test.npz" in manifest["sources"]


def test_json_goes_to_stdout_alone(digits: Path, run: Run) -> None:
    told = run("build", digits, *OUT, "--json")
    reports = json.loads(told.out)
    assert [r["target"] for r in reports] == ["phone", "download"]
    assert reports[0]["accuracy"]["metrics"][0]["before"] >= 0.97
    assert reports[0]["steps"][-1]["bytes"] > 0


def test_clean_removes_what_was_built(built: Path, run: Run) -> None:
    assert run("clean", built, *OUT).code == 0
    assert not any(Path("out").rglob("*.pb"))


def test_a_report_of_a_stale_build_is_refused(digits: Path, run: Run) -> None:
    assert run("report", digits).code == 2
    run("build", digits, *OUT)
    told = run("report", digits)
    assert (told.code, "accuracy" in told.out) == (0, True)


def edit(old: str, new: str) -> Callable[[Path], None]:
    """An edit of the recipe."""

    def apply(recipe: Path) -> None:
        text = recipe.read_text()
        assert old in text
        recipe.write_text(text.replace(old, new, 1))

    return apply


def cut(name: str, size: int) -> Callable[[Path], None]:
    """A file beside the recipe, cut short."""

    def apply(recipe: Path) -> None:
        path = recipe.parent / name
        path.write_bytes(path.read_bytes()[:size])

    return apply


def flip(name: str, position: int) -> Callable[[Path], None]:
    """A file beside the recipe with one bit flipped."""

    def apply(recipe: Path) -> None:
        path = recipe.parent / name
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(bytes(data))

    return apply


def remove(name: str) -> Callable[[Path], None]:
    """A file beside the recipe, gone."""
    return lambda recipe: (recipe.parent / name).unlink()


SHARD = "model/model.ckpt-1000.data-00000-of-00002"
INDEX = "model/model.ckpt-1000.index"


@pytest.mark.parametrize(
    ("damage", "code", "told"),
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
def test_bad_input_is_told_in_one_message(
    built: Path, run: Run, damage: Callable[[Path], None], code: int, told: str
) -> None:
    before = tree(Path("out"))
    damage(built)
    answer = run("build", built, *OUT)
    assert answer.code == code, answer.err
    assert answer.err.count("error:") == 1
    assert told in answer.err
    assert tree(Path("out")) == before


def test_a_missed_accuracy_fails_and_says_by_how_much(digits: Path, run: Run) -> None:
    text = digits.read_text().replace("num_steps: 256", "num_steps: 2")
    digits.write_text(text.replace("max_drop: 0.01", "max_drop: 0.0001"))
    told = run("build", digits, *OUT)
    assert told.code == 8
    assert "top-1 accuracy fell by" in told.err
    assert "recipe.yaml:" in told.err


def test_a_missed_size_budget_fails_and_says_by_how_much(digits: Path, run: Run) -> None:
    digits.write_text(
        digits.read_text().replace(
            "quantize: weights", "quantize: weights\n    budget: {model_bytes: 1 KB}"
        )
    )
    told = run("build", digits, *OUT)
    assert told.code == 8
    assert "over the budget of 1,000" in told.err


def test_a_pinned_file_that_differs_is_refused(digits: Path, run: Run) -> None:
    pin = f"sha256: {{model/graph.pbtxt: {'0' * 64}}}"
    digits.write_text(digits.read_text().replace("  graph: model", f"  {pin}\n  graph: model"))
    told = run("build", digits, *OUT)
    assert told.code == 4
    assert "the recipe pins 000" in told.err


def test_a_store_that_cannot_be_written_says_what_to_do(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("in-the-way").write_text("")
    monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("in-the-way").resolve()))
    told = run("build", digits, *OUT)
    assert told.code == 9
    assert "in-the-way" in told.err
    assert "MOBILEPREP_CACHE" in told.err
    assert not Path("out").exists()


def test_a_fresh_build_needs_no_store_that_can_be_written(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert run("build", built, *OUT).code == 0


def test_a_full_disk_is_told_and_earlier_outputs_stay(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = tree(Path("out"))
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        told = run("build", built, *OUT)
    assert (told.code, "No space left" in told.err) == (9, True)
    assert tree(Path("out")) == before
    assert run("build", built, *OUT).code == 0
    assert tree(Path("out")) != before


def test_a_bug_in_a_stage_surfaces_with_its_traceback(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stage_with_a_bug(_job: object) -> None:
        message = "oops"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(execution, "stage_function", lambda _name: stage_with_a_bug)
    assert main(["build", str(digits), *OUT]) == 70
    told = capsys.readouterr().err
    assert told.count("ZeroDivisionError: oops") == 1
    assert "stage_with_a_bug" in told
    assert "bug in mobileprep" in told
    assert not Path("out").exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_jobs_is_one_or_more(digits: Path, run: Run, jobs: str) -> None:
    assert run("build", digits, "-j", jobs).code == 2


@pytest.mark.parametrize("verb", [["build", "--dry-run"], ["plan"]])
def test_reasons_do_nothing_to_a_terminal(
    built: Path, run: Run, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    """What a record in the store tells of an earlier build may be anything."""
    judged = verdicts.verdicts

    def with_marks(
        state: State, out: Path, partial: Collection[str] = ()
    ) -> list[verdicts.Verdict]:
        marked = ("input \u202e became 1",)
        return [replace(v, reasons=marked) for v in judged(state, out, partial)]

    monkeypatch.setattr(verdicts, "verdicts", with_marks)
    told = run(verb[0], built, *OUT, *verb[1:])
    assert "input \\u202e became 1" in told.out + told.err
    assert "\u202e" not in told.out + told.err


def test_explain_tells_why_and_then_builds(built: Path, run: Run) -> None:
    told = run("build", built, *OUT, "--explain")
    assert "nothing to do: every stage is fresh" in told.err
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    told = run("build", built, *OUT, "--explain")
    assert "options.num_steps: 256 became 64 (" in told.err
    assert "digits/08-obfuscate_names: digits/07-round_weights runs first" in told.err
    assert "\n8 of " in told.err


def test_force_runs_every_stage(built: Path, run: Run) -> None:
    before = tree(Path("out"))
    told = run("build", built, *OUT, "--force")
    ran, _, total, *_ = told.err.splitlines()[-1].split()
    assert ran == total
    assert tree(Path("out")) == before


def test_a_path_that_no_system_takes_is_told(digits: Path, run: Run) -> None:
    digits.write_text(digits.read_text().replace("data/test.npz", "x" * 300))
    told = run("build", digits, *OUT)
    assert (told.code, "does not exist" in told.err) == (4, True)


@pytest.mark.parametrize("leads_to", ["out of it", "nowhere", "within"])
def test_a_link_in_the_place_of_an_output_is_told_and_replaced(
    built: Path, run: Run, tmp_path: Path, leads_to: str
) -> None:
    model = Path("out/digits/phone/digits.pb")
    data = model.read_bytes()
    copy = {"out of it": tmp_path / "copy", "within": model.with_name("copy").absolute()}
    model.unlink()
    model.symlink_to(copy.get(leads_to, tmp_path / "nothing"))
    if leads_to in copy:
        copy[leads_to].write_bytes(data)
    reason = f"digits/phone/publish: {model} is a link\n"
    told = run("build", built, "--dry-run", "--exit-code")
    assert (told.code, reason in told.err) == (1, True)
    assert run("plan", built, "--exit-code").code == 1
    (status,) = [f["status"] for f in verified(run, model)]
    assert status == "differs"
    told = run("build", built, "--explain")
    assert (told.code, reason in told.err) == (0, True)
    assert (model.is_symlink(), model.read_bytes()) == (False, data)


def verified(run: Run, file: Path) -> list[dict[str, Any]]:
    """What ``verify`` tells of one file of a target's folder."""
    (folder,) = json.loads(run("verify", file.parent, "--quick", "--json").out)
    return [one for one in folder["files"] if one["name"] == file.name]


def test_a_file_in_the_place_of_a_target_s_folder_is_told(built: Path, run: Run) -> None:
    folder = Path("out/digits/phone")
    shutil.rmtree(folder)
    folder.write_text("mine")
    told = run("build", built, "--dry-run", "--exit-code")
    assert (told.code, f"digits/phone/publish: {folder} is not a directory\n" in told.err) == (
        1,
        True,
    )
    told = run("build", built)
    assert (
        told.code,
        f"cannot be written: {folder.absolute()} is not a directory" in told.err,
    ) == (
        9,
        True,
    )
    assert folder.read_text() == "mine"


def test_a_dry_run_tells_of_a_page_that_is_missing(built: Path, run: Run) -> None:
    page = Path("out/digits/report.html")
    page.unlink()
    told = run("build", built, "--dry-run", "--exit-code")
    assert told.code == 1
    assert f"digits/report.html: {page} is missing" in told.err
    assert "would write pages: 1; " in told.err
    assert run("build", built).code == 0
    told = run("build", built, "--dry-run", "--exit-code")
    assert (told.code, "nothing to do" in told.err) == (0, True)
    page.write_text("mine")
    assert run("build", built, "--dry-run", "--exit-code").code == 0


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Folders in which no file can be made, as on a disk that is read-only."""
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


def test_an_output_that_cannot_be_written_is_told_before_anything_runs(
    built: Path, run: Run, refused: set[Path]
) -> None:
    built.write_text(built.read_text().replace("num_steps: 256", "num_steps: 64"))
    for folder in ("out/digits", "out/digits/download"):
        refused.clear()
        refused.add(Path(folder).resolve())
        told = run("build", built, *OUT)
        assert (told.code, "Read-only file system" in told.err) == (9, True)
        assert folder in told.err
        assert "round_weights" not in told.err
    refused.clear()
    assert "8 of 24 stages ran" in run("build", built, *OUT).err


@pytest.mark.parametrize("name", ["digits.pb", "manifest.json"])
def test_a_folder_in_the_place_of_an_output_is_told_before_anything_runs(
    digits: Path, run: Run, name: str
) -> None:
    in_the_way = Path("out/digits/phone") / name
    in_the_way.mkdir(parents=True)
    told = run("build", digits, *OUT)
    assert (told.code, f"{name}: cannot be written: there is a folder" in told.err) == (9, True)
    assert "digits/freeze" not in told.err


def test_a_file_in_the_place_of_the_output_folder_is_told_before_anything_runs(
    digits: Path, run: Run
) -> None:
    Path("out").write_text("mine")
    told = run("build", digits, *OUT)
    assert (told.code, "out is not a directory" in told.err) == (9, True)
    assert "digits/freeze" not in told.err


def test_a_folder_that_stays_as_it_is_need_not_be_writable(
    built: Path, run: Run, refused: set[Path]
) -> None:
    refused.add(Path("out/digits/phone").resolve())
    told = run("build", built, *OUT, "--force")
    assert told.code == 0, told.err
    assert "phone: up to date" in told.err
    refused.add(Path("out/digits").resolve())
    assert run("build", built, *OUT).code == 0


def test_the_others_are_built_where_one_cannot_be_written(
    digits: Path, run: Run, refused: set[Path]
) -> None:
    Path("out/digits/phone").mkdir(parents=True)
    refused.add(Path("out/digits/phone").resolve())
    told = run("build", digits, *OUT, "--keep-going")
    assert (told.code, "download: written" in told.err) == (9, True)

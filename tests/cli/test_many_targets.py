"""Builds of many targets and recipes: at once, after failures, and sharing stages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline import execute as execution
from mobileprep.building.plan.spec import Stage
from mobileprep.building.report.page.render import PAGE
from mobileprep.cli.main import main
from tests.cli.conftest import Run

OUT = ["--out", "out"]
SIX = """
  a: {quantize: weights}
  b: {quantize: {mode: round, num_steps: 16}}
  c: {sort: true, registration: {tensorflow: ["1.15", "2.21"]}}
  d: {quantize: weights, obfuscate: true}
  e: {artifact: text}
  f: {quantize: {mode: round, num_steps: 64}, budget: {model_bytes: 1 MB}}
"""


def with_targets(recipe: Path, targets: str) -> Path:
    """The digits recipe with other targets."""
    recipe.write_text(recipe.read_text().partition("targets:")[0] + "targets:" + targets)
    return recipe


def tree(folder: Path) -> dict[str, bytes]:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != PAGE]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def records(store: Path) -> dict[str, object]:
    """What the store has noted of stages, by fingerprint, but for how long they took."""
    found = {}
    for path in store.glob("*/ac/*/*.json"):
        noted = json.loads(path.read_text().partition("\n")[2])["data"]
        found[path.stem] = {key: value for key, value in noted.items() if key != "seconds"}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("six", [False, True])
def test_how_many_run_at_once_changes_no_byte_and_no_record(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch, six: bool
) -> None:
    if six:
        with_targets(digits, SIX)
    found = []
    for jobs in ("1", "2", "8"):
        monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("store", jobs).resolve()))
        told = run("build", digits, "--out", f"out-{jobs}", "-j", jobs)
        assert told.code == 0, told.err
        noted = records(Path("store", jobs))
        assert len(noted) == int(told.err.splitlines()[-1].split()[0])
        found.append((tree(Path(f"out-{jobs}")), noted, told.out))
    assert found[0] == found[1] == found[2]


def test_a_line_of_progress_for_each_stage(digits: Path, run: Run) -> None:
    told = run("build", digits, *OUT, "-j", "4").err.splitlines()
    stages = [line.split()[0] for line in told if line.startswith("digits/")]
    assert len(stages) == len(set(stages)) == int(told[-1].split()[0])


TOO_LARGE = """
  a: {quantize: weights, budget: {model_bytes: 1 KB}}
  b: {quantize: {mode: round, num_steps: 16}}
  c: {sort: true, budget: {compressed_bytes: 1 KB}}
"""


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_other_targets_are_built_after_one_has_failed(digits: Path, run: Run, jobs: str) -> None:
    with_targets(digits, TOO_LARGE)
    told = run("build", digits, *OUT, "-j", jobs, "--keep-going")
    assert told.code == 8
    assert "error: " in told.err
    assert told.err.count("over the budget of 1,000") == 2
    assert {p.name for p in Path("out/digits").iterdir() if p.is_dir()} == {"b"}
    assert "digits/a/budget  failed" in told.err
    assert "digits/b" in told.out
    again = run("build", digits, *OUT, "-j", jobs, "--keep-going")
    assert again.code == 8
    assert again.err.count("over the budget") == 2
    assert "out/digits/b: up to date" in again.err


def test_without_keep_going_the_first_failure_ends_the_build(digits: Path, run: Run) -> None:
    with_targets(digits, TOO_LARGE)
    told = run("build", digits, *OUT, "-j", "1")
    assert told.code == 8
    assert told.err.count("over the budget") == 1


@pytest.mark.parametrize(("order", "code"), [("ab", 4), ("ba", 8)])
def test_the_exit_code_is_that_of_the_first_failure(
    digits: Path, run: Run, order: str, code: int
) -> None:
    (digits.parent / "data/bad.npz").write_bytes(b"PK")
    targets = {
        "a": "{quantize: weights, validation: {data: data/bad.npz}}",
        "b": "{budget: {model_bytes: 1 KB}}",
    }
    with_targets(digits, "".join(f"\n  {name}: {targets[name]}" for name in order) + "\n")
    told = run("build", digits, *OUT, "--keep-going")
    assert (told.code, told.err.count("error: ")) == (code, 2), told.err


@pytest.mark.parametrize("flags", [[], ["--locked"], ["--checksum"], ["--force"]])
def test_what_can_be_planned_is_built_where_a_file_of_another_is_missing(
    digits: Path, run: Run, flags: list[str]
) -> None:
    other = copies(digits, 2)[1]
    with_targets(digits, "\n  a: {}\n  b: {validation: {data: data/gone.npz}}\n")
    gone = digits.parent / "data/gone.npz"
    shutil.copy(digits.parent / "data/test.npz", gone)
    for path in (digits, other):
        assert run("lock", path).code == 0
    gone.unlink()
    (other.parent / "model/graph.pbtxt").unlink()
    command = ["build", digits, other, *OUT, *flags]
    assert run(*command).code == 4
    assert not Path("out").exists()
    said = run(*command, "--keep-going", "--dry-run")
    assert (said.code, said.err.count("error: ")) == (4, 2), said.err
    assert "digits/a/publish" in said.err
    told = run(*command, "--keep-going")
    assert (told.code, told.err.count("error: ")) == (4, 2), told.err
    assert "data/gone.npz" in told.err
    assert "model/graph.pbtxt" in told.err
    assert [str(p) for p in Path("out").rglob("manifest.json")] == ["out/digits/a/manifest.json"]


def test_the_page_stays_where_a_target_cannot_be_planned(digits: Path, run: Run) -> None:
    with_targets(digits, "\n  a: {}\n  b: {validation: {data: data/b.npz}}\n")
    shutil.copy(digits.parent / "data/test.npz", digits.parent / "data/b.npz")
    assert run("build", digits, *OUT).code == 0
    page = Path("out/digits/report.html")
    before = page.read_bytes()
    (digits.parent / "data/b.npz").unlink()
    digits.write_text(digits.read_text().replace("  a: {}", "  a: {sort: true}"))
    told = run("build", digits, *OUT, "--keep-going")
    assert (told.code, "out/digits/a: written" in told.err) == (4, True)
    assert page.read_bytes() == before
    said = run("build", digits, *OUT, "--keep-going", "--dry-run")
    assert (said.code, "nothing to do" in said.err) == (4, True), said.err


def test_where_nothing_can_be_planned_the_first_reason_is_told(digits: Path, run: Run) -> None:
    (digits.parent / "model/graph.pbtxt").unlink()
    told = run("build", digits, *OUT, "--keep-going")
    assert (told.code, told.err.count("error: ")) == (4, 1), told.err


def test_what_reads_a_failed_stage_does_not_run(digits: Path, run: Run) -> None:
    (digits.parent / "data/test.npz").write_bytes(b"PK")
    told = run("build", digits, *OUT, "--keep-going")
    assert told.code == 4
    assert "digits/evaluate-source  failed" in told.err
    assert "/validate" not in told.err.partition("error: ")[0]
    assert "digits/download/compress  " in told.err
    assert not Path("out/digits/phone").exists()


def test_json_after_failures_is_one_value(digits: Path, run: Run) -> None:
    with_targets(digits, TOO_LARGE)
    told = run("build", digits, *OUT, "--keep-going", "--json")
    assert told.code == json.loads(told.out)["error"]["exit_code"] == 8
    assert Path("out/digits/b/manifest.json").is_file()


def copies(digits: Path, number: int) -> list[Path]:
    """More recipes with the same source, each in a folder of its own."""
    found = [digits]
    for i in range(1, number):
        folder = digits.parent.parent / f"digits{i}"
        shutil.copytree(digits.parent, folder)
        recipe = folder / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("name: digits", f"name: digits{i}"))
        found.append(recipe)
    return found


@pytest.mark.parametrize("jobs", ["1", "8"])
def test_stages_that_recipes_share_run_once(digits: Path, run: Run, jobs: str) -> None:
    one, *others = copies(digits, 3)
    others[1].write_text(others[1].read_text().replace("num_steps: 256", "num_steps: 64"))
    alone = run("build", one, "--out", "alone", "--dry-run").err.count("/freeze: ")
    assert alone == 1
    told = run("build", one, *others, *OUT, "-j", jobs)
    assert told.code == 0, told.err
    ran = [line.split()[0] for line in told.err.splitlines() if line.endswith(" s")][:-1]
    kinds = [task.rpartition("/")[2] for task in ran]
    assert kinds.count("freeze") == kinds.count("01-strip_unused_nodes") == 1
    assert kinds.count("07-round_weights") == 2
    assert len({p.parent.parent.name for p in Path("out").glob("*/*/manifest.json")}) == 3
    assert (
        tree(Path("out/digits/phone"))["digits.pb"] == tree(Path("out/digits1/phone"))["digits1.pb"]
    )


def test_equal_work_at_once_is_done_once(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains that differ in parameters only, and come to equal graphs, go on alike."""
    found, ran = execution.stage_function, []

    def counted(kind: type[Stage]):
        def work(job) -> None:
            ran.append(kind.stage_name)
            found(kind)(job)

        return work

    monkeypatch.setattr(execution, "stage_function", counted)
    targets = "".join(
        f"\n  t{i}: {{transforms: [remove_nodes: {{op: [Never{i}]}}, fold_constants, "
        "fold_batch_norms, round_weights: {num_steps: 200}, downgrade]}"
        for i in range(8)
    )
    with_targets(digits, targets + "\n")
    told = run("build", digits, *OUT, "-j", "8")
    assert told.code == 0, told.err
    # Eight that remove nothing, and after each of them the same four.
    assert ran.count("transform") == 8 + 4
    assert len(list(Path("out/digits").glob("*/digits.pb"))) == 8
    assert main(["build", str(digits), *OUT, "--dry-run", "--exit-code"]) == 0

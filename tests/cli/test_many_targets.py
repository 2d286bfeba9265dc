"""Builds of several targets and recipes in parallel, after failures, and with shared stages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline import execute as execution
from mobileprep.building.plan.spec import Stage
from mobileprep.cli.main import main
from tests.cli.conftest import Run, output_files, replace_text

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


def records(store: Path) -> dict[str, object]:
    """The cache records of stages by fingerprint, without durations."""
    result = {}
    for path in store.glob("*/ac/*/*.json"):
        data = json.loads(path.read_text().partition("\n")[2])["data"]
        result[path.stem] = {key: value for key, value in data.items() if key != "seconds"}
    return result


@pytest.mark.slow
@pytest.mark.parametrize("six", [False, True])
def test_number_of_jobs_does_not_change_outputs(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch, six: bool
) -> None:
    if six:
        with_targets(digits, SIX)
    results = []
    for jobs in ("1", "2", "8"):
        monkeypatch.setenv("MOBILEPREP_CACHE", str(Path("store", jobs).resolve()))
        result = run("build", digits, "--out", f"out-{jobs}", "-j", jobs)
        assert result.code == 0, result.err
        cached = records(Path("store", jobs))
        assert len(cached) == int(result.err.splitlines()[-1].split()[0])
        results.append((output_files(Path(f"out-{jobs}")), cached, result.out))
    assert results[0] == results[1] == results[2]


def test_progress_has_a_line_per_stage(digits: Path, run: Run) -> None:
    result = run("build", digits, *OUT, "-j", "4").err.splitlines()
    stages = [line.split()[0] for line in result if line.startswith("digits/")]
    assert len(stages) == len(set(stages)) == int(result[-1].split()[0])


TOO_LARGE = """
  a: {quantize: weights, budget: {model_bytes: 1 KB}}
  b: {quantize: {mode: round, num_steps: 16}}
  c: {sort: true, budget: {compressed_bytes: 1 KB}}
"""


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_keep_going_builds_other_targets(digits: Path, run: Run, jobs: str) -> None:
    with_targets(digits, TOO_LARGE)
    result = run("build", digits, *OUT, "-j", jobs, "--keep-going")
    assert result.code == 8
    assert "error: " in result.err
    assert result.err.count("over the budget of 1,000") == 2
    assert {p.name for p in Path("out/digits").iterdir() if p.is_dir()} == {"b"}
    assert "digits/a/budget  failed" in result.err
    assert "digits/b" in result.out
    again = run("build", digits, *OUT, "-j", jobs, "--keep-going")
    assert again.code == 8
    assert again.err.count("over the budget") == 2
    assert "out/digits/b: up to date" in again.err


def test_first_failure_ends_the_build_without_keep_going(digits: Path, run: Run) -> None:
    with_targets(digits, TOO_LARGE)
    result = run("build", digits, *OUT, "-j", "1")
    assert result.code == 8
    assert result.err.count("over the budget") == 1


@pytest.mark.parametrize(("order", "code"), [("ab", 4), ("ba", 8)])
def test_exit_code_is_that_of_the_first_failure(
    digits: Path, run: Run, order: str, code: int
) -> None:
    (digits.parent / "data/bad.npz").write_bytes(b"PK")
    targets = {
        "a": "{quantize: weights, validation: {data: data/bad.npz}}",
        "b": "{budget: {model_bytes: 1 KB}}",
    }
    with_targets(digits, "".join(f"\n  {name}: {targets[name]}" for name in order) + "\n")
    result = run("build", digits, *OUT, "--keep-going")
    assert (result.code, result.err.count("error: ")) == (code, 2), result.err


@pytest.mark.parametrize("flags", [[], ["--locked"], ["--checksum"], ["--force"]])
def test_keep_going_skips_targets_with_missing_files(
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
    result = run(*command, "--keep-going")
    assert (result.code, result.err.count("error: ")) == (4, 2), result.err
    assert "data/gone.npz" in result.err
    assert "model/graph.pbtxt" in result.err
    assert [str(p) for p in Path("out").rglob("manifest.json")] == ["out/digits/a/manifest.json"]


def test_page_is_unchanged_if_a_target_cannot_be_planned(digits: Path, run: Run) -> None:
    with_targets(digits, "\n  a: {}\n  b: {validation: {data: data/b.npz}}\n")
    shutil.copy(digits.parent / "data/test.npz", digits.parent / "data/b.npz")
    assert run("build", digits, *OUT).code == 0
    page = Path("out/digits/report.html")
    before = page.read_bytes()
    (digits.parent / "data/b.npz").unlink()
    replace_text(digits, "  a: {}", "  a: {sort: true}")
    result = run("build", digits, *OUT, "--keep-going")
    assert (result.code, "out/digits/a: written" in result.err) == (4, True)
    assert page.read_bytes() == before
    said = run("build", digits, *OUT, "--keep-going", "--dry-run")
    assert (said.code, "nothing to do" in said.err) == (4, True), said.err


def test_first_reason_is_reported_if_no_target_can_be_planned(digits: Path, run: Run) -> None:
    (digits.parent / "model/graph.pbtxt").unlink()
    result = run("build", digits, *OUT, "--keep-going")
    assert (result.code, result.err.count("error: ")) == (4, 1), result.err


def test_stages_after_a_failed_stage_do_not_run(digits: Path, run: Run) -> None:
    (digits.parent / "data/test.npz").write_bytes(b"PK")
    result = run("build", digits, *OUT, "--keep-going")
    assert result.code == 4
    assert "digits/evaluate-source  failed" in result.err
    assert "/validate" not in result.err.partition("error: ")[0]
    assert "digits/download/compress  " in result.err
    assert not Path("out/digits/phone").exists()


def test_json_after_failures_is_one_error(digits: Path, run: Run) -> None:
    with_targets(digits, TOO_LARGE)
    result = run("build", digits, *OUT, "--keep-going", "--json")
    assert result.code == json.loads(result.out)["error"]["exit_code"] == 8
    assert Path("out/digits/b/manifest.json").is_file()


def copies(digits: Path, number: int) -> list[Path]:
    """Additional recipes with the same source, each in its own directory."""
    recipes = [digits]
    for i in range(1, number):
        folder = digits.parent.parent / f"digits{i}"
        shutil.copytree(digits.parent, folder)
        recipe = folder / "recipe.yaml"
        replace_text(recipe, "name: digits", f"name: digits{i}")
        recipes.append(recipe)
    return recipes


@pytest.mark.parametrize("jobs", ["1", "8"])
def test_stages_shared_by_recipes_run_once(digits: Path, run: Run, jobs: str) -> None:
    one, *others = copies(digits, 3)
    replace_text(others[1], "num_steps: 256", "num_steps: 64")
    alone = run("build", one, "--out", "alone", "--dry-run").err.count("/freeze: ")
    assert alone == 1
    result = run("build", one, *others, *OUT, "-j", jobs)
    assert result.code == 0, result.err
    ran = [line.split()[0] for line in result.err.splitlines() if line.endswith(" s")][:-1]
    kinds = [task.rpartition("/")[2] for task in ran]
    assert kinds.count("freeze") == kinds.count("01-strip_unused_nodes") == 1
    assert kinds.count("07-round_weights") == 2
    assert len({p.parent.parent.name for p in Path("out").glob("*/*/manifest.json")}) == 3
    assert (
        output_files(Path("out/digits/phone"))["digits.pb"]
        == output_files(Path("out/digits1/phone"))["digits1.pb"]
    )


def test_equal_parallel_stages_run_once(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains with different parameters and equal intermediate graphs share later stages."""
    stage_function, ran = execution.stage_function, []

    def counted(kind: type[Stage]):
        def work(job) -> None:
            ran.append(kind.stage_name)
            stage_function(kind)(job)

        return work

    monkeypatch.setattr(execution, "stage_function", counted)
    targets = "".join(
        f"\n  t{i}: {{transforms: [remove_nodes: {{op: [Never{i}]}}, fold_constants, "
        "fold_batch_norms, round_weights: {num_steps: 200}, downgrade]}"
        for i in range(8)
    )
    with_targets(digits, targets + "\n")
    result = run("build", digits, *OUT, "-j", "8")
    assert result.code == 0, result.err
    # Eight different transforms without effect, then four shared ones.
    assert ran.count("transform") == 8 + 4
    assert len(list(Path("out/digits").glob("*/digits.pb"))) == 8
    assert main(["build", str(digits), *OUT, "--dry-run", "--exit-code"]) == 0

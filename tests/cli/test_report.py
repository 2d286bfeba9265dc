"""The verb ``report``: the reports of what is built, from records alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_the_report_as_json_is_the_one_that_the_build_left(built: Path, run: Run) -> None:
    told = run("report", built, "--target", "phone", "--json")
    assert (told.code, told.err) == (0, "")
    left = json.loads(Path("out/digits/phone/report.json").read_text())
    printed = json.loads(told.out)
    assert printed in (left, [left])


def test_the_text_names_the_model_and_its_size(built: Path, run: Run) -> None:
    told = run("report", built, "--target", "phone")
    size = Path("out/digits/phone/digits.pb").stat().st_size
    assert told.code == 0
    assert f"digits.pb: {size:,} bytes" in told.out or f"digits.pb: {size} bytes" in told.out


def test_a_recipe_that_is_not_built_has_no_report(digits: Path, run: Run) -> None:
    told = run("report", digits)
    assert (told.code, told.out) == (2, "")
    assert "stages are stale, the first is digits/" in told.err
    assert f"run 'mobileprep build {digits}' first" in told.err


def test_markdown_tells_every_target_and_its_budget(built: Path, run: Run) -> None:
    size = Path("out/digits/phone/digits.pb").stat().st_size
    text = built.read_text()
    built.write_text(text.replace("  phone:\n", "  phone:\n    budget: {model_bytes: 90000}\n"))
    assert run("build", built).code == 0
    told = run("report", built, "--format", "markdown")
    assert told.code == 0
    assert (
        f"| digits/phone | digits.pb | weights | {size:,} ({90_000 - size:,} left of 90,000) |"
        in told.out
    )
    assert "| digits/download | digits.pb |" in told.out
    assert run("report", built, "--format", "markdown", "--json").code == 2


def test_what_is_built_is_printed_again_without_its_recipe(built: Path, run: Run) -> None:
    by_recipe = run("report", built, "--target", "phone")
    for name in ("out/digits/phone", "out/digits/phone/report.json"):
        told = run("report", name)
        assert (told.code, told.out, told.err) == (0, by_recipe.out, "")
    assert "digits/download" in run("report", "out").out
    assert "digits/download" not in run("report", "out", "--target", "phone").out
    assert run("report", "out", "--target", "nothing").code == 2
    assert run("report", "out", built).code == 2


def other_minimum(recipe: Path) -> None:
    """Change one parameter of the transform that quantizes the target phone."""
    text = recipe.read_text()
    assert "quantize: weights\n" in text
    changed = "quantize: {mode: weights, minimum_size: 16}\n"
    recipe.write_text(text.replace("quantize: weights\n", changed))


@pytest.fixture
def edited(built: Path, run: Run) -> Path:
    """The recipe built with another parameter, and what was built before in ``old``."""
    shutil.copytree("out", "old")
    other_minimum(built)
    assert run("build", built).code == 0
    return built


def test_one_changed_parameter_is_told_alone_and_with_what_it_did(edited: Path, run: Run) -> None:
    told = run("report", edited, "--compare", "old", "--json")
    assert (told.code, told.err) == (0, "")
    phone, download = json.loads(told.out)
    assert (phone["target"], phone["state"]) == ("phone", "changed")
    assert (download["target"], download["state"]) == ("download", "same")
    (cause,) = phone["causes"]
    key = "transforms.quantize_weights.minimum_size"
    assert (cause["key"], cause["before"], cause["after"]) == (key, 1024, 16)
    line = edited.read_text().splitlines().index("    quantize: {mode: weights, minimum_size: 16}")
    assert cause["place"].startswith(f"{edited}:{line + 1}:")
    assert phone["steps"][0]["causes"] == [key]
    assert phone["steps"][0]["name"] == "quantize_weights"
    # What follows has more nodes to sort, and no key of its own.
    assert [step["causes"] for step in phone["steps"][1:]] == [[]]
    sizes = {figure["name"]: figure for figure in phone["sizes"]}
    before, after = (Path(f"{d}/digits/phone/digits.pb").stat().st_size for d in ("old", "out"))
    assert sizes["model bytes"] == {"name": "model bytes", "before": before, "after": after}
    assert {figure["name"] for figure in phone["ops"]} == {"Const", "Dequantize"}
    kinds = {change["kind"] for change in phone["nodes"]["changes"]}
    assert {"added", "removed"} <= kinds


@pytest.mark.parametrize("old", ["old/digits/phone", "old/digits/phone/report.json", "all.json"])
def test_the_earlier_build_may_be_a_folder_its_report_or_what_it_printed(
    old: str, edited: Path, run: Run
) -> None:
    reports = [json.loads(p.read_text()) for p in sorted(Path("old").rglob("report.json"))]
    Path("all.json").write_text(json.dumps(reports))
    told = run("report", edited, "--target", "phone", "--compare", old)
    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[0] == "digits/phone"
    assert lines[1].startswith("cause    transforms.quantize_weights.minimum_size: 1024 -> 16 (")
    assert ("the earlier model is not at hand" in told.out) is (old == "all.json")


def test_two_folders_are_compared_without_a_recipe(edited: Path, run: Run) -> None:
    told = run("report", "out", "--compare", "old")
    by_recipe = run("report", edited, "--compare", "old")
    assert "cause    transforms.quantize_weights.minimum_size: 1024 -> 16\n" in told.out
    lines = told.out.splitlines()
    assert lines[0] == by_recipe.out.splitlines()[-1] == "digits/download: nothing differs"
    assert lines[3:] == by_recipe.out.splitlines()[2:-1]


def test_a_pull_request_gets_the_difference_as_markdown(edited: Path, run: Run) -> None:
    told = run("report", edited, "--compare", "old", "--format", "markdown")
    assert told.code == 0
    assert "- **cause** transforms.quantize&#95;weights.minimum&#95;size: 1024 -&#62;" in told.out
    assert "| model bytes |" in told.out
    assert told.out.endswith("Nothing differs in digits/download.\n")


def test_what_is_no_earlier_build_is_refused(built: Path, run: Run) -> None:
    Path("bad.json").write_text('{"recipe": 3}')
    Path("deep.json").write_text("[" * 100_000)
    Path("none.json").write_text("[]")
    for name in ("bad.json", "deep.json", "none.json", "missing.json", "digits/data"):
        told = run("report", built, "--compare", name)
        assert (told.code, told.out) == (4, ""), name
        assert name in told.err
    report = json.loads(Path("out/digits/phone/report.json").read_text())
    others = [{**report, "recipe": "letters", "target": target} for target in ("a", "b")]
    Path("others.json").write_text(json.dumps(others))
    assert "has none of these targets" in run("report", built, "--compare", "others.json").err


def test_a_report_s_model_outside_of_its_folder_is_not_read(built: Path, run: Run) -> None:
    path = Path("out/digits/phone/report.json")
    report = json.loads(path.read_text())
    report["model"]["file"] = "../download/digits.pb"
    path.write_text(json.dumps(report))
    told = run("report", built, "--target", "phone", "--compare", path)
    assert told.code == 9
    assert "leads out of the folder" in told.err

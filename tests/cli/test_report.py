"""The verb ``report``."""

from __future__ import annotations

import json
import re
import shutil
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


def test_json_equals_the_report_of_the_build(built: Path, run: Run) -> None:
    result = run("report", built, "--target", "phone", "--json")
    assert (result.code, result.err) == (0, "")
    report = json.loads(Path("out/digits/phone/report.json").read_text())
    assert json.loads(result.out) in (report, [report])


def test_text_names_the_model_and_its_size(built: Path, run: Run) -> None:
    result = run("report", built, "--target", "phone")
    size = Path("out/digits/phone/digits.pb").stat().st_size
    assert result.code == 0
    assert f"digits.pb: {size:,} bytes" in result.out or f"digits.pb: {size} bytes" in result.out


def test_unbuilt_recipe_has_no_report(digits: Path, run: Run) -> None:
    result = run("report", digits)
    assert (result.code, result.out) == (2, "")
    assert "stages are stale, the first is digits/" in result.err
    assert f"run 'mobileprep build {digits}' first" in result.err


def test_markdown_lists_targets_and_budgets(built: Path, run: Run) -> None:
    size = Path("out/digits/phone/digits.pb").stat().st_size
    text = built.read_text()
    built.write_text(text.replace("  phone:\n", "  phone:\n    budget: {model_bytes: 90000}\n"))
    assert run("build", built).code == 0
    result = run("report", built, "--format", "markdown")
    assert result.code == 0
    assert (
        f"| digits/phone | digits.pb | weights | {size:,} ({90_000 - size:,} left of 90,000) |"
        in result.out
    )
    assert "| digits/download | digits.pb |" in result.out
    assert run("report", built, "--format", "markdown", "--json").code == 2


def test_output_directory_is_reported_without_its_recipe(built: Path, run: Run) -> None:
    by_recipe = run("report", built, "--target", "phone")
    for name in ("out/digits/phone", "out/digits/phone/report.json"):
        result = run("report", name)
        assert (result.code, result.out, result.err) == (0, by_recipe.out, "")
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
    """The recipe built with another parameter, and the earlier build in ``old``."""
    shutil.copytree("out", "old")
    other_minimum(built)
    assert run("build", built).code == 0
    return built


def test_changed_parameter_is_reported_with_its_effects(edited: Path, run: Run) -> None:
    result = run("report", edited, "--compare", "old", "--json")
    assert (result.code, result.err) == (0, "")
    phone, download = json.loads(result.out)
    assert (phone["target"], phone["state"]) == ("phone", "changed")
    assert (download["target"], download["state"]) == ("download", "same")
    (cause,) = phone["causes"]
    key = "transforms.quantize_weights.minimum_size"
    assert (cause["key"], cause["before"], cause["after"]) == (key, 1024, 16)
    line = edited.read_text().splitlines().index("    quantize: {mode: weights, minimum_size: 16}")
    assert cause["place"].startswith(f"{edited}:{line + 1}:")
    assert phone["steps"][0]["causes"] == [key]
    assert phone["steps"][0]["name"] == "quantize_weights"
    # Later steps have no changed parameters.
    assert [step["causes"] for step in phone["steps"][1:]] == [[]]
    sizes = {figure["name"]: figure for figure in phone["sizes"]}
    before, after = (Path(f"{d}/digits/phone/digits.pb").stat().st_size for d in ("old", "out"))
    assert sizes["model bytes"] == {"name": "model bytes", "before": before, "after": after}
    assert {figure["name"] for figure in phone["ops"]} == {"Const", "Dequantize"}
    kinds = {change["kind"] for change in phone["nodes"]["changes"]}
    assert {"added", "removed"} <= kinds


@pytest.mark.parametrize("old", ["old/digits/phone", "old/digits/phone/report.json", "all.json"])
def test_comparison_with_a_directory_or_a_report(old: str, edited: Path, run: Run) -> None:
    reports = [json.loads(p.read_text()) for p in sorted(Path("old").rglob("report.json"))]
    Path("all.json").write_text(json.dumps(reports))
    result = run("report", edited, "--target", "phone", "--compare", old)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "digits/phone"
    assert lines[1].startswith("cause    transforms.quantize_weights.minimum_size: 1024 -> 16 (")
    assert ("the earlier model is not available" in result.out) is (old == "all.json")


def test_directories_are_compared_without_a_recipe(edited: Path, run: Run) -> None:
    result = run("report", "out", "--compare", "old")
    by_recipe = run("report", edited, "--compare", "old")
    assert "cause    transforms.quantize_weights.minimum_size: 1024 -> 16\n" in result.out
    lines = result.out.splitlines()
    assert lines[0] == by_recipe.out.splitlines()[-1] == "digits/download: nothing differs"
    assert lines[3:] == by_recipe.out.splitlines()[2:-1]


def test_comparison_as_markdown(edited: Path, run: Run) -> None:
    result = run("report", edited, "--compare", "old", "--format", "markdown")
    assert result.code == 0
    assert "- **cause** transforms.quantize&#95;weights.minimum&#95;size: 1024 -&#62;" in result.out
    assert "| model bytes |" in result.out
    assert result.out.endswith("Nothing differs in digits/download.\n")


def test_invalid_earlier_build_is_refused(built: Path, run: Run) -> None:
    Path("bad.json").write_text('{"recipe": 3}')
    Path("deep.json").write_text("[" * 100_000)
    Path("none.json").write_text("[]")
    for name in ("bad.json", "deep.json", "none.json", "missing.json", "digits/data"):
        result = run("report", built, "--compare", name)
        assert (result.code, result.out) == (4, ""), name
        assert name in result.err
    report = json.loads(Path("out/digits/phone/report.json").read_text())
    others = [{**report, "recipe": "letters", "target": target} for target in ("a", "b")]
    Path("others.json").write_text(json.dumps(others))
    assert "has none of these targets" in run("report", built, "--compare", "others.json").err


def test_model_outside_the_report_directory_is_refused(built: Path, run: Run) -> None:
    path = Path("out/digits/phone/report.json")
    report = json.loads(path.read_text())
    report["model"]["file"] = "../download/digits.pb"
    path.write_text(json.dumps(report))
    result = run("report", built, "--target", "phone", "--compare", path)
    assert result.code == 9
    assert "leads out of the folder" in result.err


def in_page(path: Path, part: str) -> Any:
    match = re.search(rf'id="{part}">([^<]*)<', path.read_text())
    return json.loads(match[1]) if match else None


def test_comparison_page_contains_both_builds(edited: Path, run: Run) -> None:
    result = run("report", edited, "--compare", "old", "--html", "both.html")
    assert (result.code, result.out, result.err) == (0, "Created both.html.\n", "")
    both = Path("both.html")
    # Only durations differ from the page of the build.
    now, original = in_page(both, "data"), in_page(Path("out/digits/report.html"), "data")
    assert {**now, "stages": []} == {**original, "stages": []}
    assert in_page(both, "compared") == in_page(Path("old/digits/report.html"), "data")
    assert now["targets"] != in_page(both, "compared")["targets"]


@pytest.mark.parametrize(
    "old",
    ["old/digits", "old/digits/phone", "old/digits/phone/report.json", "old/digits/report.html"],
)
def test_pages_are_found_from_directories_and_reports(old: str, edited: Path, run: Run) -> None:
    for new in ("out", "out/digits/report.html"):
        result = run("report", new, "--compare", old, "--html", "both.html")
        assert result.code == 0, result.err
        expected = in_page(Path("old/digits/report.html"), "data")
        assert in_page(Path("both.html"), "compared") == expected


def test_page_of_one_target(built: Path, run: Run) -> None:
    assert run("report", built, "--target", "phone", "--html", "one.html").code == 0
    (target,) = in_page(Path("one.html"), "data")["targets"]
    assert target["name"] == "phone"
    assert in_page(Path("one.html"), "compared") is None
    result = run("report", "out", "--target", "tablet", "--html", "none.html")
    assert (result.code, "there are download, phone" in result.err) == (2, True)


def test_builds_without_a_page_are_refused(built: Path, run: Run) -> None:
    Path("mine.html").write_text("mine")
    Path("deep.html").write_text(
        f'<script type="application/json" id="data">{"[" * 100_000}</script>'
    )
    shutil.copytree("out", "pageless")
    Path("pageless/digits/report.html").unlink()
    Path("alone.json").write_text("{}")
    for name in (
        "mine.html",
        "deep.html",
        "pageless",
        "pageless/digits/phone",
        "alone.json",
        "gone",
    ):
        result = run("report", built, "--compare", name, "--html", "both.html")
        assert (result.code, result.out) == (4, ""), name
        assert name.partition("/")[0] in result.err
        assert not Path("both.html").exists()


def test_recipe_selects_one_of_several_pages(built: Path, run: Run) -> None:
    shutil.copytree("out/digits", "out/letters")
    result = run("report", "out", "--html", "page.html")
    assert result.code == 2
    assert "out/digits/report.html, out/letters/report.html" in result.err
    assert run("report", built, "--compare", "out", "--html", "page.html").code == 0


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: urls.append(url) or True)
    return urls


@pytest.mark.parametrize("name", ["digits", "out", "out/digits/phone", "out/digits/report.html"])
def test_open_shows_the_page_in_the_browser(
    name: str, built: Path, run: Run, browser: list[str]
) -> None:
    result = run("report", name, "--open")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert browser == [Path("out/digits/report.html").absolute().as_uri()]


def test_open_shows_the_written_page(built: Path, run: Run, browser: list[str]) -> None:
    assert run("report", built, "--html", "a b.html", "--open").code == 0
    assert browser == [Path("a b.html").absolute().as_uri()]


@pytest.mark.parametrize("raises", [True, False])
def test_path_is_printed_without_a_browser(
    raises: bool, built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_url: str) -> bool:
        if raises:
            raise webbrowser.Error
        return False

    monkeypatch.setattr(webbrowser, "open", fails)
    result = run("report", built, "--open")
    assert (result.code, str(Path("out/digits/report.html").absolute()) in result.out) == (0, True)


def test_open_with_a_missing_page_or_other_flags_is_refused(
    built: Path, run: Run, browser: list[str]
) -> None:
    Path("out/digits/report.html").unlink()
    result = run("report", built, "--open")
    assert (result.code, "mobileprep build" in result.err) == (4, True)
    for flags in (["--json"], ["--compare", "out"], ["--target", "phone"], ["--html", "-"]):
        assert run("report", built, "--open", *flags).code == 2
    assert run("report", built, "out", "--open").code == 2
    assert browser == []

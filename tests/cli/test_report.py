"""The verb ``report``: the reports of what is built, from records alone."""

from __future__ import annotations

import json
import re
import shutil
import webbrowser
from pathlib import Path
from typing import Any

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
    assert ("the earlier model is not available" in told.out) is (old == "all.json")


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


def in_page(path: Path, part: str) -> Any:
    found = re.search(rf'id="{part}">([^<]*)<', path.read_text())
    return json.loads(found[1]) if found else None


def test_the_page_has_the_earlier_build_beside_it(edited: Path, run: Run) -> None:
    told = run("report", edited, "--compare", "old", "--html", "both.html")
    assert (told.code, told.out, told.err) == (0, "Created both.html.\n", "")
    both = Path("both.html")
    # All but the times is as the build's own page has it.
    now, left = in_page(both, "data"), in_page(Path("out/digits/report.html"), "data")
    assert {**now, "stages": []} == {**left, "stages": []}
    assert in_page(both, "compared") == in_page(Path("old/digits/report.html"), "data")
    assert now["targets"] != in_page(both, "compared")["targets"]


@pytest.mark.parametrize(
    "old",
    ["old/digits", "old/digits/phone", "old/digits/phone/report.json", "old/digits/report.html"],
)
def test_pages_are_found_beside_what_is_named(old: str, edited: Path, run: Run) -> None:
    for new in ("out", "out/digits/report.html"):
        told = run("report", new, "--compare", old, "--html", "both.html")
        assert told.code == 0, told.err
        wanted = in_page(Path("old/digits/report.html"), "data")
        assert in_page(Path("both.html"), "compared") == wanted


def test_a_page_of_one_target(built: Path, run: Run) -> None:
    assert run("report", built, "--target", "phone", "--html", "one.html").code == 0
    (target,) = in_page(Path("one.html"), "data")["targets"]
    assert target["name"] == "phone"
    assert in_page(Path("one.html"), "compared") is None
    told = run("report", "out", "--target", "tablet", "--html", "none.html")
    assert (told.code, "there are download, phone" in told.err) == (2, True)


def test_what_has_no_page_is_refused(built: Path, run: Run) -> None:
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
        told = run("report", built, "--compare", name, "--html", "both.html")
        assert (told.code, told.out) == (4, ""), name
        assert name.partition("/")[0] in told.err
        assert not Path("both.html").exists()


def test_several_pages_are_told_apart_by_the_recipe(built: Path, run: Run) -> None:
    shutil.copytree("out/digits", "out/letters")
    told = run("report", "out", "--html", "page.html")
    assert (told.code, "out/digits/report.html, out/letters/report.html" in told.err) == (2, True)
    assert run("report", built, "--compare", "out", "--html", "page.html").code == 0


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    return asked


@pytest.mark.parametrize("name", ["digits", "out", "out/digits/phone", "out/digits/report.html"])
def test_the_page_is_opened(name: str, built: Path, run: Run, browser: list[str]) -> None:
    told = run("report", name, "--open")
    assert (told.code, told.out, told.err) == (0, "", "")
    assert browser == [Path("out/digits/report.html").absolute().as_uri()]


def test_a_written_page_is_opened(built: Path, run: Run, browser: list[str]) -> None:
    assert run("report", built, "--html", "a b.html", "--open").code == 0
    assert browser == [Path("a b.html").absolute().as_uri()]


@pytest.mark.parametrize("raises", [True, False])
def test_without_a_browser_the_path_is_told(
    raises: bool, built: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_url: str) -> bool:
        if raises:
            raise webbrowser.Error
        return False

    monkeypatch.setattr(webbrowser, "open", fails)
    told = run("report", built, "--open")
    assert (told.code, str(Path("out/digits/report.html").absolute()) in told.out) == (0, True)


def test_what_cannot_be_opened(built: Path, run: Run, browser: list[str]) -> None:
    Path("out/digits/report.html").unlink()
    told = run("report", built, "--open")
    assert (told.code, "mobileprep build" in told.err) == (4, True)
    for flags in (["--json"], ["--compare", "out"], ["--target", "phone"], ["--html", "-"]):
        assert run("report", built, "--open", *flags).code == 2
    assert run("report", built, "out", "--open").code == 2
    assert browser == []

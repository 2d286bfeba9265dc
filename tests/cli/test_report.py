"""The verb ``report``: the reports of what is built, from records alone."""

from __future__ import annotations

import json
from pathlib import Path

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

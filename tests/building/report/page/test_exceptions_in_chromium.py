"""The exceptions of a LiteRT file from int8, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mobileprep.building.stages.exceptions.spec import ChosenException, ExceptionsRecord
from tests.building.report.page.browser import HOSTILE, opened, serious_faults, with_records
from tests.building.report.test_text import LAYERS

EXCEPTIONS = ExceptionsRecord(
    ("{mode: int16x8, nodes: '^(a_1|b0|b1|b2)$'}", "{mode: float, nodes: '^(worst)$'}"),
    0.9125,
    0.95,
    5,
    (
        ChosenException({"int16x8": ("a_1", "b0", "b1", "b2")}, 0.9625, 4.25, 1234, 0.5),
        ChosenException({"float": ("worst",)}, 0.9125, 1.0, -12, None),
    ),
    "a phone",
)


@pytest.fixture(scope="module")
def page_file(plain_file: Path) -> Path:
    return with_records(
        plain_file, plain_file.with_name("exceptions.html"), exceptions=EXCEPTIONS, layers=LAYERS
    )


def test_groups_have_their_cost(page: Any) -> None:
    part = page.locator("#exceptions")
    summary = part.locator("p").first.inner_text()
    assert summary == (
        "4 nodes with 16-bit activations and 1 node in float. "
        "91.3 % of the multiply-accumulates are in int8, and 95 % in integers."
    )
    rows = part.locator("[data-chart=exceptions] tbody tr")
    cells = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    assert [[" ".join(text.split()) for text in row] for row in cells] == [
        ["a_1, b0, b1, ... with 16-bit activations", "96.3 %", "-4.25 dB", "+1.23 kB", "+0.5 ms"],
        ["worst in float", "91.3 %", "-1.00 dB", "-12 B", "-"],
    ]
    assert "latency on a phone" in part.locator("thead").first.inner_text()


def test_nodes_and_rules_are_listed(page: Any) -> None:
    page.get_by_text("All 5 nodes", exact=True).click()
    rows = page.locator("[data-chart=excepted] tbody tr")
    assert rows.last.locator("th, td").all_inner_texts() == ["worst", "in float"]
    assert rows.count() == 5
    rules = ", ".join(EXCEPTIONS.rules)
    assert page.locator("[data-chart=rules]").inner_text() == f"rules: [{rules}]"


def test_strip_marks_excepted_layers(page: Any) -> None:
    row = page.get_by_role("slider", name="after equalize_ranges")
    marked = row.locator(".cell").evaluate_all(
        "all => all.map(one => one.classList.contains('excepted'))"
    )
    assert marked == [True, False, True, True, True, False, True]
    row.focus()
    page.keyboard.press("End")
    assert "layer 7 of 7: worst (CONV_2D, in float): " in page.locator(".stripfacts").inner_text()
    assert page.locator(".legend .excepted").inner_text() == "not in int8"


def test_everything_in_int8(chrome: Any, plain_file: Path, tmp_path: Path) -> None:
    record = replace(EXCEPTIONS, rules=(), exceptions=(), int8_macs=1.0, integer_macs=1.0)
    path = with_records(plain_file, tmp_path / "report.html", exceptions=record, layers=LAYERS)
    with opened(chrome, path) as page:
        text = page.locator("#exceptions p").inner_text()
        assert text.startswith("All operators with integer kernels are in int8. 100 % of ")
        assert page.locator("#exceptions table, #exceptions pre").count() == 0
        assert page.locator(".excepted").count() == 0


def test_target_without_exceptions_has_no_section(chrome: Any, plain_file: Path) -> None:
    with opened(chrome, plain_file) as page:
        assert page.locator("#exceptions").count() == 0


def test_hostile_names_fit_a_narrow_screen(chrome: Any, plain_file: Path, tmp_path: Path) -> None:
    (one, _) = EXCEPTIONS.exceptions
    groups = tuple(replace(one, modes={"int16x8": (name,)}) for name in HOSTILE)
    record = replace(EXCEPTIONS, rules=HOSTILE, exceptions=groups, device=HOSTILE[1])
    path = with_records(plain_file, tmp_path / "report.html", exceptions=record, layers=LAYERS)
    with opened(chrome, path, viewport={"width": 390, "height": 844}) as page:
        page.get_by_text(f"All {len(HOSTILE)} nodes").click()
        assert page.evaluate("window.broken") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_serious_accessibility_faults(
    chrome: Any, page_file: Path, scheme: str
) -> None:
    with opened(chrome, page_file, color_scheme=scheme) as page:
        page.get_by_text("All 5 nodes", exact=True).click()
        assert serious_faults(page) == []

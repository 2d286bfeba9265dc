"""The heat strip of a LiteRT file's layers, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.building.report.page.browser import HOSTILE, opened, serious_faults, with_records
from tests.building.report.test_text import LAYERS


@pytest.fixture(scope="module")
def page_file(plain_file: Path) -> Path:
    return with_records(plain_file, plain_file.with_name("layers.html"), layers=LAYERS)


def test_strip_has_a_row_for_each_repair_and_a_cell_for_each_layer(page: Any) -> None:
    rows = page.locator("[data-chart=layers] [role=slider]")
    assert [rows.nth(at).get_attribute("aria-label") for at in range(rows.count())] == [
        "no repairs",
        "after equalize_ranges",
    ]
    assert rows.nth(1).locator(".cell").count() == 7
    # 30, none, 20 to 23, and -3.25 dB.
    kinds = rows.nth(1).locator(".heat").evaluate_all("all => all.map(one => one.className)")
    assert kinds == ["heat heat3", "heat", *["heat heat2"] * 4, "heat heat0"]
    heights = rows.nth(1).locator(".heat").evaluate_all("all => all.map(one => one.clientHeight)")
    # The height shows the error without color.
    assert heights[6] > heights[2] > heights[0] > heights[1] == 0
    assert rows.nth(0).locator(".heat0, .heat1, .heat2, .heat3, .heat4").count() == 0


def test_arrow_keys_move_through_a_row(page: Any) -> None:
    row = page.get_by_role("slider", name="after equalize_ranges")
    row.focus()
    facts = page.locator(".stripfacts")
    assert facts.inner_text() == (
        "after equalize_ranges, layer 1 of 7: a_1 (CONV_2D): 10.0 dB with all layers quantized, "
        "30.0 dB alone; its own error: weights 45 %, clipping -0.2 %, rounding 55 %, rest 0.2 %"
    )
    page.keyboard.press("End")
    assert "layer 7 of 7: worst (CONV_2D): 10.0 dB" in facts.inner_text()
    assert row.get_attribute("aria-valuenow") == "7"
    assert "worst (CONV_2D)" in (row.get_attribute("aria-valuetext") or "")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert "layer 6 of 7: b3" in facts.inner_text()


def test_pointing_at_a_cell_shows_its_layer(page: Any) -> None:
    page.get_by_role("slider", name="after equalize_ranges").locator(".cell").nth(2).hover()
    assert "layer 3 of 7: b0 (CONV_2D)" in page.locator(".stripfacts").inner_text()


def test_strip_shows_the_whole_network_on_request(page: Any) -> None:
    page.get_by_label("Signal to noise with").select_option(label="all layers quantized")
    row = page.get_by_role("slider", name="after equalize_ranges")
    assert row.locator(".heat1").count() == 7


def test_tables_have_the_numbers(page: Any) -> None:
    outputs = page.locator("[data-chart=output-errors] tbody tr")
    cells = outputs.first.locator("th, td").all_inner_texts()
    assert cells == ["y", "12.0 dB", "20.5 dB", "45 %", "-0.2 %", "55 %", "0.2 %"]
    page.get_by_text("All 7 layers as a table").click()
    rows = page.locator("[data-chart=layer-table] tbody tr")
    assert rows.nth(6).locator("th, td").all_inner_texts() == [
        *("worst", "CONV_2D", "-", "-3.3 dB", "45 %", "-0.2 %", "55 %", "0.2 %", "10.0 dB")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_strip_has_no_serious_accessibility_faults(
    chrome: Any, page_file: Path, scheme: str
) -> None:
    with opened(chrome, page_file, color_scheme=scheme) as page:
        page.get_by_role("slider", name="no repairs").focus()
        page.get_by_text("All 7 layers as a table").click()
        assert serious_faults(page) == []


def test_hostile_names_fit_a_narrow_screen(chrome: Any, plain_file: Path, tmp_path: Path) -> None:
    layers = tuple(replace(LAYERS.layers[0], layer=name, op=name) for name in HOSTILE)
    outputs = tuple(replace(LAYERS.outputs[0], output=name) for name in HOSTILE)
    record = replace(LAYERS, data=HOSTILE[0], repairs=HOSTILE[1:2], layers=layers, outputs=outputs)
    path = with_records(plain_file, tmp_path / "report.html", layers=record)
    with opened(chrome, path, viewport={"width": 390, "height": 844}) as page:
        page.locator("[role=slider]").last.focus()
        for _ in HOSTILE:
            page.keyboard.press("ArrowRight")
        assert page.evaluate("window.broken") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_unmeasured_layers_have_a_reason(chrome: Any, plain_file: Path, tmp_path: Path) -> None:
    record = replace(LAYERS, unmeasured="no kernel of <Foo>")
    with opened(chrome, with_records(plain_file, tmp_path / "report.html", layers=record)) as page:
        assert "no kernel of <Foo>" in page.locator("#layers").inner_text()


def test_target_without_layers_has_no_section(chrome: Any, plain_file: Path) -> None:
    with opened(chrome, plain_file) as page:
        assert page.locator("#layers").count() == 0

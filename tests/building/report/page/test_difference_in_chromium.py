"""The page of graph differences in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.report_files import diff_page
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.building.report.page.browser import HOSTILE, chromium, network, opened, serious_faults
from tests.building.stages.jobs import op


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chromium()
    folder = tmp_path_factory.mktemp("difference")
    write_graph(folder / "first.pb", network(HOSTILE[:4]))
    changed = [
        op(n.name, "Tanh", *map(str, n.inputs)) if n.name == "net/hidden/relu" else n
        for n in network(HOSTILE[3:])
        if n.name != "unused"
    ]
    write_graph(folder / "second.pb", Graph(changed))
    page = folder / "difference.html"
    options: dict[str, Any] = {"tolerance": 0.0, "samples": 2, "outputs": ["net/out/y"]}
    result = diff_page(
        folder / "first.pb", folder / "second.pb", page, warn=lambda _: None, **options
    )
    assert not result.equal
    return page


@pytest.mark.parametrize(
    ("chart", "part", "least"),
    [
        ("counts", "tbody tr", 7),
        ("differences", "tbody tr", 5),
        ("graph", "g.box", 2),
        ("ops", "tbody tr", 5),
        ("outputs", "tbody tr", 1),
    ],
)
def test_parts_have_data(page: Any, chart: str, part: str, least: int) -> None:
    assert page.locator(f"[data-chart={chart}]").first.locator(part).count() >= least


def test_differences_are_searched_and_shown_in_their_graph(page: Any) -> None:
    rows = page.locator("[data-chart=differences] tbody tr")
    page.get_by_label("Find a difference").fill("tanh")
    assert rows.count() >= 1
    page.get_by_label("Find a difference").fill("unused")
    page.get_by_label("Kind").select_option(label="removed")
    assert rows.count() == 1
    rows.get_by_role("button").click()
    graph = page.get_by_role("combobox", name="Graph", exact=True)
    assert graph.input_value() == "first"
    details = page.locator(".details").inner_text()
    assert "removed; it was Relu" in details
    page.get_by_label("Search").fill("op:tanh")
    assert page.locator(".results li").count() == 0
    graph.select_option(label="second")
    page.get_by_label("Search").fill("op:tanh")
    assert page.locator(".results li").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_serious_accessibility_faults(
    chrome: Any, page_file: Path, scheme: str
) -> None:
    with opened(chrome, page_file, color_scheme=scheme) as page:
        assert serious_faults(page) == []


def test_hostile_names_are_text_on_a_narrow_screen(chrome: Any, page_file: Path) -> None:
    with opened(chrome, page_file, viewport={"width": 390, "height": 844}) as page:
        text = page.locator("[data-chart=differences]").inner_text()
        assert HOSTILE[0] in text
        assert HOSTILE[4] in text
        assert page.evaluate("window.broken") is None
        assert page.locator("img, #page script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

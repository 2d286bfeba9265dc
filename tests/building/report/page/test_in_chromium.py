"""The report page in Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from mobileprep.building.report.page.render import data_of_page, render_page
from mobileprep.inspection.node_table import node_table
from tests.building.report.page.browser import (
    HOSTILE,
    built,
    chromium,
    network,
    opened,
    serious_faults,
)

CHARTS = (
    ("sizes", "circle", 6),
    ("steps", "tbody tr", 5),
    ("metrics", "tbody tr", 1),
    ("outputs", "tbody tr", 1),
    ("worst", "tbody tr", 3),
    ("treemap", "g.tile", 2),
    ("scopes", "tbody tr", 2),
    ("histogram", "rect.bin", 10),
    ("ranges", "tbody tr", 3),
    ("ops", "tbody tr", 5),
    ("budgets", "tbody tr", 1),
    ("files", "tbody tr", 2),
    ("stages", "tbody tr", 10),
    ("graph", "g.box", 2),
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chromium()  # skip the build without Chromium
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("page")
        patch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
        return built(folder)


@pytest.mark.parametrize(("chart", "part", "least"), CHARTS)
def test_charts_have_data(page: Any, chart: str, part: str, least: int) -> None:
    page.wait_for_selector(f"[data-chart={chart}] {part}")
    assert page.locator(f"[data-chart={chart}]").first.locator(part).count() >= least


def test_search_selects_a_node(page: Any) -> None:
    page.get_by_label("Search").fill("net/out/y")
    assert page.locator(".results button").first.inner_text() == "net/out/y"
    page.get_by_label("Search").press("Enter")
    assert "Softmax" in page.locator(".details").inner_text()
    assert page.locator("g.box.chosen .label").text_content() == "y"
    page.get_by_label("Search").fill("op:softmax")
    assert page.locator(".results li").count() == 1


def test_scopes_open_by_mouse_and_keyboard(page: Any) -> None:
    page.get_by_role("button", name="Close all").click()
    page.get_by_role("button", name=re.compile("^scope hidden,")).click()
    inside = page.locator("g.box", has_text="weights")
    assert inside.count() == 1
    page.keyboard.press("Enter")
    assert inside.count() == 0
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('g.box') !== null")
    assert "net/hidden/" in page.locator(".details h3").inner_text()


def test_node_details_have_error_range_and_history(page: Any) -> None:
    page.locator("#graph select").select_option(label="frozen source")
    page.get_by_label("Search").fill("net/hidden/product")
    page.get_by_label("Search").press("Enter")
    details = page.locator(".details").inner_text()
    assert "Error after quantization" in details
    assert "signal to noise" in details
    assert re.search(r"range\s+-\d", details)
    history = page.locator(".details .history").inner_text()
    assert "remove_nodes" in history
    assert "net/hidden/same" in history  # the previous input
    assert "quantize_nodes" in history


def test_history_follows_renamed_nodes(page: Any) -> None:
    page.locator("header select").select_option(label="web")
    page.get_by_label("Search").fill("op:Relu")
    page.get_by_label("Search").press("Enter")
    assert "net/hidden/relu" in page.locator(".details .history").inner_text()
    assert "obfuscate_names" in page.locator(".details .history").inner_text()


def test_worst_layer_links_to_its_node(page: Any) -> None:
    page.locator("[data-chart=worst] button").first.click()
    assert page.locator("g.box.chosen").count() == 1


def test_pan_and_zoom_move_the_graph(page: Any) -> None:
    where = "document.querySelector('.world').getAttribute('transform')"
    before = page.evaluate(where)
    canvas = page.locator("svg.canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 70)
    page.mouse.up()
    moved = page.evaluate(where)
    assert moved != before
    page.get_by_role("button", name="Zoom in").click()
    assert page.evaluate(where) != moved


def test_treemap_opens_a_scope(page: Any) -> None:
    page.locator("#scopes select").nth(1).select_option(label="bytes of constants")
    page.locator("[data-chart=scopes] button").first.click()
    page.locator("[data-chart=scopes] button").first.click()
    assert page.locator("#scopes .crumbs li").count() >= 2


def test_comparison_with_another_page(page: Any, page_file: Path, tmp_path: Path) -> None:
    text = page_file.read_text()
    other = tmp_path / "other.html"
    other.write_text(text.replace('"Softmax"', '"LogSoftmax"'))
    page.locator("#compare input").set_input_files(other)
    page.wait_for_selector("[data-chart=compare] tbody tr")
    text_of_comparison = page.locator("#compare").inner_text()
    assert "LogSoftmax" in text_of_comparison
    assert "1 nodes differ" in text_of_comparison
    other.write_text("<p>no page</p>")
    page.locator("#compare input").set_input_files(other)
    page.get_by_text("cannot be compared").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_has_no_serious_accessibility_faults(
    chrome: Any, page_file: Path, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 844}
    with opened(chrome, page_file, viewport=size, color_scheme=scheme) as page:
        page.get_by_label("Search").fill("weights")
        page.get_by_label("Search").press("Enter")
        assert serious_faults(page) == []


@pytest.mark.parametrize("width", [320, 390])
def test_page_fits_a_narrow_screen(chrome: Any, page_file: Path, width: int) -> None:
    with opened(chrome, page_file, viewport={"width": width, "height": 844}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_text(chrome: Any, page_file: Path, tmp_path: Path) -> None:
    match = re.search(rb'id="data">([^<]*)<', page_file.read_bytes())
    assert match is not None
    data = json.loads(match[1])
    data["recipe"] = HOSTILE[0]
    graph = network(HOSTILE)
    table = to_builtins(node_table(graph, {}))
    for target in data["targets"]:
        target["name"] = target["report"]["target"] = HOSTILE[1]
        target["report"]["warnings"] = list(HOSTILE)
        target["report"]["ops"] = dict.fromkeys(HOSTILE, 1)
        for step in target["nodes"]["steps"]:
            step["name"] = HOSTILE[2]
            step["changes"] = [["attribute", n, n, n, n, None] for n in HOSTILE]
        target["nodes"]["graphs"] = [{**table, "weights": []}] * 2
        target["nodes"]["ranges"] = [[name, -1, 1] for name in HOSTILE]
    path = tmp_path / "report.html"
    path.write_bytes(render_page(data, compared=data))
    with opened(chrome, path, viewport={"width": 390, "height": 844}) as page:
        for name in HOSTILE:
            page.evaluate("name => mobileprep.view.show(name)", name)
            page.wait_for_selector(".details h3.name")
        assert page.evaluate("window.broken") is None
        assert page.locator("img, #page script, #page a:not([href^='#'])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        text = page.evaluate("document.body.innerText")
        assert "\u202e" not in text
        assert "\\u202e" in text


def test_overview_has_the_preprocessing(chrome: Any, page_file: Path, tmp_path: Path) -> None:
    data = data_of_page(page_file.read_bytes())
    for target in data["targets"]:
        moved = {"summary": "rgb; mean 0; std 255", "preprocessing": {"input": "x"}}
        target["report"]["preprocessing"] = {**moved, "largest_difference": None}
    path = tmp_path / "report.html"
    path.write_bytes(render_page(data))
    with opened(chrome, path) as page:
        shown = page.locator("[data-chart=preprocessing]").first.inner_text()
    assert shown == "Preprocessing in the app: rgb; mean 0; std 255; input x."


def test_comparison_of_two_builds(chrome: Any, page_file: Path, tmp_path: Path) -> None:
    data = data_of_page(page_file.read_bytes())
    earlier = json.loads(json.dumps(data))
    earlier["targets"][0]["report"]["model"]["bytes"] += 1000
    broken = {**data, "targets": [{"name": "phone"}]}
    path = tmp_path / "both.html"
    for compared, expected in ((earlier, "-1.00 kB"), (broken, "cannot be compared")):
        path.write_bytes(render_page(data, compared=compared))
        with opened(chrome, path) as page:
            assert expected in page.locator("#compare").inner_text()
            assert page.locator("[data-chart=steps] tbody tr").count() >= 5

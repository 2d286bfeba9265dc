"""A recipe that covers all parts of the page, and Chromium to open the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from mobileprep.building.builder import build
from mobileprep.building.report.page.render import data_of_page, render_page
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op, placeholder

HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "a\"b'c`${window.broken = 3}&lt;",
    "right\u202eto left\u0007bell\u2028line",
    "javascript:window.broken=4//]]>-->",
    "__proto__/constructor",
    "n" * 10_000,
)
RECIPE = """\
version: 1
name: shown
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 8]}}
outputs: [net/out/y]
transforms:
  - strip_unused_nodes
  - remove_nodes: {op: [Identity]}
calibration: {data: data.npz, method: min_max}
validation: {data: data.npz, labels: label, metric: top1}
targets:
  phone: {platform: android, quantize: {mode: nodes, ranges: observed}, budget: {model_bytes: 1 MB}}
  web: {platform: android, obfuscate: true}
"""


def chromium() -> str:
    """The path of Chromium; skip the test if Chromium or Playwright is not installed."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed")
    return path


def network(names: tuple[str, ...] = ()) -> Graph:
    """A small classifier in scopes, and nodes with further names."""
    rng = np.random.default_rng(0)
    nodes = [
        placeholder((-1, 8)),
        constant("net/hidden/weights", Tensor.of(rng.normal(size=(8, 16)).astype(np.float32))),
        op("net/hidden/same", "Identity", "net/hidden/weights"),
        op("net/hidden/product", "MatMul", "x", "net/hidden/same"),
        op("net/hidden/relu", "Relu", "net/hidden/product"),
        constant("net/out/weights", Tensor.of(rng.normal(size=(16, 4)).astype(np.float32))),
        op("net/out/product", "MatMul", "net/hidden/relu", "net/out/weights"),
        op("net/out/y", "Softmax", "net/out/product"),
        op("unused", "Relu", "net/out/y"),
    ]
    return Graph([*nodes, *(Node(name, "NoOp") for name in names)])


def built(folder: Path) -> Path:
    """Build the recipe and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_graph(folder / "model.pb", network())
    data = np.random.default_rng(1).uniform(-1, 1, (24, 8)).astype(np.float32)
    np.savez(folder / "data.npz", x=data, label=np.arange(24) % 4)
    (folder / "recipe.yaml").write_text(RECIPE)
    build(folder / "recipe.yaml", folder / "out", warn=lambda _: None)
    return folder / "out" / "shown" / "report.html"


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    executable = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chrome = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chrome
        chrome.close()


def with_records(page_file: Path, path: Path, **records: Any) -> Path:
    """Write a page whose first target has other parts of its report."""
    data = data_of_page(page_file.read_bytes())
    data["targets"][0]["report"].update({k: to_builtins(v) for k, v in records.items()})
    path.write_bytes(render_page(data))
    return path


@contextmanager
def opened(browser: Any, path: Path, **settings: Any) -> Iterator[Any]:
    """A rendered page; check afterwards that it had no problems and sent no requests."""
    problems: list[str] = []
    requests: list[str] = []
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    page = context.new_page()
    page.on("console", lambda m: problems.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: requests.append(r.url))
    page.add_init_script(
        "window.refused = [];"
        "document.addEventListener('securitypolicyviolation', e => refused.push(e.blockedURI))"
    )
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_selector("g.box", state="attached")
    yield page
    assert problems == []
    assert page.evaluate("refused") == []
    assert {url for url in requests if not url.startswith("data:")} == {path.as_uri()}
    context.close()


def serious_faults(page: Any) -> list[dict[str, Any]]:
    """The serious accessibility faults that axe finds on a page."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    violations = axe.Axe().run(page).response["violations"]
    return [fault for fault in violations if fault["impact"] in ("serious", "critical")]

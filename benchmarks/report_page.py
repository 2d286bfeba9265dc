"""Measure how fast the report page of a large graph opens and reacts.

    python benchmarks/report_page.py [--nodes 7000] [--browser /usr/bin/chromium]

Builds a recipe for a graph with the given number of nodes, once with name scopes and once without.
Opens each page in Chromium without a browser cache and prints the median of the runs in
milliseconds: from opening the file to the first drawn page, and from an input event to the next
frame. Requires playwright (pip install playwright) and Chromium.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.building.builder import build
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor

_RUNS = 5
_RECIPE = """\
version: 1
name: large
source: {frozen: graph.pb}
inputs: {x: {dtype: float32, shape: [1, 8]}}
outputs: [OUTPUT]
transforms: [strip_unused_nodes, remove_nodes: {op: [Identity]}, merge_duplicate_nodes]
targets: {phone: {platform: android, sort: true}}
"""
# Waits until the frame after the one with the changes of an event.
_FRAME = "await new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)));"
_ANSWER = f"""async (act) => {{
  const start = performance.now();
  await (0, eval)(act)();
  {_FRAME}
  return performance.now() - start;
}}"""
_ACTS = {
    "pan": """() => {
      const { view } = mobileprep;
      view.surface.call(view.zoom.translateBy, 400, 300);
    }""",
    "search": """() => {
      const field = document.querySelector('input[type=search]');
      field.value = field.value === 'bias' ? 'product' : 'bias';
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }""",
    "open scope": """() => {
      const { view } = mobileprep;
      const closed = view.shown.found.filter((p) => p.box.isScope && !p.isOpen);
      closed.sort((a, b) => b.box.children.length - a.box.children.length);
      view.toggle(closed[0].box);
    }""",
    "go to node": """() => {
      const { view } = mobileprep;
      view.reveal(view.graph.tree.leaves[Math.floor(view.graph.count * Math.random())]);
    }""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Times of the report page of a large graph.")
    parser.add_argument("--nodes", type=int, default=7000)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        os.environ["MOBILEPREP_CACHE"] = f"{name}/store"
        browser = driver.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, {args.nodes} nodes, ms")
        for kind, separator in (("with scopes", "/"), ("without scopes", "_")):
            page = _built(Path(name) / separator.replace("/", "scopes"), args.nodes, separator)
            print(f"{kind}: page of {page.stat().st_size / 1e6:.2f} MB")
            for act, times in _times(browser, page).items():
                print(f"  {act:<12} {statistics.median(times):8.1f}  (most {max(times):.1f})")
        browser.close()


def _built(folder: Path, nodes: int, separator: str) -> Path:
    folder.mkdir()
    graph, output = _graph(nodes, separator)
    write_graph(folder / "graph.pb", graph)
    (folder / "recipe.yaml").write_text(_RECIPE.replace("OUTPUT", output))
    build(folder / "recipe.yaml", folder / "out", warn=lambda _: None)
    return folder / "out" / "large" / "report.html"


def _graph(count: int, separator: str) -> tuple[Graph, str]:
    """Create layers of five nodes, eight per block, ten blocks per stage; some add their input."""
    nodes = [
        Node(
            "x",
            "Placeholder",
            attrs={"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((1, 8))},
        )
    ]
    source = "x"
    for number in range((count - 1) // 5):
        block, stage = number // 8, number // 80
        scope = separator.join((f"stage{stage}", f"block{block}", f"layer{number}"))
        nodes += _layer(f"{scope}{separator}", source, number)
        source = nodes[-1].name
    return Graph(nodes), source


def _layer(scope: str, source: str, number: int) -> Iterator[Node]:
    weights = np.random.default_rng(number).normal(size=(8, 8)).astype(np.float32)
    kind = {"T": attr.dtype(DType.FLOAT)}

    def op(name: str, op: str, *inputs: str) -> Node:
        return Node(scope + name, op, tuple(parse_ref(i) for i in inputs), attrs=kind)

    yield constant(f"{scope}weights", Tensor.of(weights))
    yield constant(f"{scope}bias", Tensor.of(weights[0]))
    yield op("product", "MatMul", source, f"{scope}weights")
    yield op("sum", "BiasAdd", f"{scope}product", f"{scope}bias")
    yield (
        op("relu", "Relu", f"{scope}sum")
        if number % 3
        else op("plus", "AddV2", f"{scope}sum", source)
    )


def _times(browser: Any, path: Path) -> dict[str, list[float]]:  # noqa: ANN401 - playwright's
    found: dict[str, list[float]] = {"open": [], **{act: [] for act in _ACTS}}
    for _ in range(_RUNS):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        started = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready] g.box")
        page.evaluate(f"async () => {{ {_FRAME} }}")
        found["open"].append((time.perf_counter() - started) * 1e3)
        for act, code in _ACTS.items():
            found[act] += [page.evaluate(_ANSWER, f"({code})") for _ in range(_RUNS)]
        context.close()
    return found


if __name__ == "__main__":
    main()

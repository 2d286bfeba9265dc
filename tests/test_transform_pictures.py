"""The images of docs/reference/transforms.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

from mobileprep.transforms.base import transform_names
from tools import make_transform_images as images

COMMAND = "python tools/make_transform_images.py && python tools/make_schemas.py"
# They only reorder nodes, so an image would show no difference.
WITHOUT = {"sort_by_execution_order"}
SOURCES = images.sources()
for_each = pytest.mark.parametrize("name", SOURCES)


def parts_of(svg: str) -> tuple[Counter[str], Counter[str]]:
    """Counts of labels and elements; their positions depend on the fonts."""
    labels = re.findall(r"<text[^>]*>([^<]*)<", svg)
    return Counter(labels), Counter(re.findall(r"<(\w+)", svg))


def graphviz_version() -> str:
    if shutil.which("dot") is None:
        return ""
    output = subprocess.run(["dot", "-V"], capture_output=True, text=True, check=True).stderr
    match = re.search(r"version (\S+)", output)
    return match[1] if match else ""


def test_each_transform_has_an_image():
    assert SOURCES.keys() == set(transform_names()) - WITHOUT
    assert {path.stem for path in images.IMAGES.iterdir()} == SOURCES.keys(), COMMAND


@for_each
def test_image_has_the_digest_of_its_source(name):
    text = (images.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    svg = ET.fromstring(text)
    assert svg.get("data-source") == images.digest(SOURCES[name]), COMMAND


@for_each
def test_image_matches_the_graphviz_output(name):
    version = graphviz_version()
    if version != images.GRAPHVIZ:
        pytest.skip(f"needs Graphviz {images.GRAPHVIZ}, found {version or 'none'}")
    committed = (images.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert parts_of(committed) == parts_of(images.drawing(SOURCES[name])), COMMAND


@for_each
def test_each_side_has_few_nodes_and_colored_differences(name):
    sides = re.findall(r'label="(?:before|after): (\d+) of \d+ nodes"', SOURCES[name])
    assert len(sides) == 2
    assert 0 < max(map(int, sides)) <= 14
    assert re.search(r'fillcolor="#(f9c6c9|cfe8b9|f2e2ba)"', SOURCES[name])


def test_images_are_small():
    assert sum(path.stat().st_size for path in images.IMAGES.iterdir()) < 400_000

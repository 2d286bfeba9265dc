"""The pictures of docs/reference/transforms.md: what each transform does to its example."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from mobileprep.transforms.base import transform_names

ROOT = Path(__file__).parents[1]
COMMAND = "python tools/make_transform_pictures.py && python tools/make_schemas.py"
# They change the order of nodes, or what is no node.
WITHOUT = {"sort_by_execution_order"}


def _tool() -> ModuleType:
    path = ROOT / "tools" / "make_transform_pictures.py"
    spec = importlib.util.spec_from_file_location("make_transform_pictures", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
SOURCES = TOOL.sources()
for_each = pytest.mark.parametrize("name", SOURCES)


def parts_of(picture: str) -> tuple[Counter[str], Counter[str]]:
    """The texts and the kinds of elements: where they stand depends on the fonts."""
    texts = re.findall(r"<text[^>]*>([^<]*)<", picture)
    return Counter(texts), Counter(re.findall(r"<(\w+)", picture))


def graphviz_version() -> str:
    if shutil.which("dot") is None:
        return ""
    told = subprocess.run(["dot", "-V"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"version (\S+)", told)
    return found[1] if found else ""


def test_each_that_changes_its_example_has_a_picture():
    assert SOURCES.keys() == set(transform_names()) - WITHOUT
    assert {path.stem for path in TOOL.PICTURES.iterdir()} == SOURCES.keys(), COMMAND


@for_each
def test_a_picture_is_made_of_what_the_transform_does(name):
    text = (TOOL.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    picture = ET.fromstring(text)
    assert picture.get("data-source") == TOOL.digest(SOURCES[name]), COMMAND


@for_each
def test_a_picture_is_what_graphviz_draws(name):
    version = graphviz_version()
    if version != TOOL.GRAPHVIZ:
        pytest.skip(f"Graphviz {TOOL.GRAPHVIZ} drew the pictures, here is {version or 'none'}")
    kept = (TOOL.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert parts_of(kept) == parts_of(TOOL.picture(SOURCES[name])), COMMAND


@for_each
def test_a_side_has_few_nodes_and_what_differs_in_color(name):
    sides = re.findall(r'label="(?:before|after): (\d+) of \d+ nodes"', SOURCES[name])
    assert len(sides) == 2
    assert 0 < max(map(int, sides)) <= 14
    assert re.search(r'fillcolor="#(f9c6c9|cfe8b9|f2e2ba)"', SOURCES[name])


def test_they_are_small():
    assert sum(path.stat().st_size for path in TOOL.PICTURES.iterdir()) < 400_000

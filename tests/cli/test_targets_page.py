"""The commands of ``docs/targets.md``, run in order, and their answers compared."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph, Versions
from mobileprep.transforms.downgrade.replacements import REPLACEMENTS
from tests.cli.pages import DOCS, check_examples
from tests.transforms.graphs import const, node, placeholder

PAGE = DOCS / "targets.md"


def newer() -> Graph:
    """A graph with something of each kind that an older, smaller build lacks."""
    return Graph(
        [
            placeholder(), placeholder("jpeg", DType.STRING), placeholder("a", DType.INT32),
            const("k", 0, np.int32), const("size", -1, np.int32), const("padding", 0.0),
            node("pixels", "DecodeJpeg", "jpeg", T=None),
            node("pool", "MaxPool", "x", explicit_paddings=(), ksize=(1, 2, 2, 1),
                 strides=(1, 2, 2, 1), padding="SAME"),
            node("row", "Identity", "x"),
            node("matrix", "MatrixDiagV3", "row k size size padding", align="RIGHT_LEFT"),
            node("same", "Equal", "a a", T=DType.INT32),
        ],
        versions=Versions(1200, 12),
    )  # fmt: skip


@pytest.fixture
def _files(built: Path) -> None:
    """The files that the page names."""
    assert built.is_file()
    write_graph(Path("newer.pb"), newer())
    recipe = os.path.relpath(built)
    budget = "targets:\n  phone: {budget: {flops: 50 KFLOP}}\n"
    Path("limits.yaml").write_text(f"version: 1\nextends: {recipe}\n{budget}")
    recipe_text = """\
version: 1
name: NAME
source: {frozen: NAME.pb}
inputs: {x: {}}
outputs: [OUTPUT]
transforms: [strip_unused_nodes]
targets:
  phone: {platform: android, registration: {tensorflow: ["1.15"]}}
"""
    pool = newer().by_name["pool"]
    write_graph(Path("pool.pb"), Graph([placeholder(), pool], versions=Versions(1200, 12)))
    Path("pool.yaml").write_text(recipe_text.replace("NAME", "pool").replace("OUTPUT", "pool"))
    custom = node("y", "FancyNewOp", "x", T=None)
    write_graph(Path("custom.pb"), Graph([placeholder(), custom]))
    (declared,) = re.findall(r"```yaml\n(ops:.*?)```", PAGE.read_text(), re.DOTALL)
    text = recipe_text.replace("NAME", "custom").replace("OUTPUT", "y") + declared
    Path("custom.yaml").write_text(text)
    Path("ops").mkdir()
    Path("ops/fancy_new_op.cc").write_text("// REGISTER_OP and REGISTER_KERNEL_BUILDER\n")
    write_graph(Path("log.pb"), Graph([placeholder(), node("out", "Xlog1py", "x x")]))
    weights = const("weights", np.ones((100, 100)))
    dense = [placeholder(), weights, node("out", "MatMul", "x weights")]
    write_graph(Path("dense.pb"), Graph(dense))
    scaled = [placeholder(), weights, node("scaled", "Mul", "weights weights")]
    write_graph(Path("scaled.pb"), Graph([*scaled, node("out", "MatMul", "x scaled")]))


@pytest.mark.slow
@pytest.mark.usefixtures("_files")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(PAGE, tmp_path / "bin")


def test_the_page_names_every_replacement() -> None:
    text = PAGE.read_text()
    assert all(f"`{op}`" in text for op in REPLACEMENTS)

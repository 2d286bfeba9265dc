"""Keys of the recipe source change the built model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.graph.files import read_graph, write_graph
from tests.cli.conftest import Run
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import FLOAT, const, node, ref_variable, source

RECIPE = """\
version: 1
name: net
source: {graph: graph.pb, checkpoint: ckpt, saver: saver.pb}
outputs: [w/read]
targets: {p: {platform: android}}
"""


def restoring(prefix: str, key: str) -> list:
    """Nodes that restore the variable ``w`` from a tensor with another name."""
    names, restore, assign = f"{prefix}/names", f"{prefix}/RestoreV2", f"{prefix}/assign"
    return [
        const(names, np.array([key.encode()], dtype=object)),
        node(restore, "RestoreV2", "file", names, "slices"),
        node(assign, "Assign", "w", restore, T=FLOAT),
        node(f"{prefix}/restore_all", "NoOp", f"^{assign}"),
    ]


@pytest.fixture
def recipe(workdir: Path) -> Path:
    """A graph with two savers that restore the variable from different tensors."""
    nodes = [
        const("file", np.array(b"model", dtype=object)),
        const("slices", np.array([b""], dtype=object)),
        ref_variable("w", 2),
        *restoring("old", "first"),
        *restoring("new", "second"),
    ]
    write_graph(workdir / "graph.pb", source(nodes).graph)
    values = {"first": np.float32([1, 2]), "second": np.float32([3, 4])}
    write_bundle(workdir / "ckpt", values)
    Path("recipe.yaml").write_text(RECIPE)
    return Path("recipe.yaml")


def test_saver_selects_the_restored_tensors(recipe: Path, run: Run) -> None:
    values_of_w = []
    for prefix in ("old", "new"):
        saver = pb.SaverDef(restore_op_name=f"{prefix}/restore_all")
        Path("saver.pb").write_bytes(saver.SerializeToString())
        result = run("build", recipe)
        assert result.code == 0, result.err
        graph = read_graph(Path("out/net/p/net.pb"))
        values_of_w.append(graph["w"].attr_tensor("value").array().tolist())
    assert values_of_w == [[1, 2], [3, 4]]

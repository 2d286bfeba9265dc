"""Sources of a recipe: what each of their keys changes in the model that is built."""

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
    """Ops that restore the variable ``w`` from a tensor of another name."""
    names, restore, assign = f"{prefix}/names", f"{prefix}/RestoreV2", f"{prefix}/assign"
    return [
        const(names, np.array([key.encode()], dtype=object)),
        node(restore, "RestoreV2", "file", names, "slices"),
        node(assign, "Assign", "w", restore, T=FLOAT),
        node(f"{prefix}/restore_all", "NoOp", f"^{assign}"),
    ]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph with two savers, each of which knows the variable under another name."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    nodes = [
        const("file", np.array(b"model", dtype=object)),
        const("slices", np.array([b""], dtype=object)),
        ref_variable("w", 2),
        *restoring("old", "first"),
        *restoring("new", "second"),
    ]
    write_graph(tmp_path / "graph.pb", source(nodes).graph)
    values = {"first": np.float32([1, 2]), "second": np.float32([3, 4])}
    write_bundle(tmp_path / "ckpt", values)
    Path("recipe.yaml").write_text(RECIPE)
    return Path("recipe.yaml")


def test_the_saver_tells_the_names_and_another_one_is_noticed(recipe: Path, run: Run) -> None:
    found = []
    for prefix in ("old", "new"):
        saver = pb.SaverDef(restore_op_name=f"{prefix}/restore_all")
        Path("saver.pb").write_bytes(saver.SerializeToString())
        told = run("build", recipe)
        assert told.code == 0, told.err
        graph = read_graph(Path("out/net/p/net.pb"))
        found.append(graph["w"].attr_tensor("value").array().tolist())
    assert found == [[1, 2], [3, 4]]

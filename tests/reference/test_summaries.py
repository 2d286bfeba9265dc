"""``summarize`` reports the counts and the interface of real models."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from mobileprep import summarize
from mobileprep.formats.protos import graph_pb2, saved_model_pb2
from mobileprep.graph.refs import parse_ref
from mobileprep.inspection.original_lines import summary_lines
from tests.reference.golden import read_golden
from tests.reference.test_init import SOURCES

pytestmark = pytest.mark.reference

# Checkpoints and directories of several files cannot be loaded by a single path.
MODELS = [
    source
    for source in SOURCES
    if source.endswith((".pb", ".meta"))
    or source.startswith(("tf-serving-testdata/saved", "tf-serving-testdata/matrix"))
]


def graph_def(path: Path) -> graph_pb2.GraphDef:
    """The GraphDef of a file, read by protobuf alone."""
    if path.is_dir():
        path = next(path.rglob("saved_model.pb"))
    data = path.read_bytes()
    if path.name == "saved_model.pb":
        return saved_model_pb2.SavedModel.FromString(data).meta_graphs[0].graph_def
    if path.suffix == ".meta":
        return saved_model_pb2.MetaGraphDef.FromString(data).graph_def
    return graph_pb2.GraphDef.FromString(data)


def model_at(path: Path) -> Path:
    """The model in a directory."""
    is_above = path.is_dir() and not any(path.glob("saved_model.pb*"))
    return next(path.rglob("saved_model.pb")).parent if is_above else path


@pytest.mark.parametrize("source", MODELS)
def test_counts_match_the_graph(models: Path, source: str) -> None:
    path = model_at(models / source)
    proto = graph_def(path)
    summary = summarize(path).graph
    consumed = {i.lstrip("^").split(":")[0] for n in proto.node for i in n.input}
    kinds = ("Variable", "VariableV2")
    ops = Counter(n.op for n in proto.node)
    ops.update(n.op for f in proto.library.function for n in f.node_def)
    idle = ("Const", "Assign", "NoOp", "Placeholder")
    assert [i.name for i in summary.inputs] == [n.name for n in proto.node if n.op == "Placeholder"]
    assert [v.name for v in summary.variables] == [n.name for n in proto.node if n.op in kinds]
    assert [o.name for o in summary.outputs] == [
        n.name for n in proto.node if n.name not in consumed and n.op not in idle
    ]
    assert summary.ops == ops
    assert list(summary.ops.values()) == sorted(ops.values(), reverse=True)
    assert summary.const_parameters == sum(
        math.prod(d.size for d in n.attr["value"].tensor.tensor_shape.dim)
        for n in proto.node
        if n.op == "Const"
    )
    assert summary.control_edges == sum(i.startswith("^") for n in proto.node for i in n.input)
    assert summary.devices == Counter(n.device for n in proto.node if n.device)
    text = "\n".join(summary_lines(summary, str(path)))
    assert f"Found {summary.const_parameters} (" in text


@pytest.mark.parametrize("source", MODELS)
def test_likely_interface_includes_the_actual_one(models: Path, source: str) -> None:
    path = model_at(models / source)
    golden = read_golden(models / source.split("/")[0] / f"{SOURCES[source]}.npz")
    summary = summarize(path)
    fed, fetched = ({parse_ref(name) for name in arrays} for arrays in golden)
    assert {r.node for r in fed} <= {parse_ref(i.name).node for i in summary.inputs}
    # Some recorded outputs belong to another graph, or have other names in their files.
    graph = graph_def(path)
    present = {r for r in fetched if r.node in {n.name for n in graph.node}}
    assert present or source.startswith(("made-qat", "sugyan"))
    assert present <= {parse_ref(o.name) for o in summary.outputs}
    assert summary.reasons

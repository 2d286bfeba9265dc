"""Frozen graphs compute the same outputs as their models in TensorFlow."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import MobileprepError, UnsupportedError
from mobileprep.formats.checkpoint import open_checkpoint
from mobileprep.formats.protos import saved_model_pb2
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions, FreezeResult
from mobileprep.freezing.source import load_source
from mobileprep.freezing.trace import VARIABLE_OPS
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import NEWEST, op_def
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.functions.inline import FUNCTIONAL
from mobileprep.runtime.interpreter import Interpreter
from tests.freezing.damage import KINDS, check_damaged
from tests.freezing.test_source import MODEL, W, meta
from tests.reference.golden import read_golden
from tests.reference.newest import session, tensor_name
from tests.reference.original import differences
from tests.reference.real_graphs import model_parts
from tests.reference.saved_models import ZOO, Saved

pytestmark = pytest.mark.reference

TOLERANCE = 1e-5


def run(tf: ModuleType, result: FreezeResult, feeds: dict[str, Any]) -> list[Any]:
    """Run a frozen graph in TensorFlow, after its tables are initialized."""
    paths = {a.tensor: np.array(str(a.path).encode(), dtype=object) for a in result.assets}
    with session(tf, result.graph) as opened:
        for name in result.init_ops:
            opened.run(name, paths)
        return opened.run([tensor_name(name) for name in result.outputs], feeds)


def assert_close(got: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
        else:
            np.testing.assert_array_equal(ours, theirs)


def frozen(saved: Saved, **options: Any) -> FreezeResult:
    chosen = {"outputs": saved.outputs, **saved.options, **options}
    return freeze(load_source(**saved.source), FreezeOptions(**chosen))


def ops(graph: Graph) -> set[str]:
    inside = {n.op for f in graph.library.functions.values() for n in f.nodes}
    return {n.op for n in graph} | inside


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("control_flow", ["keep", "lower"])
def test_outputs_are_preserved(
    name: str, control_flow: str, tf: ModuleType, tmp_path: Path
) -> None:
    saved = ZOO[name](tf, tmp_path)
    result = frozen(saved, control_flow=control_flow)
    assert not ops(result.graph) & VARIABLE_OPS
    if control_flow == "lower":
        assert not ops(result.graph) & FUNCTIONAL.keys()
    assert_close(run(tf, result, saved.feeds), saved.expected)
    assert_close_in_our_interpreter(result, saved)


def assert_close_in_our_interpreter(result: FreezeResult, saved: Saved) -> None:
    if result.init_ops:
        return  # its tables are initialized in a TensorFlow session
    try:
        got = Interpreter(result.graph).run(result.outputs, saved.feeds)
    except UnsupportedError:
        return  # the interpreter does not support an op of the model, such as a table
    assert_close(got, saved.expected)


DIGITS = Path(__file__).resolve().parents[2] / "recipes" / "digits" / "model"


def test_digits_graph_matches_freeze_graph(tf: ModuleType, tmp_path: Path) -> None:
    from tensorflow.python.tools import freeze_graph

    result = freeze(
        load_source(graph=DIGITS / "graph.pbtxt", checkpoint=DIGITS / "model.ckpt-1000"),
        FreezeOptions(("probabilities",)),
    )
    saver = tmp_path / "saver.pbtxt"
    saver.write_text(
        'filename_tensor_name: "save/Const:0" restore_op_name: "save/restore_all" '
        'save_tensor_name: "save/Identity:0" sharded: true version: V2'
    )
    with tf.Graph().as_default():
        freeze_graph.freeze_graph(
            str(DIGITS / "graph.pbtxt"),
            str(saver),
            False,
            str(DIGITS / "model.ckpt-1000"),
            "probabilities",
            "",
            "",
            str(tmp_path / "theirs.pb"),
            True,
            "",
        )
    theirs = _without_defaults_added(read_graph(tmp_path / "theirs.pb"), result.graph)
    assert differences(result.graph, theirs, ulp=0) == []


def _without_defaults_added(theirs: Graph, ours: Graph) -> Graph:
    """Remove default attributes, which TensorFlow adds when it imports a graph."""

    def without_defaults(node: Node) -> Node:
        definition = op_def(node.op, NEWEST)
        own = ours[node.name].attrs if node.name in ours else node.attrs
        defaults = {} if definition is None else {a.name: a.default for a in definition.attrs}
        attrs = {k: v for k, v in node.attrs.items() if k in own or defaults.get(k) != v}
        return replace(node, attrs=attrs)

    return theirs.with_nodes([without_defaults(node) for node in theirs])


def source_of(folder: Path, part: dict[str, Any]) -> dict[str, Path]:
    if "dir" in part:
        return {"saved_model": folder / part["dir"]}
    if "graph" in part:
        return {"graph": folder / part["graph"], "checkpoint": folder / part["checkpoint"]}
    if "checkpoint" in part:
        return {"meta_graph": folder / part["file"], "checkpoint": folder / part["checkpoint"]}
    return {"graph": folder / part["file"]}


REFUSED = {
    # Its activation ranges change with each batch; only the evaluation graph can be frozen.
    "made-qat-mnist-tf115 golden_train.ckpt-1260.npz": "has to stay a variable",
    # The checkpoint has the names of graph_regression.pb.
    "sugyan-mnist-v1ckpt golden_regression.npz": "the nearest is 'regression/W'",
    "sugyan-mnist-v1ckpt golden_v2_regression.npz": "the nearest is 'regression/W'",
}


def test_real_models(tf: ModuleType, models: Path) -> None:
    count = 0
    for folder, part in model_parts(models):
        if not part.get("golden"):
            continue
        name = f"{folder.name} {part['golden']}"
        golden = read_golden(folder / part["golden"])
        feeds = {tensor_name(name): array for name, array in golden.feeds.items()}
        options = FreezeOptions(tuple(golden.outputs))
        if name in REFUSED:
            with pytest.raises(MobileprepError, match=REFUSED[name]):
                freeze(load_source(**source_of(folder, part)), options)
            continue
        result = freeze(load_source(**source_of(folder, part)), options)
        got = run(tf, result, feeds)
        theirs = as_saved(tf, folder, part, result.outputs, feeds)
        expected = theirs or list(golden.outputs.values())
        for ours, reference in zip(got, expected, strict=True):
            is_float = reference.dtype.kind == "f"
            scale = max(1.0, float(np.abs(reference).max())) if is_float else 1.0
            np.testing.assert_allclose(ours, reference, atol=TOLERANCE * scale, err_msg=name)
        count += 1
    assert count >= 20


def as_saved(
    tf: ModuleType, folder: Path, part: dict[str, Any], outputs: tuple[str, ...], feeds: Any
) -> list[Any] | None:
    """Run the model itself in TensorFlow, if it can still load it."""
    v1 = tf.compat.v1
    if "checkpoint" in part:
        return None
    fetches = [tensor_name(name) for name in outputs]
    with tf.Graph().as_default(), v1.Session() as session:
        if "dir" in part:
            v1.saved_model.load(session, part["tags"], str(folder / part["dir"]))
        else:
            definition = v1.GraphDef.FromString((folder / part["file"]).read_bytes())
            tf.import_graph_def(definition, name="")
        return session.run(fetches, feeds)


@pytest.mark.parametrize(
    ("graph", "checkpoint", "output"),
    [
        ("sugyan-mnist-v1ckpt/graph_regression.pb", "sugyan-mnist-v1ckpt/regression.ckpt", "y"),
        ("sugyan-mnist-v1ckpt/graph_regression.pb", "sugyan-mnist-v1ckpt/v2/regression.ckpt", "y"),
        ("made-qat-mnist-tf115/eval_graph.pb", "made-qat-mnist-tf115/train.ckpt-1260", "output"),
        ("made-qat-mnist-tf115/eval_graph.pbtxt", "made-qat-mnist-tf115", "output"),
    ],
)
def test_real_graphs_with_checkpoints(
    graph: str, checkpoint: str, output: str, tf: ModuleType, models: Path
) -> None:
    golden = {
        "regression.ckpt": "golden_regression.npz",
        "v2/regression.ckpt": "golden_v2_regression.npz",
    }
    key = checkpoint.partition("/")[2]
    file = golden.get(key, "golden_frozen_eval_graph.npz")
    feeds, outputs = read_golden(models / graph.split("/")[0] / file)
    source = load_source(graph=models / graph, checkpoint=models / checkpoint)
    name = "regression/y" if output == "y" else output
    result = freeze(source, FreezeOptions((name,)))
    (output,) = run(tf, result, {f"{name}:0": array for name, array in feeds.items()})
    np.testing.assert_allclose(output, *outputs.values(), atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_models_fail_with_documented_errors(kind: str, tmp_path: Path) -> None:
    check_damaged(kind, MODEL.graph, meta(), {"w": W}, "y", tmp_path, turns=2_000)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_training_graph_fails_with_documented_errors(kind: str, tmp_path: Path) -> None:
    graph = read_graph(DIGITS / "graph.pbtxt")
    whole = saved_model_pb2.MetaGraphDef()
    whole.meta_info_def.tags.append("serve")
    whole.graph_def.MergeFromString(graph_to_bytes(graph))
    with open_checkpoint(DIGITS / "model.ckpt-1000") as checkpoint:
        tensors = {name: checkpoint.read(name) for name in checkpoint.names()}
    check_damaged(kind, graph, whole, tensors, "probabilities", tmp_path, turns=100)

"""Bugs of the original tool that are fixed here, checked by running both results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from tests.reference.conftest import Original
from tests.reference.golden import read_golden
from tests.reference.newest import run_newest, session
from tests.reference.original import OriginalError, run_ours
from tests.transforms.graphs import const, node, placeholder

pytestmark = pytest.mark.reference


@dataclass(frozen=True)
class Bug:
    """A chain that the original gets wrong, and the correct output."""

    chain: str
    nodes: tuple[Node, ...]
    expected: Array
    feeds: Mapping[str, Array]


X = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], np.float32)
INTEGERS = X.astype(np.int32)
# Whole steps of their range.
STEPS = np.array([[0.0, 51.0, 255.0]], np.float32)
BY_B = AttrValue("list(string)", (b"loc:@b",))

COLOCATED = (
    placeholder(),
    node("a", "Neg", "x"),
    node("b", "Neg", "x"),
    node("c", "Abs", "x", _class=BY_B),
    node("sum", "Sub", "c b"),
    node("out", "Add", "sum a"),
)
NEEDLESS = (placeholder(), node("b", "Neg", "x"), node("out", "Abs", "x", _class=BY_B))
WHOLE = (
    placeholder(),
    node("whole", "Cast", "x", T=None, SrcT=DType.FLOAT, DstT=DType.INT32),
    node("out", "Neg", "whole", T=DType.INT32),
)
HALVES = (
    placeholder(),
    const("axis", 0, np.int32),
    node("halves", "Split", "axis x", num_split=2),
    node("out", "Neg", "halves:1"),
)
CONTROL_INPUT = (
    const("c", 1.0),
    node("x", "Placeholder", "^c", T=None, dtype=DType.FLOAT),
    node("out", "Neg", "x"),
)
BRANCHES = (
    placeholder(),
    const("yes", True, bool),
    node("switch", "Switch", "yes yes", T=DType.BOOL),
    node("then", "Identity", "switch:1", T=DType.BOOL),
    node("else", "Identity", "switch", T=DType.BOOL),
    const("two", np.full(16, 2.0), inputs="^then"),
    const("three", np.full(16, 3.0), inputs="^else"),
    node("merged", "Merge", "three two", N=2),
    const("first", [0], np.int32),
    node(
        "picked",
        "GatherV2",
        "merged first axis",
        T=None,
        Tparams=DType.FLOAT,
        Tindices=DType.INT32,
        Taxis=DType.INT32,
    ),
    const("axis", 0, np.int32),
    node("out", "Mul", "picked x"),
)
ZEROS = (
    placeholder(),
    const("zeros", np.zeros(1024)),
    const("axis", [0], np.int32),
    node("total", "Sum", "zeros axis", Tidx=DType.INT32, keep_dims=True),
    node("out", "Add", "x total"),
)
USED_NAME = (
    placeholder(),
    const("w_quantized_min", 1.0),
    const("w", np.full((1, 3), 2.0)),
    node("sum", "Add", "x w_quantized_min"),
    node("out", "Mul", "sum w"),
)
FOLDED_NAME = (
    placeholder(),
    const("k", [3.0]),
    node("square", "Square", "k"),
    const("square/_0__cf__0", [5.0]),
    node("product", "Mul", "x square"),
    node("out", "Add", "product square/_0__cf__0"),
)
EIGHTBIT_NAME = (
    placeholder(),
    node("relu", "Relu", "x"),
    node("relu/eightbit", "Neg", "relu"),
    node("out", "Abs", "relu/eightbit"),
)
TWO_WAYS = (
    placeholder(),
    const("no", False, bool),
    node("switch", "Switch", "x no"),
    node("then", "Neg", "switch:1"),
    node("else", "Identity", "switch"),
    node("out", "Merge", "else then", N=2),
)
TURNED = (
    placeholder(),
    node("a", "MatMul", "x x", transpose_a=True),
    node("b", "MatMul", "x x", transpose_a=True, transpose_b=False),
    node("out", "Sub", "a b"),
)
TOP = (
    placeholder(),
    const("k", 2, np.int32),
    node("top", "TopKV2", "x k"),
    node("out", "Neg", "top"),
)
SECOND_INPUT = (
    placeholder(),
    const("c", 1.0),
    node("a", "Sub", "x c"),
    node("out", "Add", "a c"),
)


def _column(ids: DType, *more: Node) -> tuple[Node, ...]:
    kinds = {"T": None, "Tparams": DType.FLOAT, "Tindices": ids}
    return (
        placeholder("x", ids),
        const("w", [[5.0], [0.0], [7.0]]),
        node("w/read", "Identity", "w"),
        node("picked", "Gather", "w/read x", **kinds),
        *more,
    )


IDS = np.array([0, 2, 2])
AGAIN = node("again", "Gather", "w/read x", T=None, Tparams=DType.FLOAT, Tindices=DType.INT64)
PICKED = np.array([[5.0], [7.0], [7.0]], np.float32)

BUGS = {
    "obfuscated colocation": Bug("obfuscate_names", COLOCATED, X, {"x": X}),
    "merged colocation": Bug("merge_duplicate_nodes", COLOCATED, X, {"x": X}),
    "removed colocation": Bug("remove_nodes(op=Neg)", NEEDLESS, X, {"x": X}),
    "stripped colocation": Bug("strip_unused_nodes", NEEDLESS, X, {"x": X}),
    "one type for all placeholders": Bug(
        'strip_unused_nodes(type=float, shape="2,3")', WHOLE, -INTEGERS, {"whole": INTEGERS}
    ),
    "a later output that is fed": Bug(
        'strip_unused_nodes(shape="1,3")', HALVES, -X[1:], {"halves:1": X[1:]}
    ),
    "a placeholder with a control input": Bug("strip_unused_nodes", CONTROL_INPUT, -X, {"x": X}),
    "branches, Identity removed": Bug("remove_nodes(op=Identity)", BRANCHES, 2 * X, {"x": X}),
    "branches, control inputs removed": Bug(
        "remove_control_dependencies", BRANCHES, 2 * X, {"x": X}
    ),
    "branches, weights quantized": Bug(
        "quantize_weights(minimum_size=16)", BRANCHES, 2 * X, {"x": X}
    ),
    "branches, weights rounded": Bug("round_weights(num_steps=100000)", BRANCHES, 2 * X, {"x": X}),
    "a range of zeros": Bug("quantize_weights", ZEROS, X, {"x": X}),
    "a used name": Bug("quantize_weights(minimum_size=3)", USED_NAME, (X + 1) * 2, {"x": X}),
    "a name of a folded constant": Bug("fold_constants", FOLDED_NAME, 9 * X + 5, {"x": X}),
    "a name of an 8-bit node": Bug("quantize_nodes", EIGHTBIT_NAME, STEPS, {"x": STEPS}),
    "a Print of two branches": Bug("insert_logging(op=Switch)", TWO_WAYS, X, {"x": X}),
    "types of unused outputs": Bug(
        "insert_logging(op=TopKV2)", TOP, -np.sort(X)[:, :0:-1], {"x": X}
    ),
    "a second input with other consumers": Bug(
        "remove_nodes(op=Sub, max_inputs=2)", SECOND_INPUT, X + 1, {"x": X}
    ),
    "an int32 lookup": Bug(
        "sparsify_gather",
        _column(DType.INT32, node("out", "Neg", "picked")),
        -PICKED,
        {"x": IDS.astype(np.int32)},
    ),
    "two lookups in one column": Bug(
        "sparsify_gather",
        _column(DType.INT64, AGAIN, node("out", "Add", "picked again")),
        2 * PICKED,
        {"x": IDS.astype(np.int64)},
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_original_is_wrong(tf: ModuleType, theirs: Original, name: str) -> None:
    bug = BUGS[name]
    try:
        graph = theirs(Graph(bug.nodes), bug.chain, ",".join(bug.feeds))
        output = value(tf, graph, bug.feeds)
    except (OriginalError, ValueError, tf.errors.OpError):
        return
    assert not np.allclose(output, bug.expected)


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("name", BUGS)
def test_both_modes_are_correct(tf: ModuleType, name: str, tf115: bool) -> None:
    bug = BUGS[name]
    graph = run_ours(Graph(bug.nodes), ",".join(bug.feeds), "out", bug.chain, tf115=tf115)
    np.testing.assert_allclose(value(tf, graph, bug.feeds), bug.expected, rtol=1e-2, atol=1e-6)


def value(tf: ModuleType, graph: Graph, feeds: Mapping[str, Array]) -> Any:
    """Run a graph in TensorFlow, after its hash tables are initialized.

    A tensor that was fed is now the only output of a placeholder.
    """
    placeholders = {f"{parse_ref(name).node}:0": array for name, array in feeds.items()}
    with session(tf, graph) as opened:
        if "group_deps" in graph:
            opened.run("group_deps")
        return opened.run("out:0", placeholders)


LOOPS = {
    "mtcnn/mtcnn.pb": "mtcnn/golden_mtcnn.npz",
    "arm-kws/Basic_LSTM_S.pb": "arm-kws/golden_Basic_LSTM_S.npz",
}


@pytest.mark.parametrize("chain", ["remove_nodes(op=Identity)", "remove_control_dependencies"])
@pytest.mark.parametrize("path", LOOPS)
def test_models_with_branches_and_loops(
    tf: ModuleType, models: Path, path: str, chain: str
) -> None:
    feeds, outputs = read_golden(models / LOOPS[path])
    graph = read_graph(models / path)
    for tf115 in (True, False):
        after = run_ours(graph, ",".join(feeds), ",".join(outputs), chain, tf115=tf115)
        assert len(after) < len(graph) or "Identity" not in chain
        results = run_newest(tf, after, outputs, feeds)
        for array, expected in zip(results, outputs.values(), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)

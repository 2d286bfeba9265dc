"""Inferred shapes match TensorFlow's on real models, networks, and random nodes of each op."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import op_def, output_types, signature_of
from mobileprep.graph.refs import Ref
from mobileprep.ops.shape_function import shape_fn_names
from mobileprep.ops.shape_inference import infer_shapes
from tests.reference.networks import NETWORKS, cached_network
from tests.reference.newest import graph_def
from tests.reference.original import differences, known_to_original, run_original, run_ours
from tests.reference.random_nodes import NODE, RandomNodes, Ranks
from tests.reference.real_graphs import GRAPHS

pytestmark = pytest.mark.reference

MODELS = [
    *GRAPHS,
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb",
    "sugyan-mnist-v1ckpt/graph_regression.pb",
]


@pytest.fixture(params=[*MODELS, *NETWORKS])
def graph(request: pytest.FixtureRequest) -> Graph:
    """The graph of a real model, or of a Keras network."""
    if request.param in NETWORKS:
        return read_graph(cached_network(request.param).path)
    models: Path = request.getfixturevalue("models")
    return read_graph(models / request.param)


def tensorflows_shapes(tf: ModuleType, graph: Graph) -> Mapping[str, list[TensorShape]]:
    """The shapes that TensorFlow infers when it imports a graph."""
    proto = graph_def(tf, graph)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(proto, name="")
        return {op.name: [_shape(t.shape) for t in op.outputs] for op in imported.get_operations()}


def _shape(shape: object) -> TensorShape:
    if shape.rank is None:  # type: ignore[attr-defined]
        return None
    return tuple(-1 if d is None else d for d in shape.as_list())  # type: ignore[attr-defined]


def _is_less_specific(ours: TensorShape, theirs: TensorShape) -> bool:
    """Whether ours lacks a size that TensorFlow infers, or contradicts it."""
    if ours is None or theirs is None:
        return theirs is not None
    return len(ours) != len(theirs) or any(
        t >= 0 and o != t for o, t in zip(ours, theirs, strict=True)
    )


def test_shapes_are_as_specific_as_in_tensorflow(tf: ModuleType, graph: Graph) -> None:
    theirs = tensorflows_shapes(tf, graph)
    ours = infer_shapes(graph)
    wrong = [
        f"{n.name} ({n.op}): {ours[n.name]} here, {theirs[n.name]} there"
        for n in graph
        if len(ours[n.name]) != len(theirs[n.name])
        or any(map(_is_less_specific, ours[n.name], theirs[n.name]))
    ]
    assert wrong == []


def test_shapes_are_as_specific_as_in_the_original(
    original: Path, graph: Graph, tmp_path: Path
) -> None:
    # The original folds the shapes and ranks that it knows.
    graph = _with_queries(known_to_original(graph))
    inputs = ",".join(n.name for n in graph if n.op == "Placeholder")
    theirs = run_original(original, graph, inputs, "queries", "fold_constants", tmp_path)
    ours = run_ours(graph, inputs, "queries", "fold_constants")
    lines = differences(ours, theirs, relative=1e-6, ordered=False)
    assert [line for line in lines if "attribute _class" not in line] == []


def _with_queries(graph: Graph) -> Graph:
    """Add a node that reads the shape and the rank of every tensor."""
    nodes = list(graph.nodes)
    for node in graph:
        definition = signature_of(node)
        for index, dtype in enumerate(output_types(node, definition) if definition else ()):
            if not dtype.is_ref:
                nodes += _queries(Ref(node.name, index), dtype)
    refs = [Ref(n.name) for n in nodes[len(graph) :]]
    nodes.append(Node("fed", "Placeholder", attrs={"dtype": attr.dtype(DType.INT32)}))
    refs.append(Ref("fed"))
    types = AttrValue("list(type)", (DType.INT32,) * len(refs))
    return graph.with_nodes([*nodes, Node("queries", "IdentityN", tuple(refs), attrs={"T": types})])


def _queries(ref: Ref, dtype: DType) -> list[Node]:
    kind = {"T": attr.dtype(dtype)}
    number = {"out_type": attr.dtype(DType.INT32)}
    name = f"queries/{ref.node}/{ref.index}"
    return [
        Node(f"{name}/shape", "Shape", (ref,), attrs={**kind, **number}),
        Node(f"{name}/rank", "Rank", (ref,), attrs=kind),
    ]


# TensorFlow aborts on some constants for these instead of rejecting them.
ABORTS = {"SparseMatMul", "SparseReshape", "SparseTensorDenseMatMul", "SparseToDense", "SplitV"}
# It miscounts dimensions where an axis is unknown and batch_dims negative.
MISCOUNTS = {"GatherV2"}
TRIES = 12
RANK = re.compile(r"must be (?:at least )?rank (\d) but is rank (\d)")


@pytest.mark.parametrize("op", [op for op in shape_fn_names() if op not in ABORTS | MISCOUNTS])
def test_shapes_of_random_nodes_do_not_contradict_tensorflow(tf: ModuleType, op: str) -> None:
    definition = op_def(op)
    if definition is None:
        pytest.skip(f"the newest TensorFlow has no {op}")
    nodes = RandomNodes(definition, seed=11)
    wrong = []
    for _ in range(TRIES):
        graph, theirs = _accepted(tf, nodes)
        if graph is not None and theirs is not None:
            ours = infer_shapes(graph)[NODE]
            if len(ours) != len(theirs) or any(map(contradicts, ours, theirs)):
                wrong.append(f"{list(graph)}: {ours} here, {theirs} there")
    assert wrong == []


def contradicts(ours: TensorShape, theirs: TensorShape) -> bool:
    if ours is None or theirs is None:
        return False
    if len(ours) != len(theirs):
        return True
    return any(o >= 0 and t >= 0 and o != t for o, t in zip(ours, theirs, strict=True))


def _accepted(tf: ModuleType, nodes: RandomNodes) -> tuple[Graph | None, list[TensorShape] | None]:
    """A graph that TensorFlow accepts; each rank error sets the rank of the next attempt."""
    ranks: Ranks = {}
    for _ in range(10):
        graph = nodes.graph(ranks)
        if graph is None:
            break
        try:
            return graph, tensorflows_shapes(tf, graph)[NODE]
        except (ValueError, tf.errors.OpError) as error:
            match = RANK.search(str(error))
            if match:
                _set_rank(graph, ranks, int(match[1]), int(match[2]))
    return None, None


def _set_rank(graph: Graph, ranks: Ranks, required: int, actual: int) -> None:
    shapes = infer_shapes(graph)
    for index, ref in enumerate(graph[NODE].inputs):
        shape = shapes[ref.node][0]
        if shape is not None and len(shape) == actual and ranks.get(index) != required:
            ranks[index] = required
            return

"""Inferred shapes against TensorFlow's, on real models, networks and random nodes of each op."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import op_def, output_types, signature_of
from mobileprep.graph.refs import Ref
from mobileprep.ops.shape_function import shape_fn_names
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from tests.reference.networks import NETWORKS, kept_network
from tests.reference.original import differences, known_to_original, run_original
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
        return read_graph(kept_network(request.param).path)
    models: Path = request.getfixturevalue("models")
    return read_graph(models / request.param)


def tensorflows_shapes(
    tf: ModuleType, graph: Graph, folder: Path
) -> Mapping[str, list[TensorShape]]:
    """The shapes that TensorFlow infers while it imports a graph."""
    path = folder / "graph.pb"
    write_graph(path, graph)
    proto = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(proto, name="")
        return {op.name: [_shape(t.shape) for t in op.outputs] for op in imported.get_operations()}


def _shape(shape: object) -> TensorShape:
    if shape.rank is None:  # type: ignore[attr-defined]
        return None
    return tuple(-1 if d is None else d for d in shape.as_list())  # type: ignore[attr-defined]


def _tells_less(ours: TensorShape, theirs: TensorShape) -> bool:
    """Whether TensorFlow's shape says something that ours does not, or contradicts it."""
    if ours is None or theirs is None:
        return theirs is not None
    return len(ours) != len(theirs) or any(
        t >= 0 and o != t for o, t in zip(ours, theirs, strict=True)
    )


def test_shapes_tell_no_less_than_tensorflows(tf: ModuleType, graph: Graph, tmp_path: Path) -> None:
    theirs = tensorflows_shapes(tf, graph, tmp_path)
    ours = infer_shapes(graph)
    wrong = [
        f"{n.name} ({n.op}): {ours[n.name]} here, {theirs[n.name]} there"
        for n in graph
        if len(ours[n.name]) != len(theirs[n.name])
        or any(map(_tells_less, ours[n.name], theirs[n.name]))
    ]
    assert wrong == []


def test_shapes_known_to_the_original_are_known_here(
    original: Path, graph: Graph, tmp_path: Path
) -> None:
    # The original shows what it knows by folding the shape and the rank of each tensor.
    graph = _asking(known_to_original(graph))
    inputs = tuple(n.name for n in graph if n.op == "Placeholder")
    theirs = run_original(original, graph, ",".join(inputs), "asked", "fold_constants", tmp_path)
    context = Context(inputs, ("asked",), tf115=True)
    ours = run_chain(graph, [ChainStep("fold_constants")], context)[0]
    found = differences(ours, theirs, relative=1e-6, ordered=False)
    assert [line for line in found if "attribute _class" not in line] == []


def _asking(graph: Graph) -> Graph:
    """The graph with a node that takes the shape and the rank of every tensor."""
    nodes = list(graph.nodes)
    for node in graph:
        definition = signature_of(node)
        for index, dtype in enumerate(output_types(node, definition) if definition else ()):
            if not dtype.is_ref:
                nodes += _questions(Ref(node.name, index), dtype)
    asked = [Ref(n.name) for n in nodes[len(graph) :]]
    nodes.append(Node("fed", "Placeholder", attrs={"dtype": attr.dtype(DType.INT32)}))
    asked.append(Ref("fed"))
    types = AttrValue("list(type)", (DType.INT32,) * len(asked))
    return graph.with_nodes([*nodes, Node("asked", "IdentityN", tuple(asked), attrs={"T": types})])


def _questions(ref: Ref, dtype: DType) -> list[Node]:
    kind = {"T": attr.dtype(dtype)}
    number = {"out_type": attr.dtype(DType.INT32)}
    name = f"asked/{ref.node}/{ref.index}"
    return [
        Node(f"{name}/shape", "Shape", (ref,), attrs={**kind, **number}),
        Node(f"{name}/rank", "Rank", (ref,), attrs=kind),
    ]


# TensorFlow aborts on some constants for these instead of refusing them.
ABORTS = {"SparseMatMul", "SparseReshape", "SparseTensorDenseMatMul", "SparseToDense", "SplitV"}
# It miscounts dimensions where an axis is unknown and batch_dims negative.
MISCOUNTS = {"GatherV2"}
TRIES = 12
RANK = re.compile(r"must be (?:at least )?rank (\d) but is rank (\d)")


@pytest.mark.parametrize("op", [op for op in shape_fn_names() if op not in ABORTS | MISCOUNTS])
def test_shapes_of_random_nodes_contradict_no_shape_of_tensorflows(
    tf: ModuleType, op: str, tmp_path: Path
) -> None:
    definition = op_def(op)
    if definition is None:
        pytest.skip(f"the newest TensorFlow has no {op}")
    nodes = RandomNodes(definition, seed=11)
    wrong = []
    for _ in range(TRIES):
        graph, theirs = _accepted(tf, nodes, tmp_path)
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


def _accepted(
    tf: ModuleType, nodes: RandomNodes, folder: Path
) -> tuple[Graph | None, list[TensorShape] | None]:
    """A graph that TensorFlow takes; where it complains of a rank, the next one has that rank."""
    ranks: Ranks = {}
    for _ in range(10):
        graph = nodes.graph(ranks)
        if graph is None:
            break
        try:
            return graph, tensorflows_shapes(tf, graph, folder)[NODE]
        except (ValueError, tf.errors.OpError) as error:
            complaint = RANK.search(str(error))
            if complaint:
                _learn(graph, ranks, int(complaint[1]), int(complaint[2]))
    return None, None


def _learn(graph: Graph, ranks: Ranks, wanted: int, given: int) -> None:
    shapes = infer_shapes(graph)
    for index, ref in enumerate(graph[NODE].inputs):
        shape = shapes[ref.node][0]
        if shape is not None and len(shape) == given and ranks.get(index) != wanted:
            ranks[index] = wanted
            return

"""Memory of models, with peaks worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.tflite import PREFIX, SHAPES, TENSOR, parse_tflite
from mobileprep.inspection.lite_costs import lite_arena
from mobileprep.inspection.memory import memory_by_kind, memory_of
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput
from mobileprep.targets.targets import Memory, MemoryPhase
from tests.litert import graphs
from tests.litert.graphs import const, feed

FLOAT = {"T": attr.dtype(DType.FLOAT)}


def network() -> Graph:
    """x [1, 1000] -> MatMul with w [1000, 100] -> Relu -> Exp -> MatMul with v [100, 10]."""
    x = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((1, 1000))}
    return Graph(
        [
            Node("x", "Placeholder", (), "", x),
            constant("w", Tensor.of(np.zeros((1000, 100), np.float32))),
            constant("v", Tensor.of(np.zeros((100, 10), np.float32))),
            Node("a", "MatMul", (Ref("x"), Ref("w")), "", FLOAT),
            Node("b", "Relu", (Ref("a"),), "", FLOAT),
            Node("c", "Exp", (Ref("b"),), "", FLOAT),
            Node("d", "MatMul", (Ref("c"), Ref("v")), "", FLOAT),
        ]
    )


def test_frozen_graphs_keep_the_parsed_file_and_copies_of_constants() -> None:
    memory = memory_of(network(), {"x": (1, 1000)}, ["d"], kind="frozen", file_bytes=405_000)
    parse, prepare, run = memory.phases
    assert parse.total == 405_000
    assert prepare.total == 405_000 + 404_000
    # x in 63 blocks of 64 bytes; [1, 100] in 7, which Relu and Exp reuse; [1, 10] in one.
    assert run.activations == 64 * (63 + 7 + 1)
    assert (memory.load_peak, memory.run_peak) == (809_000, 809_000 + 4544)


def test_mapped_constants_stay_in_the_file() -> None:
    memory = memory_of(network(), {"x": (1, 1000)}, ["d"], kind="memmapped", file_bytes=405_000)
    run = memory.phases[-1]
    # v has 4,000 bytes, less than a page, and is copied.
    assert (run.file, run.constants, run.weights) == (400_000, 5000, 4000)
    assert run.activations == 4544


def test_dequantized_weights_are_decoded_once() -> None:
    weights = Tensor(DType.QUINT8, (1000, 100), content=memoryview(bytes(100_000)))
    nodes = [n for n in network() if n.name != "w"]
    ends = [constant(n, Tensor.of(np.float32(0))) for n in ("low", "high")]
    decode = Node("w", "Dequantize", (Ref("q"), Ref("low"), Ref("high")), "",
                  {"T": attr.dtype(DType.QUINT8)})  # fmt: skip
    graph = Graph([*nodes[:1], constant("q", weights), *ends, decode, *nodes[1:]])
    memory = memory_of(graph, {"x": (1, 1000)}, ["d"], kind="frozen", file_bytes=105_000)
    run = memory.phases[-1]
    # The folded constant is in a node, and in the tensor of its kernel, as is v.
    assert (run.constants, run.weights) == (105_000 + 400_000, 400_000 + 4000)
    assert run.activations == 4544


def test_tensors_that_are_read_again_are_not_overwritten() -> None:
    sums = Node("e", "Add", (Ref("a"), Ref("c")), "", FLOAT)
    graph = network().with_nodes([*network(), sums])
    memory = memory_of(graph, {"x": (1, 1000)}, ["e"], kind="frozen", file_bytes=405_000)
    assert memory.phases[-1].activations == 64 * (63 + 7 + 7)


def test_lite_files_are_mapped_and_have_an_arena() -> None:
    content = bytes(model_bytes(converted(network(), [CutInput("x", (1, 1000))], ["d"])))
    lite = parse_tflite(content, "m.tflite")
    memory = memory_of(lite.graph, {}, lite.outputs, kind="tflite", file_bytes=len(content))
    run = memory.phases[-1]
    assert run.file == len(content)
    # x stays, padded to 4,032 bytes; 448 for the first layer; Exp's 400 bytes follow.
    assert run.activations == 4032 + 448 + 400


def test_kind_must_match_the_graph() -> None:
    with pytest.raises(UsageError, match="kind 'tflite'"):
        memory_of(network(), {"x": (1, 1000)}, ["d"], kind="tflite", file_bytes=1)


def test_nodes_of_unknown_sizes_are_named() -> None:
    nodes = [n.with_attrs(shape=attr.shape(None)) if n.name == "x" else n for n in network()]
    memory = memory_of(Graph(nodes), {"x": None}, ["b"], kind="frozen", file_bytes=1)
    assert "b" in memory.unknown


FLOATS = 16
SIZE = 4 * FLOATS  # 64 bytes, a multiple of the alignment


def op(name: str, kind: str, inputs: Sequence[str], dtype: DType = DType.FLOAT) -> Node:
    return graphs.op(name, kind, inputs, T=dtype)


def memory(nodes: Sequence[Node], outputs: Sequence[str] = ("y",), kind: str = "frozen") -> Memory:
    graph = Graph([feed("x", (1, FLOATS)), *nodes])
    size = serialized_size(graph)
    return memory_of(graph, {"x": (-1, FLOATS)}, outputs, kind=kind, file_bytes=size)


def activations(nodes: Sequence[Node], outputs: Sequence[str] = ("y",)) -> int:
    return memory(nodes, outputs).phases[-1].activations


@pytest.mark.parametrize(
    ("nodes", "buffers"),
    [
        # The fed tensor is kept; the second op writes over the output of the first.
        ([op("a", "Relu", ["x"]), op("y", "Tanh", ["a"])], 2),
        # Two ops read `a`, so only the last of them can write over it.
        ([op("a", "Tanh", ["x"]), op("b", "Relu", ["a"]), op("y", "Mul", ["a", "b"])], 3),
        # A view does not take memory, and its buffer can be overwritten.
        ([op("a", "Relu", ["x"]), op("v", "Identity", ["a"]), op("y", "Neg", ["v"])], 2),
        # A sum over an axis is not in place. It is small, but takes a multiple of 64 bytes.
        ([const("axis", np.int32([1])), op("a", "Relu", ["x"]), op("y", "Sum", ["a", "axis"])], 3),
    ],
)
def test_tensorflow_overwrites_inputs_without_other_readers(
    nodes: list[Node], buffers: int
) -> None:
    assert activations(nodes) == buffers * SIZE


def test_fetched_tensor_is_not_overwritten() -> None:
    nodes = [op("a", "Relu", ["x"]), op("y", "Tanh", ["a"])]
    assert activations(nodes, ["a", "y"]) == 3 * SIZE


def test_identity_n_passes_on_each_input() -> None:
    types = attr.AttrValue("list(type)", (DType.FLOAT, DType.FLOAT))
    both = Node("both", "IdentityN", (parse_ref("x"), parse_ref("a")), "", {"T": types})
    nodes = [op("a", "Relu", ["x"]), both, op("y", "Tanh", ["both:1"])]
    assert activations(nodes) == 2 * SIZE


def weighted(columns: int) -> list[Node]:
    """A product with a matrix that is negated in the graph."""
    weights = const("w", np.ones((FLOATS, columns), np.float32))
    return [weights, op("n", "Neg", ["w"]), op("y", "MatMul", ["x", "n"])]


def test_frozen_file_is_parsed_and_constants_are_folded_and_copied() -> None:
    nodes = weighted(16)
    estimate = memory(nodes)
    file = serialized_size(Graph([feed("x", (1, FLOATS)), *nodes]))
    folded = 4 * FLOATS * 16
    parse = MemoryPhase("parse", 0, file)
    prepare = MemoryPhase("prepare", 0, file + folded, folded)
    run = MemoryPhase("run", 0, file + folded, folded, 2 * SIZE)
    assert estimate.phases == (parse, prepare, run)
    assert (estimate.load_peak, estimate.run_peak) == (prepare.total, run.total)
    assert estimate.timeline.endswith(
        f"run: {file + folded:,} constants, {folded:,} weights, {2 * SIZE} activations"
    )


def test_memmapped_constants_stay_in_the_file() -> None:
    nodes = weighted(64)  # exactly one page
    nodes[1:] = [op("y", "MatMul", ["x", "w"])]
    estimate = memory(nodes, kind="memmapped")
    rest = serialized_size(Graph([feed("x", (1, FLOATS)), *nodes])) - 4096
    run = MemoryPhase("run", 4096, rest, 0, SIZE + 4 * 64)
    assert estimate.phases[-1] == run


def test_memmapped_session_computes_constants_in_each_run() -> None:
    estimate = memory(weighted(64), kind="memmapped")
    # The fed tensor, the negated constant, and the result.
    assert estimate.phases[-1].activations == SIZE + 4096 + 4 * 64


def test_small_constants_of_memmapped_files_are_copied() -> None:
    nodes = [const("w", np.ones((FLOATS, 16), np.float32)), op("y", "MatMul", ["x", "w"])]
    run = memory(nodes, kind="memmapped").phases[-1]
    assert (run.file, run.weights) == (0, 4 * FLOATS * 16)


def test_nodes_of_unknown_size_are_named() -> None:
    nodes = [op("w", "Where", ["x"]), op("y", "Identity", ["w"], DType.INT64)]
    assert memory(nodes).unknown == ("w", "y")


@pytest.mark.parametrize("kind", ["text", "tflite"])
def test_kind_must_fit_the_graph(kind: str) -> None:
    with pytest.raises(UsageError, match=kind) as caught:
        memory([op("y", "Relu", ["x"])], kind=kind)
    assert caught.value.hint


def lite(name: str, op_name: str, inputs: Sequence[str], shape: tuple[int, ...]) -> Node:
    attrs = {
        TENSOR: attr.integers(0),
        "T": attr.AttrValue("list(type)", (DType.FLOAT,)),
        SHAPES: attr.AttrValue("list(shape)", (shape,)),
    }
    return Node(name, PREFIX + op_name, tuple(map(parse_ref, inputs)), "", attrs)


def arena(nodes: Sequence[Node], shape: tuple[int, ...] = (1, FLOATS)) -> tuple[int, int]:
    estimate = lite_arena(Graph([feed("x", shape), *nodes]), {}, ["y"])
    return estimate.arena, estimate.persistent


WIDE = (1, 4 * FLOATS)


def test_lite_tensors_share_the_arena() -> None:
    # The input is kept. `y` takes the memory of `a`, which only the first two operators use.
    nodes = [
        lite("a", "TANH", ["x"], (1, FLOATS)),
        lite("b", "TANH", ["a"], (1, FLOATS)),
        lite("y", "TANH", ["b"], (1, FLOATS)),
    ]
    assert arena(nodes) == (3 * SIZE, 0)


@pytest.mark.parametrize(
    ("operator", "expected"), [("ADD", 6), ("RESHAPE", 6), ("SUM", 9), ("TANH", 9)]
)
def test_lite_operators_share_memory_with_an_input(operator: str, expected: int) -> None:
    # The wide tensors take 4 units, the others 1; `y` is alive with the second wide one.
    nodes = [
        lite("a", "TILE", ["x"], WIDE),
        lite("b", operator, ["a"], WIDE),
        lite("y", "SLICE", ["b"], (1, FLOATS)),
    ]
    assert arena(nodes) == ((1 + 4 + (1 if expected == 6 else 4)) * SIZE, 0)


def test_lite_operator_does_not_overwrite_a_tensor_with_another_reader() -> None:
    nodes = [
        lite("a", "TILE", ["x"], WIDE),
        lite("b", "ADD", ["a", "a"], WIDE),
        lite("y", "SLICE", ["b"], (1, FLOATS)),
    ]
    assert arena(nodes) == ((1 + 4 + 4) * SIZE, 0)


def test_lite_convolution_takes_columns() -> None:
    image = (1, 4, 4, 2)
    for window, columns in ((3, 4 * 4 * 4 * 3 * 3 * 2), (1, 0)):
        weights = const("w", np.ones((2, window, window, 2), np.float32))
        nodes = [weights, lite("y", "CONV_2D", ["x", "w"], image)]
        assert arena(nodes, image) == (2 * 4 * 4 * 4 * 2 + columns, 0)


def test_lite_weights_are_dequantized_once() -> None:
    half = constant("w", Tensor.of(np.ones((1, FLOATS), np.float16)))
    nodes = [
        half,
        lite("d", "DEQUANTIZE", ["w"], (1, FLOATS)),
        lite("y", "ADD", ["x", "d"], (1, FLOATS)),
    ]
    assert arena(nodes) == (2 * SIZE, SIZE)


def test_all_kinds_of_one_graph() -> None:
    graph = Graph([feed("x", (1, FLOATS)), *weighted(64)])
    kinds = memory_by_kind(graph, {"x": (-1, FLOATS)}, ["y"])
    assert list(kinds) == ["frozen", "memmapped", "tflite"]
    run = kinds["tflite"].phases[-1]
    # The conversion folds the constant.
    assert (run.constants, run.weights, run.activations) == (0, 0, SIZE + 4 * 64)
    assert run.file > 4096


def test_kinds_without_litert_for_ops_that_it_lacks() -> None:
    graph = Graph([feed("x", (1, FLOATS)), op("y", "Digamma", ["x"])])
    assert list(memory_by_kind(graph, {"x": (1, FLOATS)}, ["y"])) == ["frozen", "memmapped"]

"""Memory of models, with peaks worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.tflite import parse_tflite
from mobileprep.inspection.memory import memory_of
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput

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

"""Errors for malformed nodes name the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import (
    LiteTensor,
    ModelRecord,
    SubGraphRecord,
)
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.litert.graphs import const, feed, model, op
from tests.litert.one_op import numbers

AXIS = const("axis", np.array(3, np.int32))
STRIDES = {"strides": [1, 1, 1, 1]}


def split(count: int) -> Node:
    return op("y", "Split", ["axis", "x"], num_split=count)


@pytest.mark.parametrize(
    ("node", "error"),
    [
        (op("y", "Conv2D", ["x"], padding="SAME", **STRIDES), "takes 1 tensors, not 2"),
        (op("y", "Conv2D", [], padding="SAME", **STRIDES), "takes 0 tensors, not 2"),
        (op("y", "Conv2D", ["x", "w"], padding="SME", **STRIDES), "unknown padding b'SME'"),
        (op("y", "Reshape", ["x"]), "takes 1 tensors, not 2"),
        (op("y", "Sub", ["x"]), "takes 1 tensors, not 2"),
        (op("y", "Transpose", ["x", "pairs"]), "is not a permutation of 4 axes"),
        (op("y", "DepthToSpace", ["x"], block_size=1 << 40), "its block_size is beyond 32 bits"),
        (op("y", "Pack", ["x"], N=1, axis=1 << 40), "its axis is beyond 32 bits"),
        (split(1 << 62), "declares 4611686018427387904 tensors for 'output'"),
    ],
)
def test_malformed_node_is_named(node: Node, error: str) -> None:
    weights, pairs = const("w", numbers(3, 3, 3, 2)), const("pairs", np.array([0, 2, 1, 1], "i4"))
    graph = Graph([feed("x", (1, 4, 4, 3)), weights, pairs, node, AXIS])
    with pytest.raises(InvalidGraphError, match="node 'y'") as caught:
        model(graph, ["x"], ["y"])
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (0, "is not a permutation of the dimensions"),
        ([0, 5], "no axis 5 in 2 dimensions"),
        ([[0, 1]], "expected a vector"),
    ],
)
def test_invalid_permutation_is_reported(order: Any, error: str) -> None:
    nodes = [feed("x", None), const("p", np.array(order, "i4")), op("y", "Transpose", ["x", "p"])]
    with pytest.raises(InvalidGraphError, match=f"node 'y' .Transpose. .*{error}"):
        model(Graph(nodes), ["x"], ["y"])


@pytest.mark.parametrize("name", ["Add", "DivNoNan", "Maximum"])
def test_incompatible_shapes_are_reported(name: str) -> None:
    graph = Graph([feed("a", (8,)), feed("b", (3,)), op("y", name, ["a", "b"], T=DType.FLOAT)])
    match = f"node 'y' .{name}. do not fit each other"
    with pytest.raises(InvalidGraphError, match=match) as caught:
        model(graph, ["a", "b"], ["y"])
    assert "a dimension cannot be 8 and 3" in str(caught.value)


def test_unsupported_type_is_reported() -> None:
    kind = DType.FLOAT8_E5M2
    numbers = [constant(n, Tensor.of(np.ones((), kind.numpy))) for n in ("a", "b", "c")]
    nodes = [*numbers, op("y", "Range", ["a", "b", "c"], Tidx=kind)]
    with pytest.raises(UnsupportedError, match="LiteRT has no operators on float8_e5m2"):
        model(Graph([feed("x", (2,)), *nodes]), ["x"], ["y"])


def test_duplicate_node_name_is_reported() -> None:
    graph = Graph([feed("x", (2,)), feed("x", (2,)), op("y", "Neg", ["x"], T=DType.FLOAT)])
    with pytest.raises(InvalidGraphError, match="2 nodes have the name 'x'"):
        model(graph, ["x"], ["y"])


def test_sizes_beyond_32_bits_are_reported() -> None:
    tensor: Any = LiteTensor("x", "FLOAT32", (1 << 31,))
    record = ModelRecord((SubGraphRecord("main", (tensor,), (0,), (0,), ()),), (b"",), (), ())
    with pytest.raises(UnsupportedError, match="do not all fit the 32 bits"):
        model_bytes(record)

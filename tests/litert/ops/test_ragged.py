"""Ragged tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from tests.litert.graphs import answered, const, expected, feed, model, numpy_type
from tests.litert.one_op import check, compare, numbers


@pytest.mark.parametrize("open_sizes", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("kind", [DType.INT32, DType.INT64])
def test_ranges(kind: DType, dtype: type, open_sizes: int) -> None:
    starts, limits, deltas = np.array([[0, 3, 5, -2, 1], [7, 3, -2, 9, 2], [2, 1, -3, 4, 1]], dtype)
    options = {"Tsplits": kind, "outputs": 2, "open_sizes": open_sizes}
    check("RaggedRange", [starts, limits, deltas], **options)
    check("RaggedRange", [dtype(1), limits + 4, dtype(2)], constant=[0, 2], **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(9,), (9, 2)])
def test_chosen_rows(shape: tuple[int, ...], dtype: type) -> None:
    splits, indices = np.array([0, 2, 2, 5, 9], dtype), np.array([3, 0, 0, 1, 2], dtype)
    check("RaggedGather", [splits, numbers(*shape), indices], outputs=2, OUTPUT_RAGGED_RANK=1)
    outer = np.array([0, 1, 4], dtype)
    given = [outer, splits, numbers(*shape), np.array([1, 1, 0], dtype)]
    check("RaggedGather", given, outputs=3, OUTPUT_RAGGED_RANK=2, PARAMS_RAGGED_RANK=2)


def test_rows_chosen_by_a_matrix_are_refused() -> None:
    given = [np.int32([0, 2, 4]), numbers(4), np.int32([[1], [0]])]
    with pytest.raises(UnsupportedError, match="indices"):
        check("RaggedGather", given, outputs=3, OUTPUT_RAGGED_RANK=2)


def made_dense(
    wanted: Any, values: Array, default: Any, kinds: list[bytes], *partitions: Array
) -> None:
    given = [np.asarray(wanted, np.int32), values, np.asarray(default, values.dtype), *partitions]
    nodes, feeds = [const("x0", given[0]), const("x2", given[2])], {}
    for i in (1, *range(3, len(given))):
        nodes.append(feed(f"x{i}", given[i].shape, numpy_type(given[i])))
        feeds[f"x{i}"] = given[i]
    inputs = tuple(Ref(f"x{i}") for i in range(len(given)))
    types = attr.AttrValue("list(string)", tuple(kinds))
    nodes.append(Node("y", "RaggedTensorToTensor", inputs, "", {"row_partition_types": types}))
    graph = Graph(nodes)
    found = answered(model_bytes(model(graph, list(feeds), ["y"])), list(feeds.values()))
    compare(found, expected(graph, feeds, ["y"]), 0)


SPLITS, ROW_IDS, FIRST = b"ROW_SPLITS", b"VALUE_ROWIDS", b"FIRST_DIM_SIZE"


@pytest.mark.parametrize("wanted", [-1, [-1, -1], [3, 2], [6, 5]])
def test_rows_become_dense(wanted: Any) -> None:
    values = np.arange(1, 10).astype(np.float32)
    made_dense(wanted, values, 7, [SPLITS], np.int32([0, 2, 2, 5, 9]))
    ids = np.int64([0, 0, 2, 2, 2, 3, 3, 3, 3])
    made_dense(wanted, values, 7, [FIRST, ROW_IDS], np.int64(5), ids)


@pytest.mark.parametrize("default", [0, [1, 2]])
def test_rows_of_rows_become_dense(default: Any) -> None:
    values = np.arange(18).reshape(9, 2).astype(np.float32)
    splits = [np.int32([0, 1, 1, 4]), np.int32([0, 2, 2, 5, 9])]
    made_dense(-1, values, default, [SPLITS, SPLITS], *splits)
    made_dense([2, -1, 3, 2], values, default, [SPLITS, SPLITS], *splits)

"""Costs of .tflite files, compared with their source graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tflite import TfliteGraph, read_tflite
from mobileprep.inspection.costs import counted_run, model_costs
from tests.litert.graphs import const, feed, model, op


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1, shape).astype(np.float32)


def conv(name: str, kind: str, inputs: list[str]) -> Node:
    return op(name, kind, inputs, strides=[1, 1, 1, 1], padding="SAME", data_format="NHWC")


IMAGE = (1, 6, 6, 3)
WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
NETWORKS = {
    "convolution": [
        const("w", random(3, 3, 3, 4)),
        const("b", random(4)),
        conv("product", "Conv2D", ["x", "w"]),
        op("sum", "BiasAdd", ["product", "b"]),
        op("y", "Relu", ["sum"]),
    ],
    "depthwise": [
        const("w", random(3, 3, 3, 2)),
        const("b", random(6)),
        conv("product", "DepthwiseConv2dNative", ["x", "w"]),
        op("y", "BiasAdd", ["product", "b"]),
    ],
    "pool": [op("pooled", "MaxPool", ["x"], **WINDOW), op("y", "AvgPool", ["pooled"], **WINDOW)],
    "dense": [
        const("flat", np.int32([1, 108])),
        const("w", random(108, 10)),
        const("b", random(10)),
        op("rows", "Reshape", ["x", "flat"]),
        op("product", "MatMul", ["rows", "w"]),
        op("sum", "BiasAdd", ["product", "b"]),
        op("y", "Softmax", ["sum"]),
    ],
    "elementwise": [
        op("a", "Sigmoid", ["x"]),
        op("b", "Tanh", ["x"]),
        op("c", "Mul", ["a", "b"]),
        op("y", "AddV2", ["c", "x"]),
    ],
}


def written(graph: Graph, folder: Path) -> TfliteGraph:
    path = folder / "m.tflite"
    path.write_bytes(model_bytes(model(graph, ["x"], ["y"])))
    return read_tflite(path)


@pytest.mark.parametrize("name", NETWORKS)
def test_converted_operators_cost_the_same_as_the_ops(name: str, tmp_path: Path) -> None:
    graph = Graph([feed("x", IMAGE, DType.FLOAT), *NETWORKS[name]])
    lite = written(graph, tmp_path)
    costs = model_costs(counted_run(lite.graph, lite.outputs, {}))
    expected = model_costs(counted_run(graph, ["y"], {"x": IMAGE}))
    assert (costs.flops, costs.uncounted) == (expected.flops, ())
    assert costs.flops > 0
    # The converter may add scalars and shapes.
    assert costs.parameters >= expected.parameters
    assert costs.peak > 0


def test_batch_size_scales_the_costs(tmp_path: Path) -> None:
    graph = Graph([feed("x", (-1, 6, 6, 3), DType.FLOAT), *NETWORKS["convolution"]])
    lite = written(graph, tmp_path)
    once, many = (counted_run(lite.graph, lite.outputs, {}, batch=n).costs.flops for n in (1, 5))
    assert many == 5 * once

"""float16, int8, and int4 weights in the file and in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.litert.convert import Mode
from mobileprep.litert.weights import quantized_weights
from tests.litert.graphs import answered, codes, const, expected, feed, model, op
from tests.litert.one_op import numbers


def network() -> Graph:
    strides = [1, 1, 1, 1]
    return Graph(
        [
            feed("x", (1, 8, 8, 16)),
            const("w1", numbers(3, 3, 16, 24)),
            op("y1", "Conv2D", ["x", "w1"], strides=strides, padding="SAME"),
            const("w2", numbers(5, 5, 24, 2, seed=5)),
            op("y2", "DepthwiseConv2dNative", ["y1", "w2"], strides=strides, padding="SAME"),
            op("r", "Relu", ["y2"]),
            const("sizes", [1, 16, 16, 8]),
            const("w3", numbers(3, 3, 8, 48, seed=6)),
            op(
                "y3",
                "Conv2DBackpropInput",
                ["sizes", "w3", "r"],
                strides=[1, 2, 2, 1],
                padding="SAME",
            ),
            const("flat", [1, 2048]),
            op("rows", "Reshape", ["y3", "flat"]),
            const("w4", numbers(2048, 10, seed=7)),
            op("y", "MatMul", ["rows", "w4"]),
        ]
    )


@pytest.mark.parametrize(
    # float16 has 11 bits; int8 weights have 8, and so do inputs at run time.
    ("mode", "tolerance", "share"),
    # Half of a 4-bit step is 1/14 of the largest weight.
    [("float16", 2e-3, 0.52), ("weights", 0.05, 0.30), ("int4", 0.25, 0.25)],
)
def test_network_with_smaller_weights(mode: Mode, tolerance: float, share: float) -> None:
    feeds = {"x": numbers(1, 8, 8, 16, seed=9)}
    plain = model_bytes(model(network(), ["x"], ["y"]))
    content = model_bytes(model(network(), ["x"], ["y"], mode=mode))
    assert len(content) < share * len(plain)
    (reference,) = expected(network(), feeds, ["y"])
    (result,) = answered(content, [feeds["x"]])
    assert np.abs(result - reference).max() < tolerance * np.abs(reference).max()


def test_operator_versions_of_int8_weights() -> None:
    record = model(network(), ["x"], ["y"], mode="weights")
    versions = {o.code.builtin: o.code.version for o in record.subgraphs[0].operators}
    assert versions["CONV_2D"] == 5
    assert versions["DEPTHWISE_CONV_2D"] == 6
    assert versions["FULLY_CONNECTED"] == 12
    assert versions["DEQUANTIZE"] == 5
    assert codes(record).count("DEQUANTIZE") == 1


def test_int4_is_used_only_where_kernels_support_it() -> None:
    record = model(network(), ["x"], ["y"], mode="int4")
    (graph,) = record.subgraphs
    kinds = {
        o.code.builtin: graph.tensors[o.inputs[1]].type
        for o in graph.operators
        if len(o.inputs) > 1
    }
    assert kinds["CONV_2D"] == kinds["FULLY_CONNECTED"] == "INT4"
    assert kinds["DEPTHWISE_CONV_2D"] == "INT8"
    versions = {o.code.builtin: o.code.version for o in graph.operators}
    assert (versions["CONV_2D"], versions["FULLY_CONNECTED"]) == (7, 10)


def test_two_int4_weights_share_a_byte() -> None:
    weights = np.array([[7, -7, 1], [2, 0, -3]], np.float32)
    data = np.pad(weights, ((0, 0), (0, 2000)))
    graph = Graph([feed("x", (1, 2003)), const("w", data.T), op("y", "MatMul", ["x", "w"])])
    record = model(graph, ["x"], ["y"], mode="int4")
    (packed,) = [b for b in record.buffers if len(b) == 2003]
    assert list(bytes(packed[:2])) == [0x97, 0x01]


def test_each_channel_has_its_own_scale() -> None:
    values = np.array([[1, -254], [0, 0], [0.5, 0.25]], np.float32)
    levels, details = quantized_weights(values, 0)
    np.testing.assert_array_equal(levels, [[0, -127], [0, 0], [127, 64]])
    np.testing.assert_allclose(details.scales, [2, 1, 0.5 / 127])
    assert details.axis == 0
    assert not details.zero_points.any()


def test_weights_beyond_float16_are_kept() -> None:
    large = np.full((8, 16), 1e6, np.float32)
    graph = Graph([feed("x", (1, 8)), const("w", large), op("y", "MatMul", ["x", "w"])])
    assert "DEQUANTIZE" not in codes(model(graph, ["x"], ["y"], mode="float16"))

"""float16, int8, and int4 weights in the file and in the interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.reader import read_model
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import Mode
from mobileprep.litert.weights import quantized_weights
from mobileprep.transforms.quantize_nodes import WeightSettings
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


def dense(rows: int = 4, columns: int = 64, outputs: int = 24) -> Graph:
    """Return a dense layer whose first columns are 100 times as large as the others."""
    weights = numbers(columns, outputs)
    weights[:32] *= 100
    return Graph(
        [feed("x", (rows, columns)), const("w", weights), op("y", "MatMul", ["x", "w"])],
    )


def blocks_of(size: int) -> WeightSettings | None:
    return WeightSettings(4, block_size=size) if size else None


def snr(result: Array, reference: Array) -> float:
    return float(10 * np.log10(np.square(reference).sum() / np.square(result - reference).sum()))


def test_blocks_keep_small_weights_next_to_large_ones() -> None:
    graph = dense()
    feeds = {"x": numbers(4, 64, seed=9)}
    # Only the small weights count.
    feeds["x"][:, :32] *= 1e-3
    (reference,) = expected(graph, feeds, ["y"])
    by_block = model(graph, ["x"], ["y"], mode="int4", weights=blocks_of(32))
    by_channel = model(graph, ["x"], ["y"], mode="int4")
    (blocks,) = answered(model_bytes(by_block), [feeds["x"]])
    (channels,) = answered(model_bytes(by_channel), [feeds["x"]])
    # A block's step is a seventh of its largest weight; a channel's is larger than half its small
    # weights, which become zero.
    assert snr(blocks, reference) > 15
    assert snr(channels, reference) < 1
    assert dict(by_block.metadata)["min_runtime_version"].startswith(b"2.21.0")
    assert read_model(model_bytes(by_block), "m").subgraphs[0].tensors[1].quantization is not None


def test_levels_and_scales_of_blocks() -> None:
    values = np.zeros((2, 64), np.float32)
    values[0, :3] = [7, -3.4, 1]
    values[0, 32] = -14
    values[1, :2] = [70.1, 0.02]
    settings = WeightSettings(4, method="min_max", block_size=32)
    levels, details = quantized_weights(values, 0, settings)
    # 70.1 / 7 is 10.014, and the next number with 8 significant bits is 10.
    np.testing.assert_array_equal(details.scales, [[1, 2], [10, 1]])
    assert details.block_size == 32
    np.testing.assert_array_equal(levels[0, :3], [7, -3, 1])
    assert levels[0, 32] == -7
    np.testing.assert_array_equal(levels[1, :2], [7, 0])
    assert np.count_nonzero(levels) == 5


def test_blocks_clip_large_weights_to_reduce_the_squared_error() -> None:
    values = np.ones((1, 64), np.float32)
    values[0, 0], values[0, 32] = 1.5, 7
    levels, details = quantized_weights(values, 0, WeightSettings(4, block_size=32))
    # The steps of min_max, 3/14 and 1, are off by 1/14 and 0 for weights of 1.
    assert details.scales[0, 0] < 3 / 14
    assert details.scales[0, 1] == 1
    restored = levels * np.repeat(details.scales, 32, axis=1)
    assert np.square(restored - values).sum() < 31 / 14**2
    np.testing.assert_array_equal(restored[0, 32:], values[0, 32:])


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1.0, 6e4])
def test_scales_of_blocks_are_positive_float16(scale: float) -> None:
    values = np.full((1, 32), 7 * scale, np.float32)
    _, details = quantized_weights(values, 0, WeightSettings(4, block_size=32))
    stored = details.scales.astype(np.float16)
    assert stored > 0
    assert np.isfinite(stored)
    np.testing.assert_array_equal(stored.astype(np.float32), details.scales)


def test_dense_layers_without_whole_blocks_have_channels() -> None:
    messages: list[str] = []
    record = model(
        dense(columns=48), ["x"], ["y"], mode="int4", weights=blocks_of(32), tell=messages.append
    )
    details = record.subgraphs[0].tensors[1].quantization
    assert details is not None
    assert (details.block_size, details.scales.size) == (0, 24)
    (message,) = messages
    assert message.startswith(
        "FULLY_CONNECTED 'y' without blocks: their columns are not a multiple"
    )


@pytest.mark.parametrize(("size", "stride", "code"), [(1, 1, "FULLY_CONNECTED"), (3, 1, "CONV_2D")])
def test_pointwise_convolutions_have_blocks(size: int, stride: int, code: str) -> None:
    sizes = [1, stride, stride, 1]
    graph = Graph(
        [
            feed("x", (2, 6, 5, 64)),
            const("w", numbers(size, size, 64, 24)),
            op("c", "Conv2D", ["x", "w"], strides=sizes, padding="SAME"),
            const("b", numbers(24, seed=8)),
            op("s", "BiasAdd", ["c", "b"]),
            op("y", "Relu", ["s"]),
        ]
    )
    record = model(graph, ["x"], ["y"], mode="int4", weights=blocks_of(64))
    assert codes(record) == [code]
    feeds = {"x": numbers(2, 6, 5, 64, seed=9)}
    (reference,) = expected(graph, feeds, ["y"])
    (result,) = answered(model_bytes(record), [feeds["x"]])
    assert result.shape == reference.shape
    # 4-bit weights of a normal distribution have about 18 dB.
    assert snr(result, reference) > 16


def test_blocks_need_a_release_that_runs_them() -> None:
    with pytest.raises(MobileprepError, match=r"requires LiteRT's kernels of 2\.21\.0"):
        model(dense(), ["x"], ["y"], mode="int4", weights=blocks_of(32), min_runtime="2.14")


def lookup(columns: int = 64, ids: Array | None = None, shape: tuple[int, ...] = (2, 3)) -> Graph:
    """Return a lookup of rows, each ten times as large as the one before."""
    rows = numbers(20, columns) * np.float32(10) ** np.arange(-10, 10, dtype=np.float32)[:, None]
    kind = DType.INT32 if ids is None or ids.dtype == np.int32 else DType.INT64
    return Graph(
        [
            feed("i", shape, kind),
            const("t", rows),
            const("axis", 0),
            op("y", "GatherV2", ["t", "i", "axis"], Tindices=kind, Taxis=DType.INT32),
        ]
    )


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
@pytest.mark.parametrize(
    # A row's largest error is half a step: 1/254 of its largest number, 1/14, or less in blocks.
    ("mode", "block_size", "limit"),
    [("weights", 0, 1 / 254), ("int4", 0, 1 / 14), ("int4", 32, 1 / 14 + 0.01)],
)
def test_tables_are_looked_up_in_few_bits(
    kind: type, shape: tuple[int, ...], mode: Mode, block_size: int, limit: float
) -> None:
    ids = np.arange(math.prod(shape), dtype=kind).reshape(shape) * 3 % 20
    graph = lookup(ids=ids, shape=shape)
    record = model(graph, ["i"], ["y"], mode=mode, weights=blocks_of(block_size))
    assert "EMBEDDING_LOOKUP" in codes(record)
    assert "GATHER" not in codes(record)
    (reference,) = expected(graph, {"i": ids}, ["y"])
    (result,) = answered(model_bytes(record), [ids])
    assert result.shape == reference.shape
    largest = np.abs(reference).max(axis=-1, keepdims=True)
    assert (np.abs(result - reference) <= limit * largest * 1.0001).all()
    size = 20 * 64 // (2 if mode == "int4" else 1)
    assert size in [len(b) for b in record.buffers]


def test_rows_of_an_odd_number_of_columns_have_eight_bits() -> None:
    graph = lookup(65, np.zeros(2, np.int32), (2,))
    record = model(graph, ["i"], ["y"], mode="int4")
    assert record.subgraphs[0].tensors[1].type == "INT8"
    ids = np.int32([19, 4])
    (reference,) = expected(graph, {"i": ids}, ["y"])
    (result,) = answered(model_bytes(record), [ids])
    assert snr(result, reference) > 40


def test_tables_stay_float_for_releases_without_rows() -> None:
    graph = lookup(64, np.zeros(2, np.int32), (2,))
    record = model(graph, ["i"], ["y"], mode="int4", min_runtime="2.14")
    assert codes(record) == ["GATHER"]


def test_lookups_of_several_unknown_sizes_stay_float() -> None:
    graph = lookup(64, np.zeros(2, np.int32), (-1, -1))
    assert codes(model(graph, ["i"], ["y"], mode="int4")) == ["GATHER"]
    one = lookup(64, np.zeros(2, np.int32), (-1, 3))
    record = model(one, ["i"], ["y"], mode="int4")
    ids = np.arange(12, dtype=np.int32).reshape(4, 3)
    (reference,) = expected(one, {"i": ids}, ["y"])
    (result,) = answered(model_bytes(record), [ids])
    assert result.shape == reference.shape
    assert snr(result, reference) > 16


@pytest.mark.parametrize(("columns", "kinds"), [(64, ["INT4"]), (65, ["INT4", "INT8"])])
def test_tied_weights_are_stored_once_for_each_type(columns: int, kinds: list[str]) -> None:
    """A table that looks up words and computes their scores."""
    kind = {"Tindices": DType.INT32, "Taxis": DType.INT32}
    graph = Graph(
        [
            feed("i", (3,), DType.INT32),
            const("t", numbers(20, columns)),
            const("axis", 0),
            op("rows", "GatherV2", ["t", "i", "axis"], **kind),
            op("y", "MatMul", ["rows", "t"], transpose_a=False, transpose_b=True),
        ]
    )
    record = model(graph, ["i"], ["y"], mode="weights", rules=("bits=4",))
    tables = [t.type for t in record.subgraphs[0].tensors if t.shape == (20, columns)]
    assert sorted(tables) == kinds
    ids = np.int32([2, 0, 19])
    (reference,) = expected(graph, {"i": ids}, ["y"])
    (result,) = answered(model_bytes(record), [ids])
    assert snr(result, reference) > 15

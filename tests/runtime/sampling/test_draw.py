"""Random samples: ranges, sizes, and structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.sampling.draw import Samples, draw_samples
from mobileprep.runtime.sampling.inputs import fed_tensors
from tests.building.stages.jobs import op, placeholder

NEW = Versions(producer=1000)


def const(name: str, value: Any) -> Node:
    return constant(name, Tensor.of(np.asarray(value)))


def convolution(x: str, channels: int = 3, **attrs: attr.AttrValue) -> list[Node]:
    rng = np.random.default_rng(1)
    return [
        const("w", rng.standard_normal((3, 3, channels, 4)).astype(np.float32)),
        op(
            "y",
            "Conv2D",
            x,
            "w",
            strides=attr.integers(1, 1, 1, 1),
            padding=attr.string(b"SAME"),
            **attrs,
        ),
    ]


def drawn(
    nodes: list[Node], *names: str, count: int = 3, shapes: Mapping[str, Any] | None = None
) -> Samples:
    graph = Graph(nodes, versions=NEW)
    engine = open_engine("numpy", graph, None, where="g")
    inputs = fed_tensors(graph, names or ("x",), shapes)
    return draw_samples(graph, inputs, count, lambda feeds: engine.run(["y"], feeds))


def limits(samples: Samples, name: str = "x") -> tuple[float, float]:
    fed = [feeds[name] for feeds in samples.feeds]
    return float(min(a.min() for a in fed)), float(max(a.max() for a in fed))


def scaled(*steps: tuple[str, float]) -> list[Node]:
    """An image that is scaled by steps in order, then convolved."""
    nodes = [placeholder((-1, 16, 16, 3))]
    before = "x"
    for i, (kind, value) in enumerate(steps):
        nodes += [const(f"c{i}", np.float32(value)), op(f"s{i}", kind, before, f"c{i}")]
        before = f"s{i}"
    return nodes + convolution(before)


@pytest.mark.parametrize(
    ("steps", "low", "high"),
    [
        ([("RealDiv", 255)], 0, 255),
        ([("Mul", 1 / 255)], 0, 255),
        ([("Sub", 117)], 0, 255),
        ([("Mul", 1 / 127.5), ("Sub", 1)], 0, 255),
        ([("Sub", 128), ("RealDiv", 128)], 0, 255),
        ([("Mul", 2), ("Sub", 1)], 0, 1),
        ([("Sub", 0.5), ("Mul", 2)], 0, 1),
        ([("Sub", 0.485), ("RealDiv", 0.229)], 0, 1),
        ([("Mul", 255)], 0, 1),
        ([("Add", 1), ("Mul", 127.5)], -1, 1),
    ],
    ids=str,
)
def test_image_range_follows_from_scaling(
    steps: list[tuple[str, float]], low: float, high: float
) -> None:
    samples = drawn(scaled(*steps))
    range_ = limits(samples)
    span = high - low
    assert low <= range_[0] < low + 0.2 * span
    assert high - 0.2 * span < range_[1] <= high
    assert "the first operations scale it so" in samples.inputs["x"]


def test_range_follows_reversed_subtraction_and_negation() -> None:
    nodes = [
        placeholder((-1, 16, 16, 3)),
        const("c", np.float32(255)),
        op("d", "Sub", "c", "x"),
        op("n", "Neg", "d"),
        const("e", np.float32(127.5)),
        op("s", "RealDiv", "n", "e"),
        const("one", np.float32(1)),
        op("t", "Add", "s", "one"),
        *convolution("t"),
    ]
    assert limits(drawn(nodes))[1] > 200


def test_range_is_around_a_subtracted_mean() -> None:
    nodes = [
        placeholder((-1, 4)),
        const("mean", np.float32([5.8, 3, 3.7, 1.2])),
        op("s", "Sub", "x", "mean"),
        const("w", np.eye(4, dtype=np.float32)),
        op("y", "MatMul", "s", "w"),
    ]
    low, high = limits(drawn(nodes, count=20))
    assert 1 < low < 2.5
    assert 4.5 < high < 6


def test_unknown_range_is_reported() -> None:
    samples = drawn(scaled())
    assert samples.inputs["x"].endswith("0 to 1 (the graph does not show the range)")


def test_first_usual_range_that_moves_the_outputs_is_used() -> None:
    big = 100.0  # smaller values are cut off
    nodes = [
        placeholder((-1, 16)),
        const("w", np.eye(16, dtype=np.float32)),
        op("m", "MatMul", "x", "w"),
        const("c", np.full(16, -big, np.float32)),
        op("b", "BiasAdd", "m", "c"),
        op("r", "Relu", "b"),
        const("one", np.ones(16, np.float32)),
        op("y", "BiasAdd", "r", "one"),
    ]
    assert limits(drawn(nodes))[1] > big


def test_range_of_fake_quantization() -> None:
    nodes = [
        placeholder((-1, 16, 16, 3)),
        const("low", np.float32(-0.5)),
        const("high", np.float32(3)),
        op("q", "FakeQuantWithMinMaxVars", "x", "low", "high", num_bits=attr.integer(8)),
        *convolution("q"),
    ]
    samples = drawn(nodes)
    low, high = limits(samples)
    assert -0.5 <= low < 0.2
    assert 2.3 < high <= 3
    assert "the graph states it" in samples.inputs["x"]


def test_range_of_batch_normalization() -> None:
    mean, variance = np.full(3, 100, np.float32), np.full(3, 25, np.float32)
    nodes = [
        placeholder((-1, 16, 16, 3)),
        const("scale", np.ones(3, np.float32)),
        const("shift", np.zeros(3, np.float32)),
        const("mean", mean),
        const("variance", variance),
        op("n", "FusedBatchNorm", "x", "scale", "shift", "mean", "variance",
           is_training=attr.boolean(False)),
        *convolution("n"),
    ]  # fmt: skip
    low, high = limits(drawn(nodes))
    assert 90 <= low < 95
    assert 105 < high <= 110


def test_range_of_uint8() -> None:
    cast = {"SrcT": attr.dtype(DType.UINT8), "DstT": attr.dtype(DType.FLOAT)}
    nodes = [
        placeholder((1, 16, 16, 3), DType.UINT8),
        Node("f", "Cast", (parse_ref("x"),), attrs=cast),
        *convolution("f"),
    ]
    samples = drawn(nodes)
    assert samples.feeds[0]["x"].dtype == np.uint8
    assert limits(samples)[0] < 50
    assert limits(samples)[1] > 200


def lookup(rows: int, dtype: DType = DType.INT32) -> list[Node]:
    types = {"Tindices": attr.dtype(dtype), "Tparams": attr.dtype(DType.FLOAT)}
    table = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    return [
        placeholder((-1, -1), dtype),
        const("table", table),
        Node("y", "Gather", (parse_ref("table"), parse_ref("x")), attrs=types),
    ]


@pytest.mark.parametrize("rows", [2, 50])
def test_indices_are_within_their_table(rows: int) -> None:
    samples = drawn(lookup(rows), count=10)
    assert limits(samples) == (0, rows - 1)
    assert "it chooses rows of a table" in samples.inputs["x"]


def test_images_have_structure_and_differ() -> None:
    images = [feeds["x"][0] for feeds in drawn(scaled(("RealDiv", 255))).feeds]
    for image in images:
        steps = np.abs(np.diff(image, axis=1))
        # Neighboring pixels are similar, unlike noise, and there are edges.
        assert np.median(steps) < 0.12 * np.ptp(image)
        assert steps.max() > 0.2 * np.ptp(image)
    assert np.abs(images[0] - images[1]).max() > 50


def test_long_row_is_audio() -> None:
    nodes = [placeholder((1, 8000, 1)), op("y", "Relu", "x")]
    (feeds,) = drawn(nodes, count=1).feeds
    tone = feeds["x"].ravel()
    assert -1 <= tone.min() < -0.25
    assert 0.25 < tone.max() <= 1
    spectrum = np.abs(np.fft.rfft(tone)) ** 2
    # A tenth of the frequencies have most of the power.
    assert np.sort(spectrum)[-len(spectrum) // 10 :].sum() > 0.9 * spectrum.sum()


def matrix(rows: int) -> list[Node]:
    weights = np.random.default_rng(2).standard_normal((rows, 3)).astype(np.float32)
    return [const("w", weights), op("y", "MatMul", "x", "w")]


@pytest.mark.parametrize("shape", [(-1, -1), None, (-1, 13)])
def test_size_of_the_first_layer(shape: Any) -> None:
    assert drawn([placeholder(shape), *matrix(13)]).feeds[0]["x"].shape == (1, 13)


def test_channels_of_the_first_filter() -> None:
    nodes = [placeholder((-1, -1, -1, -1)), *convolution("x", channels=5)]
    assert drawn(nodes).feeds[0]["x"].shape == (1, 224, 224, 5)


def test_several_sizes_are_tried() -> None:
    # Only images of 32 by 32 pixels give rows of 1,024.
    flat = {"Tshape": attr.dtype(DType.INT32)}
    nodes = [
        placeholder((-1, -1, -1, 1)),
        op("r", "Relu", "x"),
        const("to", np.array([-1, 1024], np.int32)),
        const("batch", np.array([1, 32, 32, 1], np.int32)),
        op("same", "Reshape", "r", "batch", **flat),
        op("flat", "Reshape", "same", "to", **flat),
        const("w", np.ones((1024, 2), np.float32)),
        op("y", "MatMul", "flat", "w"),
    ]
    assert drawn(nodes).feeds[0]["x"].shape == (1, 32, 32, 1)


def test_unknown_sizes_are_equal_in_all_inputs() -> None:
    nodes = [
        placeholder((-1, -1, 3)),
        placeholder((-1, -1, 3), name="z"),
        op("y", "Mul", "x", "z"),
    ]
    feeds = drawn(nodes, "x", "z").feeds[0]
    assert feeds["x"].shape == feeds["z"].shape
    assert not np.array_equal(feeds["x"], feeds["z"])


def test_failure_of_all_sizes_is_reported_with_a_hint() -> None:
    nodes = [
        placeholder((-1, -1, -1, 3)),
        op("r", "Relu", "x"),
        const("to", np.array([1, 1234567], np.int32)),
        op("y", "Reshape", "r", "to", Tshape=attr.dtype(DType.INT32)),
    ]
    with pytest.raises(
        UsageError, match=r"none of \d+ choices of sizes for the input 'x'"
    ) as error:
        drawn(nodes)
    # The message shows the error of the first choice: 224 rows and columns of 3.
    message = error.value.message
    assert "with the first of them: " in message
    assert "float32[1, 224, 224, 3]" in message
    assert "such as [1, 224, 224, 3]" in error.value.hint
    assert "check: {data: FILE.npz}" in error.value.hint


def test_failing_graph_without_inputs_is_reported() -> None:
    graph = Graph([placeholder((2, 3)), op("y", "Neg", "x")], versions=NEW)
    engine = open_engine("numpy", graph, None, where="g")
    with pytest.raises(UsageError, match="the source does not run without inputs: nothing is fed"):
        draw_samples(graph, (), 3, lambda feeds: engine.run(["y"], feeds))


def test_bool_of_unknown_shape_is_a_scalar() -> None:
    nodes = [placeholder(None, DType.BOOL), op("y", "LogicalNot", "x")]
    x = drawn(nodes).feeds[0]["x"]
    assert (x.shape, x.dtype, bool(x)) == ((), np.bool_, False)


@pytest.mark.parametrize(
    ("name", "value"), [("keep_prob", 1), ("dropout/rate", 0), ("thresholds", np.float32(0.6))]
)
def test_scalar_settings_follow_from_their_names(name: str, value: float) -> None:
    nodes = [placeholder((), name=name), op("y", "Identity", name)]
    samples = drawn(nodes, name)
    assert samples.feeds[0][name] == value
    assert "from its name" in samples.inputs[name]


def test_placeholder_default_is_fed() -> None:
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape(())}
    nodes = [
        const("d", np.float32(7)),
        Node("x", "PlaceholderWithDefault", (parse_ref("d"),), attrs=attrs),
        op("y", "Identity", "x"),
    ]
    assert drawn(nodes).feeds[0]["x"] == 7


def test_audio_file_is_drawn_for_decode_wav() -> None:
    decode = {"desired_channels": attr.integer(1), "desired_samples": attr.integer(1600)}
    nodes = [
        placeholder((), DType.STRING),
        Node("y", "DecodeWav", (parse_ref("x"),), attrs=decode),
    ]
    samples = drawn(nodes)
    assert samples.outputs[0][0].shape == (1600, 1)
    assert np.abs(samples.outputs[0][0]).max() > 0.2


def test_image_file_is_refused_with_a_hint() -> None:
    nodes = [placeholder((), DType.STRING), Node("y", "DecodeJpeg", (parse_ref("x"),))]
    with pytest.raises(UsageError, match="it is the content of an image file") as error:
        drawn(nodes)
    assert "use the output of DecodeJpeg as the input: 'y'" in error.value.hint


def test_huge_sample_is_refused() -> None:
    nodes = [placeholder((1 << 20, 1 << 20)), op("y", "Relu", "x")]
    with pytest.raises(UsageError, match="is too large"):
        drawn(nodes)


def test_unknown_input_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="'z' is not in the graph"):
        drawn(scaled(), "z")


def test_empty_shape_is_unknown_in_old_graphs() -> None:
    graph = Graph([placeholder(()), *matrix(5)], versions=Versions(producer=20))
    (fed,) = fed_tensors(graph, ["x"])
    assert fed.shape is None


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (22, ())])
def test_empty_shape_is_a_scalar_in_new_graphs(producer: int, shape: Any) -> None:
    """As in the shape function of ``Placeholder`` in TensorFlow's array_ops.cc."""
    graph = Graph([placeholder(())], versions=Versions(producer=producer))
    (fed,) = fed_tensors(graph, ["x"])
    assert fed.shape == shape


def loop_over(*shape: int) -> list[Node]:
    """A graph with a TensorArray whose size is the first axis of ``x``."""
    whole = attr.dtype(DType.INT32)
    return [
        placeholder(shape),
        op("shape", "Shape", "x", out_type=whole),
        *(const(f"at{i}", np.array([i], np.int32)) for i in range(2)),
        op(
            "steps",
            "StridedSlice",
            *("shape", "at0", "at1", "at1"),
            T=whole,
            Index=whole,
            shrink_axis_mask=attr.integer(1),
        ),
        op("array", "TensorArrayV3", "steps", dtype=attr.dtype(DType.FLOAT)),
        op("y", "Neg", "x"),
    ]


@pytest.mark.parametrize(
    ("shape", "steps", "is_short"),
    [((-1, 1, 3), 2, False), ((1, 1, 3), 1, False), ((1, -1, 3), 1, True)],
)
def test_loops_run_more_than_once_if_possible(
    shape: tuple[int, ...], steps: int, is_short: bool
) -> None:
    samples = drawn(loop_over(*shape))
    assert samples.feeds[0]["x"].shape[0] == steps
    assert samples.has_short_loop == is_short

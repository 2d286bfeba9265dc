"""Input properties inferred from the first ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import first_ops
from tests.transforms.graphs import const, conv, node, placeholder


def infer(*nodes: Node) -> FirstOps:
    """The properties of the placeholder x."""
    return first_ops(Graph([placeholder(), *nodes]), Ref("x"))


def scaled(op: str, inputs: str, value: Any) -> list[tuple[float, float]]:
    """The layers after one operation with a constant."""
    return infer(const("c", value), node("a", op, inputs), node("y", "Relu", "a")).layers


@pytest.mark.parametrize(
    ("op", "inputs", "layer"),
    [
        ("Mul", "x c", (4, 0)),
        ("Mul", "c x", (4, 0)),
        ("RealDiv", "x c", (0.25, 0)),
        ("AddV2", "x c", (1, 4)),
        ("BiasAdd", "x c", (1, 4)),
        ("Sub", "x c", (1, -4)),
        ("Sub", "c x", (-1, 4)),
    ],
)
def test_scale_and_shift(op: str, inputs: str, layer: tuple[float, float]) -> None:
    assert scaled(op, inputs, 4.0) == [layer]


@pytest.mark.parametrize(
    ("op", "inputs", "value"),
    [("RealDiv", "c x", 4.0), ("RealDiv", "x c", 0.0), ("Mul", "x c", 0.0)],
)
def test_other_arithmetic_is_not_a_scale(op: str, inputs: str, value: float) -> None:
    assert scaled(op, inputs, value) == []


def test_scales_are_combined_in_order() -> None:
    nodes = [const("c", 4), const("d", 2), node("a", "AddV2", "x c"), node("b", "Mul", "a d")]
    # (x + 4) * 2, then negated, then subtracted from 4.
    nodes += [node("n", "Neg", "b"), node("s", "Sub", "c n"), node("y", "Relu", "s")]
    assert infer(*nodes[:4], node("y", "Relu", "b")).layers == [(2, 8)]
    assert infer(*nodes).layers == [(2, 12)]


def test_constant_per_channel() -> None:
    result = infer(const("c", [[1, 2, 6]]), node("a", "Sub", "x c"), node("y", "Relu", "a"))
    assert result.layers == [(1, -3)]
    assert result.sizes == {-1: 3}


def test_sum_of_inputs_is_a_layer() -> None:
    result = infer(node("a", "AddV2", "x x"))
    assert result.layers == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("target", "elements", "expected"),
    [
        ([-1, 20], 20, False),
        ([1, 20], 20, False),
        ([-1, 4, 5, 1], 20, True),
        ([-1, 4, 5, 3], 60, True),
        ([-1, 4, 5, 2], 40, False),
        ([-1, 4, 3], 12, False),
        ([2, 10], None, False),
        ([20, -1], None, False),
        ([-1, 4, 0, 1], None, False),
        ([-1], None, False),
    ],
)
def test_reshape_sets_the_element_count(
    target: list[int], elements: int | None, expected: bool
) -> None:
    result = infer(const("s", target, np.int32), node("y", "Reshape", "x s"))
    assert (result.elements, result.is_image) == (elements, expected)


def test_only_the_first_reshape_is_used() -> None:
    shapes = [const("s", [-1, 20], np.int32), const("t", [-1, 10], np.int32)]
    result = infer(*shapes, node("a", "Reshape", "x s"), node("y", "Reshape", "a t"))
    assert result.elements == 20


@pytest.mark.parametrize(
    ("weights", "attrs", "size"),
    [((7, 2), {}, 7), ((7, 2), {"transpose_b": True}, 2), ((7, 2), {"transpose_b": False}, 7)],
)
def test_mat_mul_sets_the_last_size(
    weights: tuple[int, int], attrs: dict[str, bool], size: int
) -> None:
    result = infer(const("w", np.ones(weights)), node("y", "MatMul", "x w", **attrs))
    assert (result.sizes, result.rank, result.layers) == ({-1: size}, 2, [(1, 0)])


def test_batch_mat_mul_does_not_set_the_rank() -> None:
    result = infer(const("w", np.ones((7, 2))), node("y", "BatchMatMulV2", "x w", adj_y=True))
    assert (result.sizes, result.rank) == ({-1: 2}, None)


def test_right_operand_of_mat_mul_is_not_used() -> None:
    result = infer(const("w", np.ones((7, 2))), node("y", "MatMul", "w x"))
    assert (result.sizes, result.layers) == ({}, [(1, 0)])


@pytest.mark.parametrize(("layout", "axis", "first"), [("NHWC", -1, False), ("NCHW", -3, True)])
def test_convolution_sets_the_channels(layout: str, axis: int, first: bool) -> None:
    result = infer(const("w", np.ones((3, 3, 5, 2))), conv("y", "x w", data_format=layout))
    assert (result.sizes, result.rank) == ({axis: 5}, 4)
    assert (result.is_image, result.channels_first) == (True, first)


def test_convolution_after_transpose_does_not_set_sizes() -> None:
    result = infer(
        const("p", [0, 2, 3, 1], np.int32),
        node("t", "Transpose", "x p"),
        const("w", np.ones((3, 3, 5, 2))),
        conv("y", "t w"),
    )
    assert (result.sizes, result.rank, result.is_image) == ({}, None, True)


def test_conv3d() -> None:
    filters = const("w", np.ones((3, 3, 3, 5, 2)))
    result = infer(filters, conv("y", "x w", "Conv3D", data_format="NCDHW"))
    assert (result.sizes, result.rank, result.channels_first) == ({-4: 5}, 5, True)


def test_batch_norm_sets_the_range() -> None:
    numbers = {"scale": [1, 1], "offset": [0, 0], "mean": [10, 20], "variance": [4, 9]}
    nodes = [const(name, values) for name, values in numbers.items()]
    norm = node("y", "FusedBatchNormV3", f"x {' '.join(numbers)}")
    # Two standard deviations on both sides: 10 - 2 * 2, and 20 + 2 * 3.
    assert infer(*nodes, norm).limits == (6, 26)


@pytest.mark.parametrize(("scale", "ends"), [(2, (-0.5, 3)), (-2, (-3, 0.5))])
def test_limits_are_undone_by_scaling(scale: float, ends: tuple[float, float]) -> None:
    nodes = [const("c", scale), node("a", "Mul", "x c")]
    nodes += [node("f", "FakeQuantWithMinMaxArgs", "a", T=None, min=-1.0, max=6.0)]
    assert infer(*nodes).limits == ends


@pytest.mark.parametrize(
    ("low", "high", "ends"), [([-1], [2], (-1, 2)), ([-1, -3], [2, 5], (-3, 5)), ([2], [2], None)]
)
def test_limits_from_constants(
    low: list[float], high: list[float], ends: tuple[float, float] | None
) -> None:
    vars_ = node("f", "FakeQuantWithMinMaxVarsPerChannel", "x low high", T=None)
    assert infer(const("low", low), const("high", high), vars_).limits == ends


@pytest.mark.parametrize(
    ("op", "inputs", "rows"),
    [
        ("GatherV2", "table x axis", 4),
        ("Gather", "table x", 9),
        ("GatherNd", "table x", 9),
        ("Gather", "x ids", None),
        ("OneHot", "x depth", 6),
    ],
)
def test_tables_set_the_row_count(op: str, inputs: str, rows: int | None) -> None:
    result = infer(
        const("table", np.ones((9, 4))),
        const("ids", [0], np.int32),
        const("axis", 1, np.int32),
        const("depth", 6, np.int32),
        node("y", op, inputs, T=None),
    )
    assert result.rows == rows


def test_smallest_table_is_used() -> None:
    result = infer(
        const("a", np.ones((9, 4))),
        const("b", np.ones((5, 4))),
        const("c", np.ones((7, 4))),
        *(node(f"y{t}", "Gather", f"{t} x", T=None) for t in "abc"),
    )
    assert result.rows == 5


def test_first_decoder_is_used() -> None:
    result = infer(node("j", "DecodeJpeg", "x", T=None), node("p", "DecodePng", "x", T=None))
    assert result.file is not None
    assert result.file.name == "j"


def test_spectrogram_input_is_audio() -> None:
    result = infer(node("y", "AudioSpectrogram", "x", T=None))
    assert (result.is_audio, result.layers) == (True, [(1, 0)])


def test_resized_input_is_an_image() -> None:
    result = infer(const("s", [8, 8], np.int32), node("y", "ResizeBilinear", "x s"))
    assert (result.is_image, result.rank) == (True, 4)


def test_split_outputs_are_followed() -> None:
    result = infer(
        const("axis", 0, np.int32),
        node("s", "Split", "axis x", num_split=2),
        const("c", 3),
        node("a", "Mul", "s:1 c"),
        node("y", "Relu", "a"),
        node("z", "Relu", "s"),
    )
    assert sorted(result.layers) == [(1, 0), (3, 0)]


@pytest.mark.parametrize(("low", "high"), [([], 6.0), (-6.0, []), (1.0, 1.0)])
def test_invalid_limits_are_ignored(low: Any, high: Any) -> None:
    quantized = node("q", "FakeQuantWithMinMaxVars", "x low high", T=None)
    assert infer(const("low", low), const("high", high), quantized).limits is None


def test_limits_per_channel_are_combined() -> None:
    quantized = node("q", "FakeQuantWithMinMaxVarsPerChannel", "x low high", T=None)
    nodes = [const("low", [-1.0, -3.0]), const("high", [2.0, 1.0]), quantized]
    assert infer(*nodes).limits == (-3, 2)

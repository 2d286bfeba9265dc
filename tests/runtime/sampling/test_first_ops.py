"""What the ops behind an input tell of it."""

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


def found(*nodes: Node) -> FirstOps:
    """What is found behind the placeholder x."""
    return first_ops(Graph([placeholder(), *nodes]), Ref("x"))


def scaled(op: str, inputs: str, value: Any) -> list[tuple[float, float]]:
    """The layers behind one operation with a constant."""
    return found(const("c", value), node("a", op, inputs), node("y", "Relu", "a")).layers


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
def test_operations_scale_and_shift(op: str, inputs: str, layer: tuple[float, float]) -> None:
    assert scaled(op, inputs, 4.0) == [layer]


@pytest.mark.parametrize(
    ("op", "inputs", "value"),
    [("RealDiv", "c x", 4.0), ("RealDiv", "x c", 0.0), ("Mul", "x c", 0.0)],
)
def test_what_is_no_scale_is_not_followed(op: str, inputs: str, value: float) -> None:
    assert scaled(op, inputs, value) == []


def test_scales_add_up_in_order() -> None:
    nodes = [const("c", 4), const("d", 2), node("a", "AddV2", "x c"), node("b", "Mul", "a d")]
    # (x + 4) * 2, then negated, then taken from 4.
    nodes += [node("n", "Neg", "b"), node("s", "Sub", "c n"), node("y", "Relu", "s")]
    assert found(*nodes[:4], node("y", "Relu", "b")).layers == [(2, 8)]
    assert found(*nodes).layers == [(2, 12)]


def test_of_a_constant_for_each_channel_the_mean_counts_and_the_sizes() -> None:
    told = found(const("c", [[1, 2, 6]]), node("a", "Sub", "x c"), node("y", "Relu", "a"))
    assert told.layers == [(1, -3)]
    assert told.sizes == {-1: 3}


def test_a_sum_with_what_is_no_constant_is_a_layer() -> None:
    told = found(node("a", "AddV2", "x x"))
    assert told.layers == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("target", "elements", "picture"),
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
def test_a_reshape_tells_the_elements_of_a_sample(
    target: list[int], elements: int | None, picture: bool
) -> None:
    told = found(const("s", target, np.int32), node("y", "Reshape", "x s"))
    assert (told.elements, told.is_picture) == (elements, picture)


def test_only_the_first_reshape_tells() -> None:
    shapes = [const("s", [-1, 20], np.int32), const("t", [-1, 10], np.int32)]
    told = found(*shapes, node("a", "Reshape", "x s"), node("y", "Reshape", "a t"))
    assert told.elements == 20


@pytest.mark.parametrize(
    ("weights", "attrs", "size"),
    [((7, 2), {}, 7), ((7, 2), {"transpose_b": True}, 2), ((7, 2), {"transpose_b": False}, 7)],
)
def test_a_product_tells_the_last_size(
    weights: tuple[int, int], attrs: dict[str, bool], size: int
) -> None:
    told = found(const("w", np.ones(weights)), node("y", "MatMul", "x w", **attrs))
    assert (told.sizes, told.rank, told.layers) == ({-1: size}, 2, [(1, 0)])


def test_a_product_of_many_matrices_tells_no_rank() -> None:
    told = found(const("w", np.ones((7, 2))), node("y", "BatchMatMulV2", "x w", adj_y=True))
    assert (told.sizes, told.rank) == ({-1: 2}, None)


def test_of_a_product_only_the_left_side_tells() -> None:
    told = found(const("w", np.ones((7, 2))), node("y", "MatMul", "w x"))
    assert (told.sizes, told.layers) == ({}, [(1, 0)])


@pytest.mark.parametrize(("layout", "axis", "first"), [("NHWC", -1, False), ("NCHW", -3, True)])
def test_a_convolution_tells_the_channels(layout: str, axis: int, first: bool) -> None:
    told = found(const("w", np.ones((3, 3, 5, 2))), conv("y", "x w", data_format=layout))
    assert (told.sizes, told.rank) == ({axis: 5}, 4)
    assert (told.is_picture, told.channels_first) == (True, first)


def test_behind_a_transposition_a_convolution_tells_no_size() -> None:
    told = found(
        const("p", [0, 2, 3, 1], np.int32),
        node("t", "Transpose", "x p"),
        const("w", np.ones((3, 3, 5, 2))),
        conv("y", "t w"),
    )
    assert (told.sizes, told.rank, told.is_picture) == ({}, None, True)


def test_a_convolution_of_films() -> None:
    filters = const("w", np.ones((3, 3, 3, 5, 2)))
    told = found(filters, conv("y", "x w", "Conv3D", data_format="NCDHW"))
    assert (told.sizes, told.rank, told.channels_first) == ({-4: 5}, 5, True)


def test_a_batch_norm_tells_the_range() -> None:
    numbers = {"scale": [1, 1], "offset": [0, 0], "mean": [10, 20], "variance": [4, 9]}
    nodes = [const(name, values) for name, values in numbers.items()]
    norm = node("y", "FusedBatchNormV3", f"x {' '.join(numbers)}")
    # Two standard deviations on both sides: 10 - 2 * 2, and 20 + 2 * 3.
    assert found(*nodes, norm).limits == (6, 26)


@pytest.mark.parametrize(("scale", "ends"), [(2, (-0.5, 3)), (-2, (-3, 0.5))])
def test_limits_are_those_before_scaling(scale: float, ends: tuple[float, float]) -> None:
    nodes = [const("c", scale), node("a", "Mul", "x c")]
    nodes += [node("f", "FakeQuantWithMinMaxArgs", "a", T=None, min=-1.0, max=6.0)]
    assert found(*nodes).limits == ends


@pytest.mark.parametrize(
    ("low", "high", "ends"), [([-1], [2], (-1, 2)), ([-1, -3], [2, 5], (-3, 5)), ([2], [2], None)]
)
def test_limits_from_constants(
    low: list[float], high: list[float], ends: tuple[float, float] | None
) -> None:
    vars_ = node("f", "FakeQuantWithMinMaxVarsPerChannel", "x low high", T=None)
    assert found(const("low", low), const("high", high), vars_).limits == ends


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
def test_tables_tell_their_rows(op: str, inputs: str, rows: int | None) -> None:
    told = found(
        const("table", np.ones((9, 4))),
        const("ids", [0], np.int32),
        const("axis", 1, np.int32),
        const("depth", 6, np.int32),
        node("y", op, inputs, T=None),
    )
    assert told.rows == rows


def test_the_smallest_table_counts() -> None:
    told = found(
        const("a", np.ones((9, 4))),
        const("b", np.ones((5, 4))),
        const("c", np.ones((7, 4))),
        *(node(f"y{t}", "Gather", f"{t} x", T=None) for t in "abc"),
    )
    assert told.rows == 5


def test_the_first_file_that_is_read_counts() -> None:
    told = found(node("j", "DecodeJpeg", "x", T=None), node("p", "DecodePng", "x", T=None))
    assert told.file is not None
    assert told.file.name == "j"


def test_sound_is_taken_apart_into_frequencies() -> None:
    told = found(node("y", "AudioSpectrogram", "x", T=None))
    assert (told.is_sound, told.layers) == (True, [(1, 0)])


def test_a_resized_input_is_a_picture() -> None:
    told = found(const("s", [8, 8], np.int32), node("y", "ResizeBilinear", "x s"))
    assert (told.is_picture, told.rank) == (True, 4)


def test_all_parts_of_a_split_are_followed() -> None:
    told = found(
        const("axis", 0, np.int32),
        node("s", "Split", "axis x", num_split=2),
        const("c", 3),
        node("a", "Mul", "s:1 c"),
        node("y", "Relu", "a"),
        node("z", "Relu", "s"),
    )
    assert sorted(told.layers) == [(1, 0), (3, 0)]


@pytest.mark.parametrize(("low", "high"), [([], 6.0), (-6.0, []), (1.0, 1.0)])
def test_limits_that_are_none_tell_no_range(low: Any, high: Any) -> None:
    quantized = node("q", "FakeQuantWithMinMaxVars", "x low high", T=None)
    assert found(const("low", low), const("high", high), quantized).limits is None


def test_limits_are_the_ends_of_the_range() -> None:
    quantized = node("q", "FakeQuantWithMinMaxVarsPerChannel", "x low high", T=None)
    nodes = [const("low", [-1.0, -3.0]), const("high", [2.0, 1.0]), quantized]
    assert found(*nodes).limits == (-3, 2)

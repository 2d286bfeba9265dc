"""Input properties inferred from the first ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import (
    ValueRange,
    first_ops,
    largest_movement,
    movements,
    standing_still,
    type_limits,
    value_ranges,
)
from mobileprep.runtime.sampling.inputs import FedTensor
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


def runs(*values: object, kind: type = np.float32) -> list[list[np.ndarray]]:
    """Runs of a single output."""
    return [[np.asarray(v, kind)] for v in values]


@pytest.mark.parametrize(
    ("outputs", "share"),
    [
        # Largest difference from the first sample, divided by the largest magnitude.
        (runs([0, 4], [1, 4], [0, 2]), 0.5),
        (runs([0, -8], [2, -8]), 0.25),
        (runs([1, 1], [1, 1]), 0),
        (runs([0, 0], [0, 0]), 0),
        # Without another run, the rows of one run are compared.
        (runs([[0, 4], [2, 4]]), 0.5),
        (runs([[0, 4], [0, 4], [0, 1]]), 0.75),
        (runs([[1, 2]]), None),
        (runs(3), None),
        (runs([1, 2], [1, 2, 3]), 1),
        (runs([], []), 0),
        (runs([]), 0),
        # Elements that are NaN or infinite in any run are ignored.
        (runs([np.nan, 4], [1, 3]), 0.25),
        (runs([np.nan], [1]), 0),
        # Integers and strings move by the share of changed elements.
        (runs([1, 2, 3, 4], [1, 2, 3, 5], [1, 0, 0, 0], kind=np.int32), 0.75),
        (runs([True, False], [True, True], kind=np.bool_), 0.5),
        (runs([10, 20], [10, 15], kind=np.uint8), 0.25),
        (runs([b"a", b"b"], [b"a", b"c"], kind=object), 0.5),
    ],
)
def test_movement_is_relative_to_the_peak(
    outputs: list[list[np.ndarray]], share: float | None
) -> None:
    assert movements(outputs) == [share]


def test_movement_of_each_output() -> None:
    both = [[np.float32([0, 4]), np.float32([5])], [np.float32([1, 4]), np.float32([5])]]
    assert movements(both) == [0.25, 0]
    assert largest_movement(both) == 0.25


def test_movement_of_a_single_sample_is_one() -> None:
    assert largest_movement(runs([[1, 2]])) == 1
    assert largest_movement([]) == 1


def test_moving_outputs_are_not_reported() -> None:
    assert standing_still(["a"], runs([0, 100], [1, 100])) == []
    assert standing_still(["a"], runs([[1, 2]])) == []


def test_constant_outputs_are_reported() -> None:
    one, two = np.float32([100, 0]), np.float32([100, 0.5])
    [message] = standing_still(["a", "b"], [[one, one], [two, one * 2]])
    assert message.startswith(
        "outputs hardly move from sample to sample: 'a' by 0.005 of the peak; "
        "the check proves little of them"
    )
    assert "'b'" not in message


def test_empty_or_nan_outputs_are_reported_once() -> None:
    empty, lost, fine = np.zeros((0, 2)), np.array([np.nan, np.inf]), np.array([1.0, 2.0])
    messages = standing_still(["e", "l", "f"], [[empty, lost, fine], [empty, lost, fine * 2]])
    assert [line.split(";")[0] for line in messages] == [
        "outputs have no elements: 'e'",
        "the source gives nothing but NaN or infinity for 'l': the samples are unusable",
    ]


def test_output_with_elements_in_any_run_is_not_empty() -> None:
    assert standing_still(["a"], [[np.zeros(0)], [np.ones(2)]]) == []


def test_partly_nan_output_is_compared() -> None:
    assert standing_still(["a"], runs([np.nan, 0, 4], [1, 2, np.inf])) == []
    [message] = standing_still(["a"], runs([np.nan, 4], [np.nan, 4]))
    assert message.startswith("outputs hardly move")


def test_string_output_is_compared() -> None:
    [message] = standing_still(["a"], runs([b"x"], [b"x"], kind=object))
    assert message.startswith("outputs hardly move from sample to sample: 'a' by 0 ")


def ranges(
    name: str = "x", dtype: DType = DType.FLOAT, shape: Any = (1, 8), **ops: Any
) -> list[tuple[float, float]]:
    result = value_ranges(FedTensor(name, dtype, shape), FirstOps(**ops))
    return [(r.low, r.high) for r in result]


def test_8_bit_types_use_their_full_range() -> None:
    assert ranges(dtype=DType.UINT8, rows=5) == [(0, 255)]
    assert ranges(dtype=DType.INT8) == [(-128, 127)]
    assert type_limits(DType.INT32) is None
    assert type_limits(DType.STRING) is None
    assert type_limits(DType.BOOL) is None


def test_integers() -> None:
    assert ranges(dtype=DType.INT32, rows=5) == [(0, 4)]
    assert ranges(dtype=DType.INT32, is_image=True) == [(0, 255)]
    assert ranges(dtype=DType.INT64) == [(0, 1)]


def test_limits_override_names_and_layers() -> None:
    result = ranges("keep_prob", shape=(), limits=(-3.0, 4.0), layers=[(2.0, 1.0)])
    assert result == [(-3, 4)]


def test_names_override_layers() -> None:
    assert ranges("keep_prob", shape=(), layers=[(2.0, 1.0)]) == [(1, 1)]
    assert ranges("rnn_state", layers=[(2.0, 1.0)]) == [(-0.5, 0.5)]


@pytest.mark.parametrize(
    ("name", "is_state"),
    [
        ("state", True),
        ("states", True),
        ("net/hidden_state", True),
        ("lstm_state_c", True),
        ("LSTM_State", True),
        ("statement", False),
        ("estate", False),
    ],
)
def test_states_are_detected_by_name(name: str, is_state: bool) -> None:
    assert (ranges(name) == [(-0.5, 0.5)]) is is_state


def test_unknown_ranges_are_the_usual_ones() -> None:
    usual = [(0, 1), (-1, 1), (0, 255)]
    assert ranges() == usual
    assert ranges(layers=[(1.0, 0.0)]) == usual
    assert ranges(shape=None) == usual
    # Layers that disagree on the scale are ignored.
    assert ranges(layers=[(2.0, -1.0), (1.0, 0.0)]) == usual


def test_audio_ranges() -> None:
    usual = [(-1, 1), (-32768, 32767)]
    assert ranges(is_audio=True) == usual
    assert ranges(shape=(1, 16000)) == usual
    assert ranges(is_audio=True, layers=[(1 / 32768, 0.0)]) == [(-32768, 32767)]
    assert ranges(is_audio=True, layers=[(1.5, 0.0)]) == [(-1, 1)]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ((2.0, -1.0), (0, 1)),
        ((1.0, 0.0001), (-1, 1)),
        ((1 / 127.5, -1.0), (0, 255)),
        ((-1 / 127.5, 1.0), (0, 255)),
        # A scale without an offset does not center the values.
        ((2.0, 0.0), (0, 1)),
        ((1 / 255, 0.0), (0, 255)),
    ],
)
def test_usual_range_closest_to_the_scale_is_used(
    layer: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert ranges(layers=[layer], is_image=True) == [expected]


def test_unusual_ranges_are_computed_from_the_scale() -> None:
    # (x - 1000) / 10 is between -2 and 2 for x between 980 and 1020.
    assert ranges(layers=[(0.1, -100.0)]) == [(980, 1020)]
    assert ranges(layers=[(-0.1, 100.0)]) == [(980, 1020)]
    assert ranges(layers=[(0.1, -100.0)], is_image=True) == [(0, 255)]


def test_range_as_text() -> None:
    assert str(ValueRange(0, 1)) == "0 to 1 (the graph does not show the range)"
    assert str(ValueRange(0.5, 0.5, "its name tells")) == "0.5 (its name tells)"
    assert str(ValueRange(-1 / 3, 255, "so")) == "-0.3333 to 255 (so)"

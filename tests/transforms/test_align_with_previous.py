"""align_with_previous: weights near those of an earlier model become equal to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.litert_files import to_tflite
from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.targets.memmapped import memmap
from mobileprep.transforms.align_with_previous import previous_constants
from mobileprep.transforms.base import Result
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder

STEP = np.float32(1 / 8)
# 17 values from -1 to 1: as many steps as `steps` in these tests.
OLD = np.arange(-8, 9, dtype=np.float32) * STEP


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def layer(weights: np.ndarray, *more: Node) -> Graph:
    return Graph([placeholder(), const("w", weights), conv("out", "x w"), *more])


def aligned(values: np.ndarray, old: np.ndarray = OLD, **options: float) -> Result:
    """The result for a constant, with an earlier model that has one, under another name."""
    write_graph(Path("old.pb"), Graph([const("a", old)]))
    graph = Graph([const("w", values)])
    return apply("align_with_previous", graph, previous="old.pb", steps=16, **options)


def weights_of(result: Result, name: str = "w") -> np.ndarray:
    return result.graph[name].attr_tensor("value").array()


def test_near_weights_get_the_previous_values():
    change = np.zeros(17, np.float32)
    change[3:7] = STEP * np.array([0.25, -0.5, 0.51, 2], np.float32)
    result = aligned(OLD + change)
    expected = OLD.copy()
    expected[5:7] += change[5:7]
    np.testing.assert_array_equal(weights_of(result), expected)
    assert result.matched == 1


def test_tolerance_is_in_steps():
    change = np.zeros(17, np.float32)
    change[3:6] = STEP * np.array([0.25, 0.5, 1], np.float32)
    np.testing.assert_array_equal(weights_of(aligned(OLD + change, tolerance=1)), OLD)
    result = aligned(OLD + change, tolerance=0.25)
    expected = OLD + change
    expected[3] = OLD[3]
    np.testing.assert_array_equal(weights_of(result), expected)


def test_ends_of_the_range_are_kept():
    change = np.zeros(17, np.float32)
    change[[0, 16]] = 3 * STEP, -3 * STEP
    np.testing.assert_array_equal(weights_of(aligned(OLD + change)), OLD)
    change[[0, 16]] = -5 * STEP, -5 * STEP
    np.testing.assert_array_equal(
        weights_of(aligned(OLD + change))[[0, 16]], (OLD + change)[[0, 16]]
    )


def test_values_beyond_the_range_are_clipped():
    values = OLD.copy()
    values[5], values[6] = 1 + 3 * STEP, -1 - 5 * STEP
    result = weights_of(aligned(values))
    assert (result[5], result[6]) == (1, -1 - 5 * STEP)


def test_equal_constants_stay():
    result = aligned(OLD)
    assert (result.matched, dict(result.skipped)) == (0, {"it equals the previous one": 1})


@pytest.mark.parametrize(
    ("values", "old", "reason"),
    [
        (OLD[:15], OLD[:15] + 0.01, "fewer than 16 elements"),
        (OLD, OLD[:16] + 0.01, "the previous model has no similar constant"),
        (OLD, OLD.reshape(17, 1) + 0.01, "the previous model has no similar constant"),
        (OLD, np.sin(np.arange(17)), "the previous model has no similar constant"),
        (OLD, np.where(OLD > 0, np.inf, OLD), "the previous model has no similar constant"),
    ],
    ids=["small", "size", "shape", "values", "infinite"],
)
def test_other_constants_stay(values, old, reason):
    result = aligned(values, old.astype(np.float32))
    assert (result.matched, dict(result.skipped)) == (0, {reason: 1})


def test_floats_that_are_not_rounded_are_not_used():
    write_graph(Path("old.pb"), Graph([const("a", OLD)]))
    graph = Graph([const("w", OLD + np.float32(0.01))])
    result = apply("align_with_previous", graph, previous="old.pb")
    assert dict(result.skipped) == {"the previous model has no similar constant": 1}


def test_integers_and_float64_stay():
    write_graph(Path("old.pb"), Graph([const("a", OLD)]))
    graph = Graph([const("i", np.arange(17), np.int32), const("d", OLD + 0.01, np.float64)])
    result = apply("align_with_previous", graph, previous="old.pb")
    assert result.graph is graph


def test_most_similar_of_several_constants_counts():
    noise = 0.3 * STEP * np.resize([1, -1], 17).astype(np.float32)
    write_graph(Path("old.pb"), Graph([const("a", OLD + noise), const("b", OLD), const("c", -OLD)]))
    near = OLD + noise * np.float32(0.1)
    result = apply("align_with_previous", Graph([const("w", near)]), previous="old.pb", steps=64)
    np.testing.assert_array_equal(weights_of(result), OLD)


def test_unchanged_weights_get_the_same_integers():
    weights = normal(3, 3, 32, 64)
    old = apply("quantize_weights", layer(weights)).graph
    write_graph(Path("old.pb"), old)
    changed = weights.copy()
    changed[0, 0, 0] += 0.5
    # Without alignment, a new minimum changes the step, and with it almost every integer.
    changed.flat[5000] = weights.min() * 1.02
    integers = {}
    for name, chain in {"plain": layer(changed), "aligned": None}.items():
        graph = chain or apply("align_with_previous", layer(changed), previous="old.pb").graph
        quantized = apply("quantize_weights", graph).graph
        integers[name] = quantized["w_quantized_const"].attr_tensor("value").array()
    before = old["w_quantized_const"].attr_tensor("value").array()
    same = changed == weights
    np.testing.assert_array_equal(integers["aligned"][same], before[same])
    assert (integers["plain"][same] != before[same]).mean() > 0.2


def test_error_is_at_most_that_of_rounding():
    weights = normal(3, 3, 32, 64)
    write_graph(Path("old.pb"), apply("quantize_weights", layer(weights)).graph)
    (old,) = (c for c in previous_constants(Path("old.pb")) if c.values.size == weights.size)
    changed = weights + 0.01 * normal(3, 3, 32, 64, seed=1)
    result = apply("align_with_previous", layer(changed), previous="old.pb")
    step = (old.values.max() - old.values.min()) / 255
    inside = (old.values != old.values.min()) & (old.values != old.values.max())
    inside &= (changed >= old.values.min()) & (changed <= old.values.max())
    difference = np.abs(weights_of(result) - changed)[inside]
    assert difference.max() <= step * (0.5 + 1e-5)
    assert (difference > 0).mean() > 0.5


@pytest.mark.parametrize(
    ("transform", "options", "error"),
    [
        ("quantize_weights", {}, 0.02),
        ("linear_quantize_weights", {"bits": 4}, 0.2),
        ("linear_quantize_weights", {"granularity": "channel"}, 0.02),
        ("round_weights", {}, 0.02),
    ],
)
def test_stored_weights_are_decoded(transform, options, error):
    weights = normal(3, 3, 32, 64)
    graph = apply(transform, layer(weights), **options).graph
    write_graph(Path("old.pb"), graph)
    memmap(graph, "mapped.pb", min_size=1024, warn=lambda _: None)
    for path in map(Path, ("old.pb", "mapped.pb")):
        (old,) = (c for c in previous_constants(path) if c.values.shape == weights.shape)
        assert 0 < np.abs(old.values - weights).mean() < error
        assert old.step.all() == (transform != "round_weights")
        np.broadcast_to(old.step, weights.shape)


@pytest.mark.parametrize("mode", ["float", "float16", "weights", "int4"])
def test_layouts_of_litert(mode):
    shapes = {"w": (3, 3, 16, 32), "d": (3, 3, 32, 2), "m": (1024, 16)}
    weights = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    depthwise = node("depth", "DepthwiseConv2dNative", "out d", **conv("c", "").attrs)
    flat = [
        const("shape", [1, 1024], np.int32),
        node("flat", "Reshape", "depth shape", Tshape=DType.INT32),
    ]
    dense = node("dense", "MatMul", "flat m", transpose_a=False, transpose_b=False)
    image = placeholder()
    graph = Graph(
        [
            *(image, *(const(name, value) for name, value in weights.items())),
            *(conv("out", "x w"), depthwise, *flat, dense),
        ]
    )
    to_tflite(
        graph, "old.tflite", inputs=["x"], outputs=["dense"], mode=mode, shapes={"x": (1, 4, 4, 16)}
    )
    change = {name: 0.001 * normal(*shape, seed=9) for name, shape in shapes.items()}
    nodes = [
        const(n.name, weights[n.name] + change[n.name]) if n.name in shapes else n for n in graph
    ]
    result = apply(
        "align_with_previous", Graph(nodes), previous="old.tflite", steps=127, outputs=("dense",)
    )
    assert result.matched == 3
    for name, value in weights.items():
        new = weights_of(result, name)
        step = np.abs(value).max() / (7 if mode == "int4" else 127)
        assert np.abs(new - value).max() < 2 * step
        assert (new != value + change[name]).mean() > 0.4


def test_damaged_previous_model_is_an_error():
    Path("old.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(8))
    Path("old.pb").write_bytes(b"not a model")
    for name in ("old.tflite", "old.pb", "none.pb"):
        with pytest.raises(CorruptFileError) as caught:
            apply("align_with_previous", Graph([const("w", OLD)]), previous=name)
        assert name in str(caught.value)


def test_hostile_previous_model_does_not_use_much_memory():
    many = np.ones((1 << 16, 1), np.float32)
    cast = node("cast", "Cast", "codes", T=None, SrcT=DType.INT8, DstT=DType.FLOAT)
    nodes = [const("codes", many, np.int8), cast, node("centred", "Sub", "cast zero")]
    nodes += [const("zero", 0.0), const("b", many.T), node("c", "Mul", "centred b")]
    loop = [node("u", "Sub", "v v"), node("v", "Cast", "u", T=None, SrcT=DType.INT8)]
    write_graph(Path("old.pb"), Graph([*nodes, *loop, node("w", "Mul", "u b")]))
    assert [c.values.shape for c in previous_constants(Path("old.pb"))] == [(1, 1 << 16)]


def test_products_of_floats_are_not_scales():
    nodes = [const("a", OLD), const("b", 8.0), node("c", "Mul", "a b")]
    write_graph(Path("old.pb"), Graph(nodes))
    assert [c.values.tolist() for c in previous_constants(Path("old.pb"))] == [OLD.tolist()]


def test_ranges_of_channels_in_the_middle_are_not_used():
    ranges = [const("low", [-1.0, -2.0]), const("high", [1.0, 2.0])]
    codes = const("codes", np.zeros((2, 3, 4)), np.uint8)
    types = {"T": DType.QUINT8, "mode": "MIN_FIRST", "axis": 0}
    write_graph(
        Path("old.pb"), Graph([codes, *ranges, node("w", "Dequantize", "codes low high", **types)])
    )
    assert list(previous_constants(Path("old.pb"))) == []

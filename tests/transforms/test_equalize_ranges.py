"""equalize_ranges: channels between layers are scaled, and the graph computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

IMAGE = (2, 6, 6, 3)
INT = {"Tidx": DType.INT32}
# Channels that a network gained or lost a power of two in, the same each time.
FACTORS = 2.0 ** np.array([0, 6, -6, 3, -2, 5, -4, 1, 4, -1, 2])
EXAMPLE_NODES = [
    const("more_first", normal(1, 1, 4, 5) * FACTORS[:5]),
    conv("more_before", "x more_first"),
    node("more_rectified", "Relu", "more_before"),
    const("more_second", normal(1, 1, 5, 2)),
    conv("more_behind", "more_rectified more_second"),
]


def uneven(*shape: int, seed: int = 0) -> np.ndarray:
    """Weights whose output channels differ by powers of two."""
    return normal(*shape, seed=seed) * FACTORS[: shape[-1]].astype(np.float32)


def between(*nodes: Node, last: str = "act", first: Node | None = None, behind=None) -> Graph:
    """Two convolutions with something in between: from ``biased`` to ``last``."""
    return Graph(
        [
            placeholder(),
            const("w", uneven(3, 3, 3, 8)),
            first or conv("layer", "x w"),
            const("b", normal(8, seed=1) * FACTORS[:8]),
            node("biased", "BiasAdd", "layer b", data_format="NHWC"),
            *nodes,
            *(behind or [const("w2", normal(1, 1, 8, 4, seed=2)), conv("out", f"{last} w2")]),
        ]
    )


RELU = node("act", "Relu", "biased")
PADS = const("pads", [[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)
DENSE = const("w2", normal(8, 4, seed=2))
MATMUL = node("out", "MatMul", "flat w2")
AXES = const("axes", [1, 2], np.int32)
POOL = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}
SIDE = [const("w3", uneven(3, 3, 3, 8, seed=4)), conv("side", "x w3")]


def _wide(factor: int) -> list[Node]:
    return [const("w2", normal(8 * factor, 4, seed=2)), MATMUL]


MATCHES = {
    "Relu": between(RELU),
    "LeakyRelu": between(node("act", "LeakyRelu", "biased", alpha=0.1)),
    "no activation": between(last="biased"),
    "Relu6": between(node("act", "Relu6", "biased")),
    "Minimum": between(RELU, const("k", 3.0), node("low", "Minimum", "k act"), last="low"),
    "PReLU": between(
        node("up", "Relu", "biased"),
        node("minus", "Neg", "biased"),
        node("down", "Relu", "minus"),
        const("slope", -normal(8, seed=3)),
        node("sloped", "Mul", "slope down"),
        node("act", "Add", "up sloped"),
    ),
    "Pad": between(RELU, PADS, node("p", "Pad", "act pads", Tpaddings=DType.INT32), last="p"),
    "padded channels": between(
        RELU,
        const("few", [[0, 0], [0, 0], [0, 0], [1, 2]], np.int32),
        node("wide", "Pad", "act few", Tpaddings=DType.INT32),
        const("w3", uneven(3, 3, 3, 11, seed=4)),
        conv("side", "x w3"),
        node("sum", "Add", "side wide"),
        behind=[const("w2", normal(1, 1, 11, 4)), conv("out", "sum w2")],
    ),
    "MaxPool": between(RELU, node("pool", "MaxPool", "act", **POOL), last="pool"),
    "AvgPool": between(RELU, node("pool", "AvgPool", "act", **POOL), last="pool"),
    "Mean": between(
        RELU, AXES, node("flat", "Mean", "act axes", keep_dims=False, **INT), behind=_wide(1)
    ),
    "flattened": between(
        RELU,
        const("shape", [-1, 288], np.int32),
        node("flat", "Reshape", "act shape", Tshape=DType.INT32),
        behind=_wide(36),
    ),
    "depthwise": between(
        RELU,
        const("d", uneven(3, 3, 8, 1, seed=5)),
        conv("deep", "act d", "DepthwiseConv2dNative"),
        node("act2", "Relu6", "deep"),
        last="act2",
    ),
    "two takers": between(
        RELU,
        behind=[
            const("w2", normal(1, 1, 8, 4, seed=2)),
            conv("left", "act w2"),
            const("w4", normal(3, 3, 8, 4, seed=3)),
            conv("right", "act w4"),
            node("out", "Add", "left right"),
        ],
    ),
    "a sum of layers": between(*SIDE, node("act", "AddV2", "biased side")),
    "joined": between(
        *SIDE,
        const("axis", 3, np.int32),
        node("act", "ConcatV2", "biased side axis", N=2, **INT),
        behind=[const("w2", normal(1, 1, 16, 4, seed=2)), conv("out", "act w2")],
    ),
    "gated": between(
        node("act", "Relu", "biased"),
        const("every", [1, 2, 3], np.int32),
        node("mean", "Mean", "x every", keep_dims=False, **INT),
        const("flat", [-1, 1, 1, 1], np.int32),
        node("gate0", "Reshape", "mean flat", Tshape=DType.INT32),
        node("gate", "Sigmoid", "gate0"),
        node("gated", "Mul", "act gate"),
        last="gated",
    ),
    "its shape asked for": between(RELU, node("shape", "Shape", "act", out_type=DType.INT32)),
    "resized": between(
        RELU,
        const("size", [9, 7], np.int32),
        node("big", "ResizeBilinear", "act size", align_corners=False),
        last="big",
    ),
    "in blocks": between(
        RELU,
        const("block", [2, 2], np.int32),
        const("edges", [[1, 1], [0, 2]], np.int32),
        node(
            "far", "SpaceToBatchND", "act block edges", Tblock_shape=DType.INT32,
            Tpaddings=DType.INT32,
        ),
        last="far",
    ),
    "transposed convolution": between(
        RELU,
        behind=[
            const("w2", normal(2, 2, 4, 8, seed=2)),
            const("size", [2, 12, 12, 4], np.int32),
            node(
                "out", "Conv2DBackpropInput", "size w2 act", strides=(1, 2, 2, 1),
                padding="SAME", data_format="NHWC",
            ),
        ],
    ),
    "a bias of its own shape": between(
        const("c", normal(1, 1, 1, 8, seed=9)), node("act", "Add", "c biased")
    ),
    "a scalar": between(const("c", 0.5), node("act", "Sub", "c biased")),
}  # fmt: skip


@pytest.mark.parametrize("case", MATCHES)
def test_powers_of_two_give_the_same_to_the_bit(case):
    graph = MATCHES[case]
    result = apply("equalize_ranges", graph, powers_of_two=True)
    assert result.matched >= 1
    x = normal(*IMAGE, seed=7) * 3
    np.testing.assert_array_equal(run(result.graph, x), run(graph, x))


@pytest.mark.parametrize("case", MATCHES)
def test_other_scales_give_the_same_up_to_rounding(case):
    graph = MATCHES[case]
    result = apply("equalize_ranges", graph)
    x = normal(*IMAGE, seed=7) * 3
    expected = run(graph, x)
    # Weights and activations are rounded anew, at 6e-8 each, some hundred of them in a sum.
    np.testing.assert_allclose(run(result.graph, x), expected, atol=2e-6 * np.abs(expected).max())


# A second constant that is added counts in another way once it is scaled with the first.
@pytest.mark.parametrize("case", sorted(set(MATCHES) - {"a bias of its own shape", "a scalar"}))
def test_second_run_changes_nothing(case):
    once = apply("equalize_ranges", MATCHES[case], powers_of_two=True).graph
    assert apply("equalize_ranges", once, powers_of_two=True).matched == 0


def spread(weights: np.ndarray) -> float:
    """The greatest range of a channel over the least."""
    peaks = np.abs(weights).reshape(-1, weights.shape[-1]).max(axis=0)
    return float(peaks.max() / peaks.min())


def test_channels_on_both_sides_have_one_range_then():
    """The scale is sqrt(r1 / r2), as in the paper."""
    graph = between(RELU)
    after = apply("equalize_ranges", graph).graph
    first, second = (after[n].attr_tensor("value").array() for n in ("w", "w2"))
    np.testing.assert_allclose(
        np.abs(first).max(axis=(0, 1, 2)), np.abs(second).max(axis=(0, 1, 3)), rtol=1e-2
    )


def test_golden():
    graph = between(node("act", "Relu6", "biased"))
    result = apply("equalize_ranges", graph)
    assert result.matched == 1
    assert result.skipped == {"its output is an input or output of the graph": 1}
    assert (
        shown(result.graph)
        == """\
x = Placeholder()
w = Const() value=float32[3, 3, 3, 8]
layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1
b = Const() value=float32[8]
biased = BiasAdd(layer, b) T=float32 data_format=NHWC
act/relu = Relu(biased) T=float32
act/bound = Const() value=float32[8]
act = Minimum(act/relu, act/bound) T=float32
w2 = Const() value=float32[1, 1, 8, 4]
out = Conv2D(act, w2) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1"""
    )


NEAR_MISSES = {
    "Relu6 is kept": (
        between(node("act", "Relu6", "biased")),
        {"relu6": "keep"},
        "a Relu6 has one bound for all channels",
    ),
    "Sigmoid": (between(node("act", "Sigmoid", "biased")), {}, "its channels go to Sigmoid"),
    "another number around it": (
        between(
            PADS, const("one", 1.0),
            node("act", "PadV2", "biased pads one", Tpaddings=DType.INT32),
        ),
        {},
        "it is padded with another number than zero",
    ),
    "channels padded with another number": (
        between(
            const("few", [[0, 0], [0, 0], [0, 0], [1, 0]], np.int32), const("one", 1.0),
            node("act", "PadV2", "biased few one", Tpaddings=DType.INT32),
            behind=[const("w2", normal(1, 1, 9, 4)), conv("out", "act w2")],
        ),
        {},
        "the channels are padded",
    ),
    "a sum with what is not scaled": (
        between(
            const("grown", [0, 0], np.int32), const("w9", normal(1, 1, 3, 8)),
            conv("plain", "x w9"), node("squashed", "Tanh", "plain"),
            node("act", "Add", "biased squashed"),
        ),
        {},
        "Add combines its channels with tensors that are not scaled",
    ),
    "a mean over channels": (
        between(
            const("axes", [3], np.int32),
            node("act", "Mean", "biased axes", keep_dims=True, **INT),
            behind=[const("w2", normal(1, 1, 1, 4)), conv("out", "act w2")],
        ),
        {},
        "Mean takes channels together",
    ),
    "texts in place of axes": (
        between(
            const("axes", b"1", object),
            node("act", "Mean", "biased axes", keep_dims=True, **INT),
        ),
        {},
        "its channels go to Mean",
    ),
    "a text in place of an axis": (
        between(
            const("axis", b"3", object),
            node("act", "ConcatV2", "biased biased axis", N=2, Tidx=DType.INT32),
            behind=[const("w2", normal(1, 1, 16, 4)), conv("out", "act w2")],
        ),
        {},
        "ConcatV2 has computed parameters",
    ),
    "channels multiplied with each other": (
        between(node("act", "Mul", "biased biased")),
        {},
        "its channels go to Mul with others",
    ),
    "channels as divisors": (
        between(const("one", 1.0), node("act", "RealDiv", "one biased")),
        {},
        "it divides by its channels",
    ),
    "a bound that is no vector": (
        between(const("k", normal(6, 1, 1)), node("act", "Minimum", "biased k")),
        {},
        "the constant of Minimum is not one number for each channel",
    ),
    "a normalization between": (
        between(
            *(const(n, np.ones(8)) for n in ("g", "be", "m", "v")),
            node("act", "FusedBatchNorm", "biased g be m v", is_training=False, epsilon=0.1),
        ),
        {},
        "a batch normalization is not fused yet",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_near_misses_stay(case):
    graph, options, reason = NEAR_MISSES[case]
    result = apply("equalize_ranges", graph, **options)
    assert result.graph is graph
    assert reason in result.skipped


def test_fetched_and_fed_nodes_stay():
    graph = between(RELU)
    for outputs, inputs in ((("out", "act"), ("x",)), (("out",), ("x", "biased"))):
        result = apply("equalize_ranges", graph, outputs=outputs, inputs=inputs)
        assert result.graph is graph


def test_weights_that_others_use_stay():
    graph = between(RELU, const("e", 1.0), node("used", "Mul", "w e"))
    result = apply("equalize_ranges", graph, outputs=("out", "used"))
    assert result.graph is graph
    assert result.skipped["its weights are shared, computed or no floats"] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_stay(value):
    weights = uneven(3, 3, 3, 8)
    weights[0, 0, 0, 0] = value
    graph = Graph([const("w", weights) if n.name == "w" else n for n in between(RELU)])
    result = apply("equalize_ranges", graph)
    assert result.graph is graph
    assert result.skipped["its weights are not finite"] == 1


def test_weights_that_were_in_eight_bits_before_stay():
    """They lose nothing there as they are, and would once their channels are scaled."""
    steps = np.random.default_rng(0).integers(0, 256, (3, 3, 3, 64)).astype(np.float32)
    for weights, matched in ((steps, 0), (steps * 2.0 ** (np.arange(64) % 7), 1)):
        graph = Graph(
            [
                placeholder(),
                const("w", weights),
                conv("layer", "x w"),
                node("act", "Relu", "layer"),
                const("w2", normal(1, 1, 64, 4)),
                conv("out", "act w2"),
            ]
        )
        result = apply("equalize_ranges", graph)
        assert result.matched == matched
        reason = "its weights fit 8 bits as they are: they have 256 values at most"
        assert result.skipped[reason] == 1 - matched


def test_a_bias_that_others_use_is_copied():
    graph = between(RELU, node("twice", "Mul", "b b"))
    after = apply("equalize_ranges", graph, outputs=("out", "twice"), powers_of_two=True).graph
    x = normal(*IMAGE)
    for output in ("out", "twice"):
        np.testing.assert_array_equal(run(after, x, output), run(graph, x, output))
    assert [str(r) for r in after["biased"].inputs] == ["layer", "biased/scaled"]


def test_a_dead_channel_does_not_blow_up_its_bias():
    """Weights of 1e-20 with a bias of one: scaled to the others' range, the bias was huge."""
    weights = normal(3, 3, 3, 8)
    weights[..., 2] *= 1e-20
    graph = Graph([const("w", weights) if n.name == "w" else n for n in between(RELU)])
    graph = Graph([const("b", np.ones(8)) if n.name == "b" else n for n in graph])
    after = apply("equalize_ranges", graph).graph
    assert np.abs(after["b"].attr_tensor("value").array()).max() < 64


@pytest.mark.parametrize("zero", ["w", "w2"])
def test_channels_without_weights_keep_their_scale(zero):
    values = np.zeros((3, 3, 3, 8) if zero == "w" else (1, 1, 8, 4), np.float32)
    graph = Graph([const(zero, values) if n.name == zero else n for n in between(RELU)])
    assert apply("equalize_ranges", graph).graph is graph


def test_layers_of_a_loop_s_turn_stay_as_they_are():
    nodes = [
        placeholder(),
        const("w", uneven(1, 1, 3, 3)),
        const("w2", normal(1, 1, 3, 3)),
        conv("layer", "x w"),
        node("enter", "Enter", "layer", frame_name="f", parallel_iterations=1, is_constant=False),
        node("merge", "Merge", "enter next", N=2),
        conv("inner", "merge w2"),
        node("next", "NextIteration", "inner"),
        node("out", "Identity", "merge"),
    ]
    graph = Graph(nodes)
    assert apply("equalize_ranges", graph).graph is graph


def test_channels_first():
    graph = Graph(
        [
            placeholder(),
            const("w", uneven(3, 3, 3, 8)),
            conv("layer", "x w", data_format="NCHW"),
            const("b", normal(8, seed=1)),
            node("biased", "BiasAdd", "layer b", data_format="NCHW"),
            node("act", "Relu6", "biased"),
            AXES_NCHW,
            node("mean", "Mean", "act axes", keep_dims=False, **INT),
            DENSE,
            node("out", "MatMul", "mean w2"),
        ]
    )
    x = normal(2, 3, 6, 6)
    result = apply("equalize_ranges", graph, powers_of_two=True)
    assert result.matched == 1
    np.testing.assert_array_equal(run(result.graph, x), run(graph, x))


AXES_NCHW = const("axes", [2, 3], np.int32)


def rescaled(factors: np.ndarray) -> Graph:
    """A network with channels scaled up before and down behind its Relu."""
    new = {
        "w": normal(3, 3, 3, 8) * factors,
        "b": normal(8, seed=1) * factors,
        "w2": normal(1, 1, 8, 4, seed=2) / factors[:, None],
    }
    return Graph([const(n.name, new[n.name]) if n.name in new else n for n in between(RELU)])


def test_rescaled_channels_lose_no_more_in_eight_bits_than_even_ones():
    x = normal(*IMAGE, seed=7)
    expected = run(rescaled(np.ones(8)), x)

    def off(graph: Graph) -> float:
        stored = apply("quantize_weights", graph, minimum_size=1).graph
        return float(np.sqrt(np.square(run(stored, x) - expected).mean()) / expected.std())

    uneven_channels = rescaled(FACTORS[:8])
    assert off(uneven_channels) > 0.1
    # Where the rounding falls is chance: twice as much is still a step of eight bits.
    even = off(rescaled(np.ones(8)))
    assert off(apply("equalize_ranges", uneven_channels).graph) < 2 * even < 0.02

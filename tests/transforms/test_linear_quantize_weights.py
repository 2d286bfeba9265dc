"""linear_quantize_weights: constants of two to eight bits that plain ops decode."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.kernel_classes import kernel_class, kernel_files
from mobileprep.graph.serde import graph_to_bytes
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

NAME = "linear_quantize_weights"
BITS = range(2, 9)
every_bits = pytest.mark.parametrize("bits", BITS)
EXAMPLE_NODES = [const("more_large", normal(64, 32))]


def layer(weights: np.ndarray, op: str = "Conv2D") -> Graph:
    return Graph([placeholder(), const("w", weights), conv("out", "x w", op)])


def decoded(weights: np.ndarray, op: str = "Conv2D", **options) -> np.ndarray:
    result = apply(NAME, layer(weights, op), outputs=("w", "out"), minimum_size=1, **options)
    assert result.matched == 1
    return run(result.graph, np.zeros((1, 4, 4, weights.shape[2]), np.float32), "w")


@every_bits
@pytest.mark.parametrize("shape", [(3, 3, 7, 33), (1, 1, 64, 16), (5, 5, 3, 11)])
def test_every_element_is_off_by_half_a_step_at_most_or_is_clipped(bits, shape):
    weights = normal(*shape)
    back = decoded(weights, bits=bits)
    steps = np.array([np.diff(np.unique(back[..., i])).min() for i in range(shape[-1])])
    assert all(len(np.unique(back[..., i])) <= 2**bits for i in range(shape[-1]))
    inside = (weights >= back.min(axis=(0, 1, 2))) & (weights <= back.max(axis=(0, 1, 2)))
    # Half a step, and a float32's rounding of some tens of steps.
    assert (np.abs(back - weights)[inside] <= np.broadcast_to(steps * 0.50001, shape)[inside]).all()


@every_bits
def test_a_file_has_so_many_bits_for_each_element(bits):
    graph = layer(normal(3, 3, 64, 128))
    after = apply(NAME, graph, bits=bits).graph
    size = 3 * 3 * 64 * 128 * bits / 8
    # A scale for each of 128 channels, and some 40 small nodes.
    assert size < len(graph_to_bytes(after)) < size + 4 * 128 + 4000


@every_bits
def test_a_scale_for_each_channel_loses_less(bits):
    weights = normal(3, 3, 16, 8) * (2.0 ** np.arange(8)).astype(np.float32)
    whole, each = (
        np.square(decoded(weights, bits=bits, granularity=g) - weights)[..., 0].mean()
        for g in ("tensor", "channel")
    )
    assert each < whole / 4


@every_bits
def test_zero_stays_zero(bits):
    weights = normal(3, 3, 16, 8) + 0.3
    weights[np.abs(weights) < 0.5] = 0
    assert (decoded(weights, bits=bits)[weights == 0] == 0).all()


@every_bits
@pytest.mark.parametrize("value", [0.0, 1.5, -3.0, 1e-42, 3e38])
def test_equal_elements_come_back(bits, value):
    weights = np.full((1, 1, 64, 32), value, np.float32)
    # A number below the least normal one is no weight: it may become zero.
    np.testing.assert_allclose(decoded(weights, bits=bits), weights, rtol=1e-6, atol=2e-38)


def test_zero_channel_is_quantized():
    weights = normal(3, 3, 16, 8)
    weights[..., 3] = 0
    back = decoded(weights)
    assert (back[..., 3] == 0).all()
    np.testing.assert_allclose(back, weights, atol=0.02)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_longer_side_has_the_step_more(sign):
    """Codes reach one further below zero than above, so a scale may be negative."""
    weights = np.tile(sign * np.array([-1.0, 0, 2.0, 1.0], np.float32), 512).reshape(1, 1, -1, 1)
    np.testing.assert_array_equal(decoded(weights, bits=2), weights)


def test_golden():
    graph = layer(normal(3, 3, 8, 16))
    assert (
        shown(apply(NAME, graph).graph)
        == """\
x = Placeholder()
w_codes = Const() value=uint8[3, 3, 8, 16]
w_cast = Cast(w_codes) DstT=float32 SrcT=uint8
decoding/zero = Const() value=float32[]:128
w_centred = Sub(w_cast, decoding/zero) T=float32
w_scale = Const() value=float32[16]
w = Mul(w_centred, w_scale) T=float32
out = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1"""
    )


def test_golden_of_five_bits():
    graph = layer(normal(3, 3, 13, 17))
    assert (
        shown(apply(NAME, graph, bits=5).graph)
        == """\
x = Placeholder()
w_codes_4 = Const() value=uint8[996, 1]
decoding/down_4 = Const() value=uint8[2]
decoding/mask_4 = Const() value=uint8[]:15
decoding/flat = Const() value=int32[1]:-1
w_shifted_4 = RightShift(w_codes_4, decoding/down_4) T=uint8
w_masked_4 = BitwiseAnd(w_shifted_4, decoding/mask_4) T=uint8
w_flat_4 = Reshape(w_masked_4, decoding/flat) T=uint8 Tshape=int32
decoding/up_1 = Const() value=uint8[]:1
w_placed_4 = LeftShift(w_flat_4, decoding/up_1) T=uint8
w_codes_1 = Const() value=uint8[249, 1]
decoding/down_1 = Const() value=uint8[8]
decoding/mask_1 = Const() value=uint8[]:1
w_shifted_1 = RightShift(w_codes_1, decoding/down_1) T=uint8
w_masked_1 = BitwiseAnd(w_shifted_1, decoding/mask_1) T=uint8
w_flat_1 = Reshape(w_masked_1, decoding/flat) T=uint8 Tshape=int32
w_with_1 = BitwiseOr(w_placed_4, w_flat_1) T=uint8
decoding/begin = Const() value=int32[1]:0
w_size = Const() value=int32[1]:1989
w_cut = Slice(w_with_1, decoding/begin, w_size) Index=int32 T=uint8
w_shape = Const() value=int32[4]
w_shaped = Reshape(w_cut, w_shape) T=uint8 Tshape=int32
w_cast = Cast(w_shaped) DstT=float32 SrcT=uint8
decoding/zero = Const() value=float32[]:16
w_centred = Sub(w_cast, decoding/zero) T=float32
w_scale = Const() value=float32[17]
w = Mul(w_centred, w_scale) T=float32
out = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1"""
    )


SCALES = {
    "depthwise": (conv("out", "x w", "DepthwiseConv2dNative"), (3, 3, 32, 4), (32, 4)),
    "transposed MatMul": (node("out", "MatMul", "x w", transpose_b=True), (24, 64), (24, 1)),
    "MatMul": (node("out", "MatMul", "x w"), (64, 24), (24,)),
    "transposed convolution": (
        node("out", "Conv2DBackpropInput", "size w x", strides=(1, 1, 1, 1), padding="SAME"),
        (3, 3, 16, 8),
        (16, 1),
    ),
    "a table": (
        node("out", "GatherV2", "w x zero", T=None, Tparams=DType.FLOAT, Tindices=DType.INT64,
             Taxis=DType.INT32),
        (64, 24),
        (64, 1),
    ),
    "no layer": (node("out", "Add", "x w"), (64, 24), ()),
}  # fmt: skip


@pytest.mark.parametrize("case", SCALES)
def test_scales_run_along_the_channels_that_a_layer_puts_out(case):
    user, shape, expected = SCALES[case]
    more = [const("size", [1, 4, 4, 16], np.int32), const("zero", 0, np.int32)]
    graph = Graph([placeholder(), *more, const("w", normal(*shape)), user])
    after = apply(NAME, graph, minimum_size=16).graph
    assert after["w_scale"].attr_tensor("value").shape == expected


def test_layers_that_disagree_share_one_scale():
    graph = Graph(
        [
            placeholder(),
            const("w", normal(32, 32)),
            node("one", "MatMul", "x w"),
            node("out", "MatMul", "one w", transpose_b=True),
        ]
    )
    after = apply(NAME, graph, minimum_size=16).graph
    assert after["w_scale"].attr_tensor("value").shape == ()
    x = normal(2, 32)
    np.testing.assert_allclose(run(after, x), run(graph, x), atol=2)


def test_weights_behind_an_identity_have_a_scale_for_each_channel():
    graph = Graph(
        [placeholder(), const("w", normal(3, 3, 8, 16)), node("read", "Identity", "w"),
         conv("out", "x read")]
    )  # fmt: skip
    after = apply(NAME, graph).graph
    assert after["w_scale"].attr_tensor("value").shape == (16,)


@every_bits
def test_weights_that_were_in_as_few_bits_before_come_back(bits):
    codes = np.random.default_rng(0).integers(0, 2**bits, (3, 3, 16, 16))
    codes.flat[:2] = 0, 2**bits - 1
    weights = ((codes - 1) * np.float32(0.037)).astype(np.float32)
    # The step is found from the range, rounded to float32.
    np.testing.assert_allclose(decoded(weights, bits=bits), weights, rtol=1e-6)


NEAR_MISSES = {
    "small": (normal(3, 3, 4, 4), "fewer elements than minimum_size"),
    "infinite": (np.where(normal(3, 3, 16, 16) > 3, np.inf, 1), "it holds infinity or NaN"),
    "NaN": (np.full((3, 3, 16, 16), np.nan), "it holds infinity or NaN"),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_near_misses_stay(case):
    weights, reason = NEAR_MISSES[case]
    graph = layer(weights)
    result = apply(NAME, graph)
    assert result.graph is graph
    assert result.skipped == {reason: 1}


def test_weights_that_would_grow_stay():
    graph = layer(normal(3, 3, 4, 4))
    result = apply(NAME, graph, minimum_size=1, bits=7)
    assert result.graph is graph
    assert result.skipped == {"what decodes it would take more than is saved": 1}


def test_variances_stay():
    graph = Graph([const("v", abs(normal(2048))), node("out", "Rsqrt", "v")])
    result = apply(NAME, graph)
    assert result.graph is graph
    assert result.skipped == {"a variance, where small values weigh the most": 1}


def test_constants_of_a_branch_stay_tied_to_it():
    graph = Graph(
        [
            placeholder("p", DType.BOOL),
            node("switch", "Switch", "p p", T=DType.BOOL),
            const("w", normal(64, 64), inputs="^switch"),
            const("u", normal(64, 64)),
        ]
    )
    after = apply(NAME, graph, bits=4).graph
    for name in ("w_codes_4", "decoding/mask_4", "w_scale"):
        assert [str(r) for r in after[name].inputs] == ["^switch"]
    for name in ("u_codes_4", "decoding/mask_4_1", "u_scale"):
        assert after[name].inputs == ()


@every_bits
def test_folding_constants_leaves_it(bits):
    after = apply(NAME, layer(normal(3, 3, 16, 16)), bits=bits).graph
    folded = apply("fold_constants", after)
    assert folded.skipped["it decodes weights that are stored in fewer bits"] == 1
    assert folded.graph["w"].op == "Mul"


@every_bits
@pytest.mark.parametrize("release", ["1.15", "2.21"])
def test_default_mobile_builds_have_every_op_of_it(bits, release):
    after = apply(NAME, layer(normal(3, 3, 13, 17)), bits=bits).graph
    decoding = [n for n in after if n.name not in ("x", "out")]
    assert all(kernel_class(n, release) for n in decoding)
    files = kernel_files({n.op for n in decoding}, release)
    assert (files.added, files.unplaced) == ((), ())

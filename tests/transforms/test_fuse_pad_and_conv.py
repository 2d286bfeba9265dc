"""fuse_pad_and_conv: MirrorPad and Conv2D become one op."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

OUT = node("out", "Identity", "layer")


def _graph(*more, pad=None, paddings=None, **attrs):
    return Graph(
        [
            placeholder(),
            const("paddings", [[0, 0], [1, 1], [2, 2], [0, 0]], np.int32)
            if paddings is None
            else paddings,
            pad or node("pad", "MirrorPad", "x paddings", Tpaddings=DType.INT32, mode="REFLECT"),
            const("w", normal(3, 3, 4, 5)),
            conv("layer", "pad w", **attrs),
            *(more or [OUT]),
        ]
    )


@pytest.mark.parametrize("tf115", [True, False])
def test_the_pair_becomes_one_op(tf115):
    result = apply("fuse_pad_and_conv", _graph(), tf115=tf115)
    assert result.matched == 1
    assert "one image" in result.warnings[0]
    assert shown(result.graph) == (
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "x = Placeholder()\n"
        "paddings = Const() value=int32[4, 2]\n"
        "layer = FusedPadConv2D(x, paddings, w)"
        " T=float32 mode=REFLECT padding=SAME strides=1,1,1,1\n"
        "out = Identity(layer) T=float32"
    )


def test_the_fused_op_gives_the_same_numbers():
    graph = _graph()
    x = normal(1, 6, 6, 4, seed=5)
    after = apply("fuse_pad_and_conv", graph).graph
    # The same products, summed in another order.
    np.testing.assert_allclose(run(after, x), run(graph, x), rtol=1e-5, atol=1e-5)


NEAR_MISSES = {
    "channels first": _graph(data_format="NCHW"),
    "dilations": _graph(dilations=(1, 2, 2, 1)),
    "explicit padding": _graph(padding="EXPLICIT"),
    "does not take the type": _graph(T=DType.BFLOAT16),
    "int32": _graph(
        pad=node("pad", "MirrorPad", "x paddings", Tpaddings=DType.INT64, mode="REFLECT"),
        paddings=const("paddings", np.zeros((4, 2)), np.int64),
    ),
    "needs would be lost": _graph(node("relu", "Relu", "pad"), OUT),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_unfusable_pattern_is_skipped_with_a_reason(reason, tf115):
    graph = NEAR_MISSES[reason]
    result = apply("fuse_pad_and_conv", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == graph.by_name


def test_zero_padding_does_not_match():
    graph = _graph(pad=node("pad", "Pad", "x paddings", Tpaddings=DType.INT32))
    assert apply("fuse_pad_and_conv", graph).graph is graph


def test_fetched_padding_is_skipped():
    assert apply("fuse_pad_and_conv", _graph(), outputs=("pad", "out")).matched == 0


def test_control_inputs_survive():
    pad = node("pad", "MirrorPad", "x paddings ^x", Tpaddings=DType.INT32, mode="REFLECT")
    fused = apply("fuse_pad_and_conv", _graph(pad=pad)).graph["layer"]
    assert [str(r) for r in fused.inputs] == ["x", "paddings", "w", "^x"]


def test_a_recipe_fuses_all_pairs_that_share_an_input_and_the_original_one_of_them():
    graph = _graph(
        node("pad2", "MirrorPad", "x paddings", Tpaddings=DType.INT32, mode="REFLECT"),
        conv("layer2", "pad2 w"),
        node("out", "Add", "layer layer2"),
    )
    assert apply("fuse_pad_and_conv", graph).matched == 2
    assert apply("fuse_pad_and_conv", graph, tf115=True).matched == 1

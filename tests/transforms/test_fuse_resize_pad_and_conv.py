"""fuse_resize_pad_and_conv: ResizeBilinear, MirrorPad and Conv2D become one op."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown


def _graph(*more, resize=None, **attrs):
    return Graph(
        [
            placeholder(),
            const("size", [9, 9], np.int32),
            const("paddings", [[0, 0], [1, 1], [2, 2], [0, 0]], np.int32),
            resize or node("resize", "ResizeBilinear", "x size", align_corners=False),
            node("pad", "MirrorPad", "resize paddings", Tpaddings=DType.INT32, mode="SYMMETRIC"),
            const("w", normal(3, 3, 4, 5)),
            conv("layer", "pad w", **attrs),
            *more,
            node("out", "Identity", "layer"),
        ]
    )


@pytest.mark.parametrize("tf115", [True, False])
def test_the_three_become_one_op(tf115):
    result = apply("fuse_resize_pad_and_conv", _graph(), tf115=tf115)
    assert result.matched == 1
    assert "one image" in result.warnings[0]
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "size = Const() value=int32[2]\n"
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "paddings = Const() value=int32[4, 2]\n"
        "layer = FusedResizeAndPadConv2D(x, size, paddings, w) T=float32"
        " mode=SYMMETRIC padding=SAME resize_align_corners=False strides=1,1,1,1\n"
        "out = Identity(layer) T=float32"
    )


def test_the_fused_op_gives_the_same_numbers():
    graph = _graph()
    x = normal(1, 6, 6, 4, seed=5)
    after = apply("fuse_resize_pad_and_conv", graph).graph
    # The same products, summed in another order.
    np.testing.assert_allclose(run(after, x), run(graph, x), rtol=1e-5, atol=1e-5)


NEAR_MISSES = {
    "dilations": _graph(dilations=(1, 2, 2, 1)),
    "half_pixel_centers": _graph(
        resize=node("resize", "ResizeBilinear", "x size", half_pixel_centers=True)
    ),
    "needs would be lost": _graph(node("relu", "Relu", "resize")),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_unfusable_pattern_is_skipped_with_a_reason(reason, tf115):
    graph = NEAR_MISSES[reason]
    result = apply("fuse_resize_pad_and_conv", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == graph.by_name


def test_padding_without_resize_does_not_match():
    graph = _graph(resize=node("resize", "Relu", "x"))
    assert apply("fuse_resize_pad_and_conv", graph).graph is graph

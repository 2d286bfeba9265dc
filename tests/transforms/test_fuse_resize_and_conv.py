"""fuse_resize_and_conv: ResizeBilinear and Conv2D become one op."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

OUT = node("out", "Identity", "layer")


def _graph(*more, resize=None, **attrs):
    return Graph(
        [
            placeholder(),
            const("size", [9, 9], np.int32),
            resize or node("resize", "ResizeBilinear", "x size", align_corners=True),
            const("w", normal(3, 3, 4, 5)),
            conv("layer", "resize w", **attrs),
            *(more or [OUT]),
        ]
    )


@pytest.mark.parametrize("tf115", [True, False])
def test_the_pair_becomes_one_op_with_a_padding_of_nothing(tf115):
    result = apply("fuse_resize_and_conv", _graph(), tf115=tf115)
    assert result.matched == 1
    assert "one image" in result.warnings[0]
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "size = Const() value=int32[2]\n"
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "layer_dummy_paddings = Const() value=int32[4, 2]\n"
        "layer = FusedResizeAndPadConv2D(x, size, layer_dummy_paddings, w) T=float32"
        " mode=REFLECT padding=SAME resize_align_corners=True strides=1,1,1,1\n"
        "out = Identity(layer) T=float32"
    )
    assert not result.graph["layer_dummy_paddings"].attr_tensor("value").array().any()


def test_the_fused_op_gives_the_same_numbers():
    graph = _graph()
    x = normal(1, 6, 6, 4, seed=5)
    after = apply("fuse_resize_and_conv", graph).graph
    # The same products, summed in another order.
    np.testing.assert_allclose(run(after, x), run(graph, x), rtol=1e-5, atol=1e-5)


NEAR_MISSES = {
    "channels first": _graph(data_format="NCHW"),
    "half_pixel_centers": _graph(
        resize=node("resize", "ResizeBilinear", "x size", half_pixel_centers=True)
    ),
    "image's type": _graph(resize=node("resize", "ResizeBilinear", "x size", T=DType.UINT8)),
    "needs would be lost": _graph(node("relu", "Relu", "resize"), OUT),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_unfusable_pattern_is_skipped_with_a_reason(reason, tf115):
    graph = NEAR_MISSES[reason]
    result = apply("fuse_resize_and_conv", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == graph.by_name


def test_other_resize_op_does_not_match():
    graph = _graph(resize=node("resize", "ResizeNearestNeighbor", "x size"))
    assert apply("fuse_resize_and_conv", graph).graph is graph


def test_existing_name_is_not_reused():
    graph = _graph(placeholder("layer_dummy_paddings"), OUT)
    fused = apply("fuse_resize_and_conv", graph, tf115=True).graph["layer"]
    assert str(fused.inputs[2]) == "layer_dummy_paddings_1"

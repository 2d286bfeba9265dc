"""flatten_atrous_conv: a convolution over a batch of sub-images becomes one over the image."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

BATCH = {"Tblock_shape": DType.INT32}


def _graph(
    *more,
    paddings=((2, 2), (2, 2)),
    crops=((0, 0), (0, 0)),
    block=(2, 2),
    after=None,
    weights=None,
    op="Conv2D",
    layer_padding="VALID",
    kind=np.int32,
    **attrs,
):
    return Graph(
        [
            placeholder(),
            const("block", block, kind),
            const("paddings", paddings, np.int32),
            node("apart", "SpaceToBatchND", "x block paddings", Tpaddings=DType.INT32, **BATCH),
            weights or const("w", normal(3, 3, 4, 5)),
            conv("layer", "apart w", op, padding=layer_padding, **attrs),
            const("after", block if after is None else after, np.int32),
            const("crops", crops, np.int32),
            node("together", "BatchToSpaceND", "layer after crops", Tcrops=DType.INT32, **BATCH),
            *(more or [node("out", "Identity", "together")]),
        ]
    )


MATCHES = {
    "SAME": (_graph(), (1, 8, 8, 4), "SAME"),
    "SAME, image no multiple of the block": (
        _graph(paddings=((2, 3), (2, 3)), crops=((0, 1), (0, 1))),
        (1, 7, 7, 4),
        "SAME",
    ),
    "VALID": (_graph(paddings=((0, 0), (0, 0))), (1, 8, 8, 4), "VALID"),
    "VALID, cropped": (
        _graph(paddings=((0, 1), (0, 1)), crops=((0, 1), (0, 1))),
        (1, 7, 7, 4),
        "VALID",
    ),
    "SAME inside": (
        _graph(paddings=((0, 0), (0, 0)), layer_padding="SAME"),
        (1, 8, 8, 4),
        "SAME",
    ),
    "blocks that differ": (
        _graph(block=(3, 1), paddings=((3, 3), (1, 1))),
        (1, 9, 8, 4),
        "SAME",
    ),
    "even filter": (
        _graph(weights=const("w", normal(2, 2, 4, 5)), paddings=((1, 1), (1, 1))),
        (1, 8, 8, 4),
        "SAME",
    ),
    "depthwise": (
        _graph(op="DepthwiseConv2dNative", weights=const("w", normal(3, 3, 4, 2))),
        (1, 8, 8, 4),
        "SAME",
    ),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", MATCHES)
def test_the_flat_convolution_gives_the_same_numbers(case, tf115):
    """The original pads by SAME whatever the paddings were."""
    graph, shape, padding = MATCHES[case]
    result = apply("flatten_atrous_conv", graph, tf115=tf115)
    assert result.matched == 1
    assert result.graph["together"].attr_str("padding") == padding
    x = normal(*shape, seed=3)
    # The same products, summed in another order.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-5, atol=1e-5)


NEAR_MISSES = {
    "strides": _graph(strides=(1, 2, 2, 1)),
    "channels first": _graph(data_format="NCHW"),
    "dilations": _graph(dilations=(1, 2, 2, 1)),
    "blocks before and after": _graph(after=(1, 1)),
    "no ordinary convolution": _graph(paddings=((4, 4), (4, 4))),
    "filter is used elsewhere": _graph(conv("other", "x w"), node("out", "Add", "together other")),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_unsupported_pattern_is_skipped_with_a_reason(reason, tf115):
    graph = NEAR_MISSES[reason]
    result = apply("flatten_atrous_conv", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == graph.by_name


@pytest.mark.parametrize("tf115", [True, False])
def test_convolution_with_other_consumers_is_skipped(tf115):
    graph = _graph(node("relu", "Relu", "layer"), node("out", "Identity", "together"))
    assert apply("flatten_atrous_conv", graph, tf115=tf115).matched == 0


NOT_CONSTANT = {
    "not constant": Graph(
        placeholder("w") if n.name == "w" else n for n in _graph()
    ),
    "four dimensions": _graph(weights=const("w", normal(3, 3))),
    "pair of positive": _graph(block=(2,)),
    "beyond all measure": _graph(block=(1 << 20, 1 << 20)),
}  # fmt: skip


@pytest.mark.parametrize("reason", NOT_CONSTANT)
def test_uncomputable_fold_fails_only_with_tf115(reason):
    graph = NOT_CONSTANT[reason]
    with pytest.raises(TransformError, match=reason):
        apply("flatten_atrous_conv", graph, tf115=True)
    result = apply("flatten_atrous_conv", graph)
    assert result.graph is graph
    assert [reason in r for r in result.skipped] == [True]


def test_paddings_that_are_computed_are_trusted_by_the_original_alone():
    graph = Graph(
        node("paddings", "Placeholder", T=None, dtype=DType.INT32) if n.name == "paddings" else n
        for n in _graph()
    )
    assert apply("flatten_atrous_conv", graph, tf115=True).matched == 1
    result = apply("flatten_atrous_conv", graph)
    assert result.skipped == {"paddings and crops are not constant": 1}


def test_a_recipe_flattens_convolutions_that_share_their_block():
    graph = _graph(
        node("apart2", "SpaceToBatchND", "x block paddings", Tpaddings=DType.INT32, **BATCH),
        const("w2", normal(3, 3, 4, 5)),
        conv("layer2", "apart2 w2", padding="VALID"),
        node("together2", "BatchToSpaceND", "layer2 after crops", Tcrops=DType.INT32, **BATCH),
        node("out", "Add", "together together2"),
    )
    result = apply("flatten_atrous_conv", graph)
    assert result.matched == 2
    assert sorted(n.op for n in result.graph) == [
        "Add", "Const", "Const", "Conv2D", "Conv2D", "Placeholder",
    ]  # fmt: skip


def test_the_input_may_be_any_output_of_its_node():
    """The original takes the first."""
    graph = Graph(
        node("apart", "SpaceToBatchND", "x:1 block paddings", Tpaddings=DType.INT32, **BATCH)
        if n.name == "apart"
        else n
        for n in _graph()
    )
    flat = apply("flatten_atrous_conv", graph, tf115=True).graph["together"]
    assert str(flat.inputs[0]) == "x:1"


def test_the_first_output_of_the_input_is_spelled_without_its_number():
    """As fold_constants of the original leaves it with one."""
    graph = _graph()
    explicit = replace(graph["apart"].inputs[0], explicit=True)
    apart = replace(graph["apart"], inputs=(explicit, *graph["apart"].inputs[1:]))
    graph = graph.with_nodes(apart if n.name == "apart" else n for n in graph)
    flat = apply("flatten_atrous_conv", graph, tf115=True).graph["together"]
    assert str(flat.inputs[0]) == "x"


@pytest.mark.parametrize("tf115", [True, False])
def test_who_waits_for_the_filter_reads_no_other_afterwards(tf115):
    graph = _graph(node("out", "Relu", "together ^w"))
    assert apply("flatten_atrous_conv", graph, tf115=tf115).matched == 1


def test_golden():
    assert shown(apply("flatten_atrous_conv", _graph(), tf115=True).graph) == (
        "x = Placeholder()\n"
        "w = Const() value=float32[5, 5, 4, 5]\n"
        "together = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1\n"
        "out = Identity(together) T=float32"
    )

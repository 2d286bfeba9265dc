"""fold_old_batch_norms: whole normalization ops go into the convolutions before them."""

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import control
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

SHAPE = (1, 4, 4, 4)


def _stats(channels, prefix="", **given):
    values = {
        "gamma": normal(channels, seed=1),
        "beta": normal(channels, seed=2),
        "mean": normal(channels, seed=3),
        "variance": np.abs(normal(channels, seed=4)),
        **given,
    }
    return [const(prefix + name, value) for name, value in values.items()]


def _fused(name, source, prefix="", **attrs):
    inputs = " ".join([source, *(prefix + n for n in ("gamma", "beta", "mean", "variance"))])
    given = {"epsilon": 0.001, "is_training": False, "data_format": "NHWC", **attrs}
    return node(name, "FusedBatchNorm", inputs, **given)


def _global(name, source, *, after):
    inputs = f"{source} mean variance beta gamma"
    attrs = {"variance_epsilon": 0.001, "scale_after_normalization": after}
    return node(name, "BatchNormWithGlobalNormalization", inputs, **attrs)


OUT = node("out", "Identity", "norm")


def _direct(*more, layer=None, weights=None, norm=None, stats=None):
    return Graph(
        [
            placeholder(),
            weights or const("w", normal(3, 3, 4, 5)),
            layer or conv("layer", "x w"),
            *(stats or _stats(5)),
            norm or _fused("norm", "layer"),
            *(more or [OUT]),
        ]
    )


def _batch_to_space(*more, block=(2, 2)):
    between = node(
        "between",
        "BatchToSpaceND",
        "layer block crops",
        Tblock_shape=DType.INT32,
        Tcrops=DType.INT32,
    )
    return Graph(
        [
            placeholder(),
            const("w", normal(3, 3, 4, 5)),
            const("block", block, np.int32),
            const("crops", [[0, 0]] * len(block), np.int32),
            conv("layer", "x w"),
            between,
            *_stats(5),
            _fused("norm", "between"),
            *(more or [OUT]),
        ]
    )


def _concat(axis=3, first=3, second=7, channels=10, op="Conv2D", source="x", **attrs):
    return Graph(
        [
            placeholder(),
            const("w0", normal(3, 3, 4, first)),
            const("w1", normal(3, 3, 4, second, seed=9)),
            node("x1", "Relu", "x"),
            conv("layer0", "x w0", op, **attrs),
            conv("layer1", f"{source} w1", op, **attrs),
            const("axis", axis, np.int32),
            node("both", "ConcatV2", "layer0 layer1 axis", N=2, Tidx=DType.INT32),
            *_stats(channels),
            _fused("norm", "both", **attrs),
            OUT,
        ]
    )


MATCHES = {
    "FusedBatchNorm": _direct(),
    "scale after": _direct(norm=_global("norm", "layer", after=True)),
    "no scale": _direct(norm=_global("norm", "layer", after=False)),
    "depthwise": _direct(
        layer=conv("layer", "x w", "DepthwiseConv2dNative"),
        weights=const("w", normal(3, 3, 4, 2)),
        stats=_stats(8),
    ),
    "BatchToSpaceND": _batch_to_space(),
    "channels side by side": _concat(source="x1"),
    "rows below one another": _concat(axis=1, first=5, second=5, channels=5, source="x1"),
    "one input for both": _concat(source="x"),
}


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", MATCHES)
def test_the_folded_convolution_gives_the_same_numbers(case, tf115):
    graph = MATCHES[case]
    result = apply("fold_old_batch_norms", graph, tf115=tf115)
    assert result.matched == 1
    assert not any("BatchNorm" in n.op for n in result.graph)
    assert len(result.graph.by_name) == len(result.graph)
    x = normal(4, *SHAPE[1:], seed=5)
    # The scale is rounded into each weight: a few units in the last place of sums of 36 products.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


def _use(name):
    return [node("relu", "Relu", name), node("out", "Add", "norm relu")]


NEAR_MISSES = {
    "convolution used elsewhere": (_direct(*_use("layer")), "has other consumers"),
    "weights used elsewhere": (
        _direct(conv("other", "x w"), node("out", "Add", "norm other")),
        "weights are used elsewhere",
    ),
    "batch mean used": (_direct(node("out", "Add", "norm norm:1")), "puts out"),
    "training": (_direct(norm=_fused("norm", "layer", is_training=True)), "is_training"),
    "data_format": (_direct(norm=_fused("norm", "layer", data_format="NCHW")), "data_format"),
    "BatchToSpaceND used elsewhere": (_batch_to_space(*_use("between")), "has other consumers"),
    "BatchToSpaceND over channels": (_batch_to_space(block=(1, 1, 1)), "moves channels"),
    "two uses of one convolution": (
        Graph(n if n.name != "both" else node("both", "ConcatV2", "layer0 layer0 axis", N=2)
              for n in _concat(first=5, second=5)),
        "has other consumers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("tf115", [True, False])
@pytest.mark.parametrize("case", NEAR_MISSES)
def test_unfoldable_layer_is_skipped_with_a_reason(case, tf115):
    """The original corrupts these, or folds them for ever."""
    graph, reason = NEAR_MISSES[case]
    result = apply("fold_old_batch_norms", graph, tf115=tf115)
    assert result.matched == 0
    assert [reason in r for r in result.skipped] == [True]
    assert result.graph.by_name == graph.by_name


def test_fetched_convolution_is_skipped():
    result = apply("fold_old_batch_norms", _direct(), outputs=("out", "layer"))
    assert result.matched == 0


ERRORS = {
    "variance": _direct(stats=_stats(5, variance=[1.0, 2.0])),
    "beta": _direct(stats=_stats(5, beta=[[0.0] * 5])),
    "mean": _direct(stats=_stats(5, mean=0.0)),
    "channels": _direct(stats=_stats(4)),
    "float32": _direct(weights=const("w", normal(3, 3, 4, 5), np.float64)),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_constants_fail_only_with_tf115(what):
    graph = ERRORS[what]
    with pytest.raises(TransformError, match=f"'norm': .*{what}") as error:
        apply("fold_old_batch_norms", graph, tf115=True)
    assert "ignore_errors" in error.value.hint
    result = apply("fold_old_batch_norms", graph)
    assert result.graph is graph
    assert sum(result.skipped.values()) == 1


@pytest.mark.parametrize(
    "graph",
    [_concat(axis=-1), _concat(first=1, second=1, channels=8, op="DepthwiseConv2dNative")],
    ids=["axis -1", "depthwise"],
)
def test_a_recipe_divides_channels_where_the_original_miscounts(graph):
    with pytest.raises(TransformError, match="channels"):
        apply("fold_old_batch_norms", graph, tf115=True)
    result = apply("fold_old_batch_norms", graph)
    assert result.matched == 1
    x = normal(*SHAPE, seed=5)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


def test_a_recipe_divides_channels_that_come_first():
    graph = _concat(axis=1, data_format="NCHW")
    result = apply("fold_old_batch_norms", graph)
    assert result.matched == 1
    assert result.graph["both_bn_in0"].attr_str("data_format") == "NCHW"
    assert result.graph["layer1_bn_offset"].attr_tensor("value").shape == (7,)


@pytest.mark.parametrize("tf115", [True, False])
def test_constants_that_several_normalizations_share_stay_as_long_as_they_are_used(tf115):
    """The original never ends where one is shared."""
    graph = _direct(
        const("w1", normal(3, 3, 4, 5)),
        conv("layer1", "x w1"),
        _fused("norm1", "layer1"),
        node("sum", "Add", "norm norm1"),
        node("out", "Mul", "sum gamma"),
    )
    result = apply("fold_old_batch_norms", graph, tf115=tf115)
    assert result.matched == 2
    assert "gamma" in result.graph
    assert "beta" not in result.graph


def test_new_names_differ_from_existing_ones():
    graph = _direct(const("layer_bn_offset", 0.0), node("out", "Add", "norm layer_bn_offset"))
    folded = apply("fold_old_batch_norms", graph, tf115=True).graph
    assert [str(r) for r in folded["norm"].inputs] == ["layer", "layer_bn_offset_1"]


@pytest.mark.parametrize("tf115", [True, False])
def test_who_waits_for_a_layer_or_its_weights_reads_no_others_afterwards(tf115):
    graph = _direct(node("out", "Relu", "norm ^layer ^w"))
    result = apply("fold_old_batch_norms", graph, tf115=tf115)
    assert result.matched == 1
    x = normal(*SHAPE)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tf115", [True, False])
def test_control_inputs_of_removed_nodes_are_removed(tf115):
    norm = _fused("norm", "between")
    norm = replace(norm, inputs=(*norm.inputs, control("between"), control("x")))
    graph = _batch_to_space()
    graph = graph.with_nodes(norm if n.name == "norm" else n for n in graph)
    result = apply("fold_old_batch_norms", graph, tf115=tf115)
    assert result.matched == 1
    assert [str(r) for r in result.graph["norm"].inputs][1:] == ["block", "crops", "^x"]


def test_control_inputs_survive():
    weights = const("w", normal(3, 3, 4, 5), inputs="^frame")
    norm = node(
        "norm", "FusedBatchNorm", "layer gamma beta mean variance ^frame", is_training=False
    )
    graph = Graph([node("frame", "Relu", "x"), *_direct(weights=weights, norm=norm)])
    folded = apply("fold_old_batch_norms", graph).graph
    assert [str(r) for r in folded["w"].inputs] == ["^frame"]
    assert [str(r) for r in folded["layer_bn_offset"].inputs] == ["^frame"]
    assert [str(r) for r in folded["norm"].inputs] == ["layer", "layer_bn_offset", "^frame"]


def test_golden():
    assert shown(apply("fold_old_batch_norms", _batch_to_space()).graph) == (
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "x = Placeholder()\n"
        "layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1\n"
        "layer_bn_offset = Const() value=float32[5]\n"
        "layer/biasadd = BiasAdd(layer, layer_bn_offset) T=float32 data_format=NHWC\n"
        "block = Const() value=int32[2]\n"
        "crops = Const() value=int32[2, 2]\n"
        "norm = BatchToSpaceND(layer/biasadd, block, crops)"
        " T=float32 Tblock_shape=int32 Tcrops=int32\n"
        "out = Identity(norm) T=float32"
    )

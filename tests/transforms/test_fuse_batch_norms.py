"""fuse_batch_norms: normalizations of every form go into the layers before them."""

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, conv, node, normal, placeholder, run, shown

OUT = node("out", "Identity", "norm")
IMAGE = (2, 6, 6, 4)


def _stats(channels=5, **given):
    values = {
        "gamma": normal(channels, seed=1),
        "beta": normal(channels, seed=2),
        "mean": normal(channels, seed=3),
        "variance": np.abs(normal(channels, seed=4)) + 0.1,
        **given,
    }
    return [const(name, value) for name, value in values.items()]


def _fused(source="layer", op="FusedBatchNormV3", **attrs):
    given = {"epsilon": 0.001, "is_training": False, "data_format": "NHWC", **attrs}
    if op != "FusedBatchNorm":
        given = {"U": DType.FLOAT, **given}
    return [node("norm", op, f"{source} gamma beta mean variance", **given)]


def _global(after):
    attrs = {"variance_epsilon": 0.001, "scale_after_normalization": after}
    op = "BatchNormWithGlobalNormalization"
    return [node("norm", op, "layer mean variance beta gamma", **attrs)]


def _arithmetic(source="layer", add="AddV2", scale="scale"):
    """What ``tf.nn.batch_normalization`` leaves."""
    return [
        const("epsilon", 0.001),
        node("shifted", add, "variance epsilon"),
        node("rsqrt", "Rsqrt", "shifted"),
        node("scale", "Mul", "rsqrt gamma"),
        node("scaled", "Mul", f"{source} {scale}"),
        node("mean_scaled", "Mul", "mean scale"),
        node("offset", "Sub", "beta mean_scaled"),
        node("norm", add, "scaled offset"),
    ]


def _reshaped():
    """What Keras leaves where the channels come last."""
    nodes = _arithmetic()
    shape = const("shape", [1, 1, 1, 5], np.int32)
    reshaped = [
        node(f"{n}_4d", "Reshape", f"{n} shape", Tshape=DType.INT32)
        for n in ("gamma", "beta", "mean", "variance")
    ]
    names = {n: f"{n}_4d" for n in ("gamma", "beta", "mean", "variance")}
    renamed = [
        node(n.name, n.op, " ".join(names.get(str(r), str(r)) for r in n.inputs))
        if n.op != "Const"
        else n
        for n in nodes
    ]
    return [shape, *reshaped, *renamed]


def _graph(*norm, layer=None, weights=None, stats=None, between=(), more=(OUT,), image=DType.FLOAT):
    return Graph(
        [
            placeholder(kind=image),
            const("w", normal(3, 3, 4, 5)) if weights is None else weights,
            layer or conv("layer", "x w"),
            *between,
            *(stats or _stats()),
            *(norm or _fused()),
            *more,
        ]
    )


def _nchw(op="Conv2D"):
    return conv("layer", "x w", op, data_format="NCHW")


BIAS = [const("b", normal(5, seed=7)), node("biased", "BiasAdd", "layer b", data_format="NHWC")]
SAME = node("same", "Identity", "layer")
PADDINGS = const("paddings", [[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)
MIRROR = node("pad", "MirrorPad", "layer paddings", Tpaddings=DType.INT32, mode="REFLECT")
ZEROS = node("pad", "Pad", "layer paddings", Tpaddings=DType.INT32)
ONES = [const("one", 1.5), node("pad", "PadV2", "layer paddings one", Tpaddings=DType.INT32)]
ZERO_STATS = _stats(mean=[0.0] * 5, beta=[0.0] * 5)
ALIKE = {
    "gamma": np.full(5, 2.0),
    "beta": np.full(5, 3.0),
    "mean": np.full(5, 1.0),
    "variance": np.ones(5),
}

MATCHES = {
    "FusedBatchNorm": (_graph(*_fused(op="FusedBatchNorm")), IMAGE),
    "FusedBatchNormV2": (_graph(*_fused(op="FusedBatchNormV2")), IMAGE),
    "FusedBatchNormV3": (_graph(), IMAGE),
    "scale after": (_graph(*_global(True)), IMAGE),
    "no scale": (_graph(*_global(False)), IMAGE),
    "arithmetic, Add": (_graph(*_arithmetic(add="Add")), IMAGE),
    "arithmetic, AddV2": (_graph(*_arithmetic()), IMAGE),
    "arithmetic, reshaped": (_graph(*_reshaped()), IMAGE),
    "depthwise": (
        _graph(
            layer=conv("layer", "x w", "DepthwiseConv2dNative"),
            weights=const("w", normal(3, 3, 4, 2)),
            stats=_stats(8),
        ),
        IMAGE,
    ),
    "MatMul": (
        _graph(
            *_arithmetic(), layer=node("layer", "MatMul", "x w"), weights=const("w", normal(4, 5))
        ),
        (3, 4),
    ),
    "MatMul, transposed weights": (
        _graph(
            *_arithmetic(),
            layer=node("layer", "MatMul", "x w", transpose_b=True),
            weights=const("w", normal(5, 4)),
        ),
        (3, 4),
    ),
    "Conv3D": (
        _graph(
            *_arithmetic(),
            layer=node(
                "layer", "Conv3D", "x w", strides=(1,) * 5, padding="SAME", data_format="NDHWC"
            ),
            weights=const("w", normal(2, 3, 3, 4, 5)),
        ),
        (1, 4, 5, 5, 4),
    ),
    "behind BiasAdd": (_graph(*_fused("biased"), between=BIAS), IMAGE),
    "behind Identity": (_graph(*_fused("same"), between=[SAME]), IMAGE),
    "behind MirrorPad": (_graph(*_fused("pad"), between=[PADDINGS, MIRROR]), IMAGE),
    "behind Pad, channels alike": (
        _graph(*_fused("pad"), between=[PADDINGS, ZEROS], stats=_stats(**ALIKE)),
        IMAGE,
    ),
    "behind Pad, no offset": (
        _graph(*_fused("pad"), between=[PADDINGS, ZEROS], stats=ZERO_STATS),
        IMAGE,
    ),
    "behind PadV2, channels alike": (
        _graph(*_fused("pad"), between=[PADDINGS, *ONES], stats=_stats(**ALIKE)),
        IMAGE,
    ),
    "weights read through Identity": (
        _graph(layer=conv("layer", "x read"), between=[node("read", "Identity", "w")]),
        IMAGE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MATCHES)
def test_the_fused_layer_gives_the_same_numbers(case):
    graph, shape = MATCHES[case]
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert not {n.op for n in result.graph} & {"Mul", "Rsqrt", "Sub"}
    assert not any("BatchNorm" in n.op for n in result.graph)
    x = normal(*shape, seed=5)
    # Scale and offset are rounded once, where before every result was rounded twice.
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Conv2D", "DepthwiseConv2dNative"])
def test_channels_may_come_first(op):
    weights = const("w", normal(3, 3, 4, 5 if op == "Conv2D" else 1))
    stats = _stats(5 if op == "Conv2D" else 4)
    graph = _graph(*_fused(data_format="NCHW"), layer=_nchw(op), weights=weights, stats=stats)
    fused = apply("fuse_batch_norms", graph).graph
    assert fused["norm"].op == "BiasAdd"
    assert fused["norm"].attr_str("data_format") == "NCHW"
    plain = apply("fuse_batch_norms", _as_nhwc(graph)).graph
    for name in ("w", "layer/bias"):
        assert fused[name].attr_tensor("value") == plain[name].attr_tensor("value")


def _as_nhwc(graph):
    last = attr.string("NHWC")
    return Graph(n.with_attrs(data_format=last) if "data_format" in n.attrs else n for n in graph)


def test_a_transposed_convolution_has_its_channels_in_the_third_dimension():
    layer = conv("layer", "sizes w x", "Conv2DBackpropInput")
    weights = const("w", normal(3, 3, 5, 4))
    sizes = [const("sizes", [2, 6, 6, 5], np.int32)]
    graph = _graph(layer=layer, weights=weights, between=sizes)
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    value = {n.name: n.attr_tensor("value").array() for n in graph if n.op == "Const"}
    scale = value["gamma"] / np.sqrt(value["variance"] + 0.001)
    folded = result.graph["w"].attr_tensor("value").array()
    np.testing.assert_allclose(folded, value["w"] * scale[:, None], rtol=1e-6)


def _use(name):
    return [node("relu", "Relu", name), node("out", "Add", "norm relu")]


NEAR_MISSES = {
    "is_training": _graph(*_fused(is_training=True)),
    "statistics that it puts out": _graph(more=[node("out", "Add", "norm norm:1")]),
    "not constant": _graph(stats=[*_stats()[1:], placeholder("gamma")]),
    "channels": _graph(stats=_stats(4)),
    "do not come to numbers": _graph(stats=_stats(variance=[-1.0] * 5)),
    "a statistic": _graph(
        node("norm", "FusedBatchNorm", "gamma layer beta mean variance", is_training=False)
    ),
    "as it stands, in half precision": _graph(
        *_fused("relu", T=DType.HALF), between=[node("relu", "Relu", "layer")]
    ),
}


@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_unfusable_norm_is_skipped_with_a_reason(reason):
    graph = NEAR_MISSES[reason]
    result = apply("fuse_batch_norms", graph)
    assert result.graph is graph
    if "precision" not in reason:
        assert [reason in r for r in result.skipped] == [True]


RELU = node("relu", "Relu", "layer")
ALONE = {
    "has other consumers": _graph(more=_use("layer")),
    "differ between channels": _graph(*_fused("pad"), between=[PADDINGS, ZEROS]),
    "no layer": _graph(*_fused("relu"), between=[RELU]),
    "no layer, FusedBatchNorm": _graph(*_fused("relu", op="FusedBatchNorm"), between=[RELU]),
    "no layer, subtracted first": _graph(
        node("centered", "Sub", "relu mean"),
        const("factors", normal(5, seed=6)),
        node("scaled", "Mul", "centered factors"),
        node("norm", "AddV2", "scaled beta"),
        between=[RELU],
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_normalization_that_no_layer_takes_in_becomes_a_product_and_a_sum(case):
    graph = ALONE[case]
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert [case.split(",")[0] in reason for reason in result.skipped] == [True]
    assert all(reason.startswith("one Mul and one Add: ") for reason in result.skipped)
    product, total = result.graph["norm/mul"], result.graph["norm"]
    assert (product.op, total.op) == ("Mul", "Add")
    assert "mean" not in result.graph
    x = normal(*IMAGE, seed=5)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)
    again = apply("fuse_batch_norms", result.graph)
    assert again.graph is result.graph
    assert again.skipped == result.skipped


def test_channels_that_come_first_are_scaled_along_their_dimension():
    relu = [node("relu", "Relu", "layer")]
    graph = _graph(*_fused("relu", data_format="NCHW"), layer=_nchw(), between=relu)
    result = apply("fuse_batch_norms", graph).graph
    assert result["norm/scale"].attr_tensor("value").shape == (5, 1, 1)
    assert result["norm/offset"].attr_tensor("value").shape == (5, 1, 1)


def test_weights_that_another_layer_uses_too_are_copied():
    graph = _graph(more=[conv("y", "x w"), node("out", "Add", "norm y")])
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert [str(r) for r in result.graph["y"].inputs] == ["x", "w"]
    assert [str(r) for r in result.graph["layer"].inputs] == ["x", "layer/weights"]
    x = normal(*IMAGE, seed=5)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


def test_two_layers_of_the_same_weights_leave_none_of_the_old_ones():
    norms = [
        *_stats(),
        conv("layer2", "x w"),
        node("norm", "FusedBatchNormV3", "layer gamma beta mean variance", is_training=False),
        node("norm2", "FusedBatchNormV3", "layer2 gamma beta mean variance", is_training=False),
        node("out", "Add", "norm norm2"),
    ]
    graph = Graph([placeholder(), const("w", normal(3, 3, 4, 5)), conv("layer", "x w"), *norms])
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 2
    assert "w" not in result.graph


def test_fetched_layer_is_kept():
    fused = apply("fuse_batch_norms", _graph(), outputs=("layer", "out")).graph
    assert fused["layer"].inputs == _graph()["layer"].inputs
    assert fused["w"] == _graph()["w"]
    assert fused["norm"].op == "Add"


MOVES = {
    "Squeeze": (
        [node("moved", "Squeeze", "layer", squeeze_dims=(1,))],
        (2, 1, 6, 4),
    ),
    "Squeeze from the end": (
        [node("moved", "Squeeze", "layer", squeeze_dims=(-3,))],
        (2, 1, 6, 4),
    ),
    "Reshape": (
        [
            const("shape", [-1, 5], np.int32),
            node("moved", "Reshape", "layer shape", Tshape=DType.INT32),
        ],
        IMAGE,
    ),
    "BatchToSpaceND": (
        [
            const("block", [2, 2], np.int32),
            const("crops", [[0, 1], [0, 0]], np.int32),
            node("moved", "BatchToSpaceND", "layer block crops", Tblock_shape=DType.INT32,
                 Tcrops=DType.INT32),
        ],
        (4, 6, 6, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES)
def test_ops_that_move_channels_are_allowed_between(case):
    between, shape = MOVES[case]
    graph = _graph(*_arithmetic("moved"), between=between)
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert result.graph["layer/bias_add"].op == "BiasAdd"
    assert result.graph["norm"].op == case.split()[0]
    assert not {n.op for n in result.graph} & {"Mul", "Rsqrt", "Sub", "AddV2"}
    x = normal(*shape, seed=5)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


BARRIERS = {
    "Reshape divides": [
        const("shape", [-1, 10], np.int32),
        node("moved", "Reshape", "layer shape", Tshape=DType.INT32),
        *_stats(10),
    ],
    "Squeeze does not tell": [node("moved", "Squeeze", "layer"), *_stats()],
}


@pytest.mark.parametrize("reason", BARRIERS)
def test_other_channel_moves_are_a_barrier(reason):
    *between, _, _, _, _ = BARRIERS[reason]
    graph = _graph(*_fused("moved"), between=between, stats=BARRIERS[reason][-4:])
    result = apply("fuse_batch_norms", graph)
    assert result.graph["layer"] == graph["layer"]
    assert result.graph["norm"].op == "Add"


def test_a_product_of_many_matrices_is_a_layer():
    graph = _graph(
        *_arithmetic(),
        layer=node("layer", "BatchMatMulV2", "x w"),
        weights=const("w", normal(4, 5)),
    )
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert result.graph["norm"].op == "BiasAdd"
    x = normal(2, 3, 4, seed=5)
    np.testing.assert_allclose(run(result.graph, x), run(graph, x), rtol=1e-4, atol=1e-4)


def test_bias_alone_is_not_a_normalization():
    graph = Graph([*_graph(between=BIAS).nodes[:5], node("out", "Identity", "biased")])
    assert apply("fuse_batch_norms", graph).graph is graph


def test_constants_that_something_else_uses_stay():
    graph = _graph(*_arithmetic(), more=[node("out", "Mul", "norm scale")])
    result = apply("fuse_batch_norms", graph)
    assert result.matched == 1
    assert {"scale", "rsqrt", "gamma"} <= set(result.graph.by_name)
    assert not {"offset", "mean", "beta"} & set(result.graph.by_name)


def test_control_inputs_survive():
    norm = _arithmetic()
    norm[-1] = node("norm", "AddV2", "scaled offset ^x")
    fused = apply("fuse_batch_norms", _graph(*norm)).graph
    assert [str(r) for r in fused["norm"].inputs] == ["layer", "layer/bias", "^x"]


def test_a_run_without_a_layer_waits_for_none_of_its_own_nodes():
    a, b, c = (const(name, normal(4, seed=i)) for i, name in enumerate("abc"))
    run_of_three = [
        node("first", "Mul", "x a"),
        node("second", "Mul", "first b ^first"),
        node("out", "Add", "second c ^second ^x"),
    ]
    fused = apply("fuse_batch_norms", Graph([placeholder(), a, b, c, *run_of_three])).graph
    assert [str(r) for r in fused["out"].inputs] == ["out/mul", "out/offset", "^x"]


def test_weights_that_a_control_input_waits_for_may_change():
    graph = _graph(more=[OUT, node("wait", "NoOp", "^w", T=None)])
    assert apply("fuse_batch_norms", graph).matched == 1


def test_a_long_expression_of_constants_is_not_followed_for_ever():
    chain = [node(f"c{i}", "Neg", f"c{i - 1}" if i else "beta") for i in range(5000)]
    graph = _graph(node("norm", "FusedBatchNorm", "layer gamma c4999 mean variance",
                        is_training=False), between=chain)  # fmt: skip
    result = apply("fuse_batch_norms", graph)
    assert result.skipped == {"its statistics are not constant": 1}


def test_two_constants_that_broadcast_to_a_huge_one_are_not_computed():
    huge = [
        const("row", np.ones((1, 1 << 15))),
        const("column", np.ones((1 << 15, 1))),
        node("grid", "Mul", "row column"),
        node("norm", "Mul", "layer grid"),
    ]
    assert apply("fuse_batch_norms", _graph(*huge)).matched == 0


def test_golden():
    graph = _graph(*_fused("pad"), between=[*BIAS, PADDINGS, node("pad", "MirrorPad",
                   "biased paddings", Tpaddings=DType.INT32, mode="REFLECT")])  # fmt: skip
    assert shown(apply("fuse_batch_norms", graph).graph) == (
        "x = Placeholder()\n"
        "w = Const() value=float32[3, 3, 4, 5]\n"
        "layer = Conv2D(x, w) T=float32 data_format=NHWC padding=SAME strides=1,1,1,1\n"
        "paddings = Const() value=int32[4, 2]\n"
        "layer/bias = Const() value=float32[5]\n"
        "layer/bias_add = BiasAdd(layer, layer/bias) T=float32 data_format=NHWC\n"
        "norm = MirrorPad(layer/bias_add, paddings) T=float32 Tpaddings=int32 mode=REFLECT\n"
        "out = Identity(norm) T=float32"
    )

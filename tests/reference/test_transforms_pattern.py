"""The transforms that look for patterns, against the original Graph Transform Tool."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.cursor import Cursor
from mobileprep.formats.dtypes import DType
from mobileprep.ir.files import read_graph, write_graph
from mobileprep.ir.graph import Graph, Versions
from mobileprep.ir.serde import graph_from_bytes, graph_to_bytes
from mobileprep.ir.tensor import Array
from mobileprep.transforms.base import Context, make_transform
from tests.reference.networks import NETWORKS, network
from tests.reference.original import (
    OriginalError,
    differences,
    known_to_original,
    run_original,
)
from tests.transforms.graphs import const, conv, node, normal, placeholder

pytestmark = pytest.mark.reference

INT32 = DType.INT32
INFO = "serialized_remote_fused_graph_execute_info"
Original = Callable[..., Graph]


@pytest.fixture
def theirs(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Original:
    """The original's answer: ``theirs(graph, chain, inputs=, outputs=)``."""

    def run(graph: Graph, chain: str, inputs: str = "x", outputs: str = "out") -> Graph:
        # A folder of its own: what was read before stays mapped.
        folder = tmp_path_factory.mktemp("original")
        return run_original(original, graph, inputs, outputs, chain, folder)

    return run


def ours(
    graph: Graph, name: str, options: Mapping[str, Any], inputs: str = "x", outputs: str = "out"
) -> Graph:
    context = Context(tuple(inputs.split(",")), tuple(outputs.split(",")), faithful=True)
    return make_transform(name, options).apply(known_to_original(graph), context).graph


def spelt(name: str, options: Mapping[str, Any]) -> str:
    """A call as the original's flag has it; tuples become repeated arguments."""
    arguments = [
        f'{key}="{str(item).lower() if isinstance(item, bool) else item}"'
        for key, value in options.items()
        for item in (value if isinstance(value, tuple) else (value,))
    ]
    return f"{name}({' '.join(arguments)})" if arguments else name


# Batch normalization


def stats(channels: int = 5, prefix: str = "", **given: Any) -> list[Any]:
    values = {
        "gamma": normal(channels, seed=1),
        "beta": normal(channels, seed=2),
        "mean": normal(channels, seed=3),
        "variance": np.abs(normal(channels, seed=4)),
        **given,
    }
    return [const(prefix + key, value) for key, value in values.items()]


def fused(name: str, source: str, prefix: str = "", **attrs: Any) -> Any:
    inputs = " ".join([source, *(prefix + n for n in ("gamma", "beta", "mean", "variance"))])
    given = {"epsilon": 0.001, "is_training": False, "data_format": "NHWC", **attrs}
    return node(name, "FusedBatchNorm", inputs, **given)


def old(after: bool) -> Any:
    inputs = "layer mean variance beta gamma"
    attrs = {"variance_epsilon": 0.001, "scale_after_normalization": after}
    return node("norm", "BatchNormWithGlobalNormalization", inputs, **attrs)


W = const("w", normal(3, 3, 4, 5))
LAYER = conv("layer", "x w")
OUT = node("out", "Identity", "norm")
DEPTHWISE = [
    const("w", normal(3, 3, 4, 2)),
    conv("layer", "x w", "DepthwiseConv2dNative"),
    *stats(8),
]


def batch_to_space(layer: list[Any]) -> list[Any]:
    types = {"Tblock_shape": INT32, "Tcrops": INT32}
    return [
        *layer,
        const("block", [2, 2], np.int32),
        const("crops", [[0, 0], [0, 0]], np.int32),
        node("between", "BatchToSpaceND", "layer block crops", **types),
        fused("norm", "between"),
        OUT,
    ]


def concat(axis: int, first: int, second: int, channels: int, **attrs: Any) -> list[Any]:
    return [
        placeholder("y"),
        const("w0", normal(3, 3, 4, first)),
        const("w1", normal(3, 3, 4, second)),
        conv("layer0", "x w0", **attrs),
        conv("layer1", "y w1", **attrs),
        const("axis", axis, np.int32),
        node("both", "ConcatV2", "layer0 layer1 axis", N=2, Tidx=INT32),
        *stats(channels),
        fused("norm", "both", **attrs),
        OUT,
    ]


def branches(count: int) -> list[Any]:
    nodes: list[Any] = []
    for i in range(count):
        nodes += [
            const(f"w{i}", normal(3, 3, 4, 5, seed=i)),
            conv(f"layer{i}", f"x w{i}"),
            *stats(prefix=f"{i}_"),
            fused(f"norm{i}", f"layer{i}", f"{i}_"),
        ]
    norms = " ".join(f"norm{i}" for i in range(count))
    return [*nodes, node("out", "AddN", norms, N=count)]


OLD_NORMS = {
    "plain": [W, LAYER, *stats(), fused("norm", "layer"), OUT],
    "no data_format": [
        W, LAYER.without_attrs("data_format"), *stats(), fused("norm", "layer"), OUT,
    ],
    "NCHW": [
        W, conv("layer", "x w", data_format="NCHW"), *stats(),
        fused("norm", "layer", data_format="NCHW"), OUT,
    ],
    "scale after": [W, LAYER, *stats(), old(True), OUT],
    "no scale": [W, LAYER, *stats(), old(False), OUT],
    "depthwise": [*DEPTHWISE, fused("norm", "layer"), OUT],
    "stored backwards": [OUT, fused("norm", "layer"), *stats(), LAYER, W],
    "variance without a root": [
        W, LAYER, *stats(variance=[-1.0, 0, 1, 2, 1e-30]), fused("norm", "layer"), OUT,
    ],
    "BatchToSpaceND": batch_to_space([W, LAYER, *stats()]),
    "BatchToSpaceND, depthwise": batch_to_space(DEPTHWISE),
    "channels": concat(3, 3, 7, 10),
    "rows": concat(1, 5, 5, 5),
    "batch, NCHW": concat(0, 5, 5, 5, data_format="NCHW"),
    "one input, three layers": branches(3),
    "no normalization": [W, LAYER, node("out", "Relu", "layer")],
}  # fmt: skip


def scaled(layer: Any, weights: Any, factors: Any, *more: Any) -> list[Any]:
    rest = more or (node("out", "Identity", "mul"),)
    return [weights, layer, const("f", factors), node("mul", "Mul", "layer f"), *rest]


SCALES = {
    "Conv2D": scaled(LAYER, W, normal(5)),
    "depthwise": scaled(DEPTHWISE[1], DEPTHWISE[0], normal(8)),
    "MatMul": scaled(node("layer", "MatMul", "x w"), const("w", normal(4, 3)), normal(3)),
    "layer used elsewhere": scaled(
        LAYER, W, normal(5), node("r", "Relu", "layer"), node("out", "AddN", "mul r", N=2)
    ),
    "factors used elsewhere": scaled(
        LAYER, W, normal(5), node("r", "Mul", "mul f"), node("out", "Relu", "r")
    ),
    "one input, two layers": [
        *scaled(LAYER, W, normal(5), const("w2", normal(3, 3, 4, 5))),
        conv("layer2", "x w2"),
        const("f2", normal(5)),
        node("mul2", "Mul", "layer2 f2"),
        node("out", "AddN", "mul mul2", N=2),
    ],
    "factors first": [W, LAYER, const("f", normal(5)), node("out", "Mul", "f layer")],
}

# Convolutions with something before them


def atrous(
    paddings: Any,
    crops: Any = ((0, 0), (0, 0)),
    layer: Any = None,
    weights: Any = None,
    more: Any = (),
) -> list[Any]:
    types = {"Tblock_shape": INT32}
    return [
        const("block", [2, 2], np.int32),
        const("paddings", paddings, np.int32),
        node("apart", "SpaceToBatchND", "x block paddings", Tpaddings=INT32, **types),
        weights or W,
        layer or conv("layer", "apart w", padding="VALID", use_cudnn_on_gpu=True),
        const("after", [2, 2], np.int32),
        const("crops", crops, np.int32),
        node("out", "BatchToSpaceND", "layer after crops", Tcrops=INT32, **types),
        *more,
    ]


PADDINGS = const("paddings", [[0, 0], [1, 1], [2, 2], [0, 0]], np.int32)
SIZE = const("size", [9, 9], np.int32)
MIRROR = node("pad", "MirrorPad", "x paddings", Tpaddings=INT32, mode="REFLECT")
RESIZE = node("resize", "ResizeBilinear", "x size", align_corners=True, half_pixel_centers=False)
MIRROR_RESIZED = node("pad", "MirrorPad", "resize paddings", Tpaddings=INT32, mode="SYMMETRIC")
PAD_USED = [node("r", "Relu", "pad"), node("out", "Add", "layer r")]


def concats(*inputs: str) -> list[Any]:
    return [const("axis", 1, np.int32), node("y", "Relu", "x"),
            node("out", "ConcatV2", " ".join(inputs), N=2, Tidx=INT32)]  # fmt: skip


ARRAY = {"T": None, "dtype": DType.FLOAT, "element_shape": None, "dynamic_size": False}
ARRAYS = [
    const("size", 1, np.int32),
    node("array", "TensorArrayV3", "size", **ARRAY),
    node("write", "TensorArrayWriteV3", "array size x array:1"),
    node("gone", "TensorArraySizeV3", "array write", T=None),
    node("out", "TensorArrayReadV3", "array size write", T=None, dtype=DType.FLOAT),
]

# Eight bits

NETWORK = [
    W,
    LAYER,
    const("b", normal(5)),
    node("bias", "BiasAdd", "layer b", data_format="NHWC"),
    node("relu", "Relu", "bias"),
    node("pool", "MaxPool", "relu", ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), padding="VALID"),
    const("shape", [1, -1], np.int32),
    node("flat", "Reshape", "pool shape", Tshape=INT32),
    const("w2", normal(45, 3)),
    node("dense", "MatMul", "flat w2", transpose_a=False, transpose_b=False),
    node("out", "Softmax", "dense"),
]


def learnt(name: str, source: str, low: float = -1.0, high: float = 6.0) -> list[Any]:
    attrs = {"T": None, "num_bits": 8, "narrow_range": False}
    return [
        const(f"{name}_min", low),
        const(f"{name}_max", high),
        node(name, "FakeQuantWithMinMaxVars", f"{source} {name}_min {name}_max", **attrs),
    ]


IDENTITIES = [node(f"i{i}", "Identity", f"i{i - 1}" if i else "relu") for i in range(5)]
SOFTMAX = node("out", "Softmax", "fq")
SUMS = [
    const("k", 0.5),
    node("m", "Mul", "x k"),
    node("a", "Add", "m x"),
    const("axis", 3, np.int32),
    node("c", "Concat", "axis m a", N=2),
    const("size", [4, 4], np.int32),
    node("r", "ResizeBilinear", "c size", align_corners=False),
    node("p", "AvgPool", "r", ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), padding="SAME"),
    node("out", "Relu6", "p"),
]
EIGHTBIT_OPTIONS = {
    "plain": {},
    "fallback": {"fallback_min": -3.0, "fallback_max": 5.5},
    "inputs": {"input_min": -3.0, "input_max": 5.5},
    "ops left out": {"ignore_op": ("MatMul", "Relu")},
}
EIGHTBIT = {
    "network": NETWORK,
    "sums": SUMS,
    "learnt": [*NETWORK[:5], *learnt("fq", "relu"), SOFTMAX],
    "learnt behind a pool": [*NETWORK[:6], *learnt("fq", "pool"), SOFTMAX],
    "learnt behind a chain": [*NETWORK[:5], *IDENTITIES, *learnt("fq", "i4"), SOFTMAX],
    "learnt twice": [
        *NETWORK[:2], *learnt("a", "layer"), node("s", "Sigmoid", "a"), *learnt("fq", "s"), SOFTMAX,
    ],
    "no float32": [node("out", "Relu", "x", T=DType.HALF)],
}  # fmt: skip

RUNNER = {"remote_fused_graph_executor_name": "runner", "remote_fused_graph_node_name": "part"}
CHAIN = [
    node("a", "Relu", "x"),
    node("b", "Neg", "a"),
    node("c", "Abs", "b"),
    node("d", "Relu", "c"),
    node("out", "Identity", "d"),
]
REMOTE: list[dict[str, Any]] = [
    {"fused_nodes": "b,c"},
    {"fused_nodes": "out"},
    {"fused_op_types": "Neg,Abs"},
    {"border_inputs": "a:0", "border_outputs": "c:0"},
    {"border_inputs": "x", "border_outputs": "d"},
    {"fused_nodes": "b,c", "input_types": "float", "input_shapes": "1,2"},
]

CASES: list[tuple[str, str, list[Any], Mapping[str, Any]]] = [
    *(("fold_old_batch_norms", k, v, {}) for k, v in OLD_NORMS.items()),
    *(("fold_batch_norms", k, v, {}) for k, v in SCALES.items()),
    ("flatten_atrous_conv", "whole blocks", atrous([[2, 2], [2, 2]]), {}),
    ("flatten_atrous_conv", "cropped", atrous([[2, 3], [2, 3]], [[0, 1], [0, 1]]), {}),
    (
        "flatten_atrous_conv",
        "depthwise",
        atrous(
            [[2, 2], [2, 2]],
            layer=conv("layer", "apart w", "DepthwiseConv2dNative", padding="VALID"),
            weights=DEPTHWISE[0],
        ),
        {},
    ),
    (
        "flatten_atrous_conv",
        "used elsewhere",
        atrous([[2, 2], [2, 2]], more=[node("r", "Relu", "layer")]),
        {},
    ),
    ("fuse_pad_and_conv", "plain", [PADDINGS, MIRROR, W, conv("out", "pad w")], {}),
    (
        "fuse_pad_and_conv",
        "used elsewhere",
        [PADDINGS, MIRROR, W, conv("layer", "pad w"), *PAD_USED],
        {},
    ),
    ("fuse_resize_and_conv", "plain", [SIZE, RESIZE, W, conv("out", "resize w")], {}),
    (
        "fuse_resize_pad_and_conv",
        "plain",
        [SIZE, PADDINGS, RESIZE, MIRROR_RESIZED, W, conv("out", "pad w")],
        {},
    ),
    ("backport_concatv2", "plain", concats("x", "y", "axis"), {}),
    ("backport_tensor_array_v3", "no loop", ARRAYS, {}),
    *(("quantize_nodes", f"{k}, {o}", v, w) for k, v in EIGHTBIT.items()
      for o, w in EIGHTBIT_OPTIONS.items()),
    *((n, str(o), CHAIN, {**RUNNER, **o}) for n in
      ("fuse_remote_graph", "place_remote_graph_arguments") for o in REMOTE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "nodes", "options"),
    [pytest.param(n, v, o, id=f"{n}: {k}") for n, k, v, o in CASES],
)
def test_purpose_built_graphs_come_out_equal(
    theirs: Original, name: str, nodes: list[Any], options: Mapping[str, Any]
) -> None:
    graph = Graph([placeholder(), *nodes])
    mine = ours(graph, name, options)
    assert not unequal(mine, theirs(graph, spelt(name, options)))


def unequal(mine: Graph, original: Graph) -> list[str]:
    """Differences, the messages that fused nodes carry compared by what they say."""
    found = []
    for n in mine:
        other = original.get(n.name)
        if other is not None and INFO in n.attrs:
            (a, inside_a), (b, inside_b) = (
                carried(n.attrs[INFO].value),
                carried(other.attrs[INFO].value),
            )
            found += [] if a == b else [f"{n.name}: {a} here, {b} there"]
            found += differences(inside_a, inside_b)
    bare = (g.with_nodes(n.without_attrs(INFO) for n in g) for g in (mine, original))
    return found + differences(*bare)


def carried(info: bytes) -> tuple[list[tuple[int, bytes]], Graph]:
    cursor, fields = Cursor(info, file="info"), []
    while cursor:
        number = cursor.varint() >> 3
        fields.append((number, bytes(cursor.take(cursor.varint()))))
    return fields[1:], graph_from_bytes(fields[0][1], "info")


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21])
@pytest.mark.parametrize("percentiles", [(5.0, 5.0), (0.0, 0.0), (10.0, 25.0), (33.0, 99.0)])
def test_ranges_of_a_log_come_out_equal(
    theirs: Original, tmp_path: Path, count: int, percentiles: tuple[float, float]
) -> None:
    graph = theirs(Graph([placeholder(), *NETWORK]), "quantize_nodes")
    names = [n.name for n in graph if n.op == "RequantizationRange"]
    ranges = np.sort(np.random.default_rng(0).standard_normal((len(names), count, 2)), axis=2)
    lines = [
        f"op.cc:79] ;{name}__print__;__requant_min_max:[{low:.9g}][{high:.9g}]"
        for name, seen in zip(names, ranges, strict=True)
        for low, high in seen
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(["begin", *lines, f"{names[0]}__print__;__requant_min_max:[1]"]))
    options = {
        "min_max_log_file": str(log),
        "min_percentile": percentiles[0],
        "max_percentile": percentiles[1],
    }
    name = "freeze_requantization_ranges"
    assert not differences(ours(graph, name, options), theirs(graph, spelt(name, options)))


# Real models

MODELS = {
    "arm-kws/Basic_LSTM_S.pb": ("wav_data", "labels_softmax"),
    "arm-kws/CNN_S.pb": ("wav_data", "labels_softmax"),
    "arm-kws/DS_CNN_S.pb": ("wav_data", "labels_softmax"),
    "made-qat-mnist-tf115/frozen_eval_graph.pb": ("input", "output"),
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb": ("input", "output"),
    "mtcnn/mtcnn.pb": ("input,min_size,thresholds,factor", "prob,landmarks,box"),
    "tf2onnx-models/fc-layers/frozen.pb": ("X", "output"),
    "tf2onnx-models/gru/frozen.pb": ("X", "output"),
    "tf2onnx-models/lstm/frozen.pb": ("X", "output"),
    "tfjs-facemesh/facemesh.pb": ("input_1", "Identity,Identity_1,Identity_2"),
    "tfjs-posenet/posenet.pb": ("image", "MobilenetV1/offset_2/BiasAdd"),
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb": ("input", "Identity"),
    "android-wakeword-streaming-rnn/graph.pb": (
        "model/rnn_initial_states,model/inputX",
        "model/softmax,model/logit,model/rnn_states",
    ),
}
STEPS = [
    ("fold_batch_norms", {}),
    ("fold_old_batch_norms", {}),
    ("flatten_atrous_conv", {}),
    ("fuse_pad_and_conv", {}),
    ("fuse_resize_and_conv", {}),
    ("fuse_resize_pad_and_conv", {}),
    ("backport_concatv2", {}),
    ("quantize_nodes", {}),
    ("quantize_nodes", {"fallback_min": -10.0, "fallback_max": 10.0}),
]
# Colocation with a node that was merged away is sent to the one that stays; see there.
COLOCATION = "_class"


@pytest.mark.parametrize("prepared", ["", "remove_nodes(op=Identity)", "quantize_weights"])
@pytest.mark.parametrize("path", MODELS)
def test_real_models_come_out_equal(
    theirs: Original, models: Path, path: str, prepared: str
) -> None:
    inputs, outputs = MODELS[path]
    graph = known_to_original(read_graph(models / path))
    if prepared:
        graph = theirs(graph, prepared, inputs, outputs)
    for name, options in STEPS:
        expected = refused = None
        try:
            expected = theirs(graph, spelt(name, options), inputs, outputs)
        except OriginalError as error:
            refused = error
        assert refused is None, f"{name}: {refused}"
        mine = ours(graph, name, options, inputs, outputs)
        found = [d for d in differences(mine, expected) if COLOCATION not in d]
        assert not found, name


@pytest.mark.parametrize("name", NETWORKS)
def test_keras_networks_come_out_equal(
    theirs: Original, tf: ModuleType, pytestconfig: pytest.Config, name: str
) -> None:
    folder = pytestconfig.cache.mkdir("networks")  # type: ignore[union-attr]
    found = network(tf, folder, name)
    graph = known_to_original(read_graph(found.path))
    # What the documented chain does before batch norms are folded.
    before = "strip_unused_nodes remove_nodes(op=Identity) fold_constants(ignore_errors=true)"
    folded = theirs(graph, before, found.input, found.output)
    for step, options in STEPS:
        call = f"{step}(ignore_errors=true)" if step == "fold_batch_norms" else spelt(step, options)
        expected = theirs(folded, call, found.input, found.output)
        try:
            mine = ours(folded, step, options, found.input, found.output)
        except Exception as error:
            assert step == "fold_batch_norms", error
            mine = folded
        assert not differences(mine, expected), step

"""Graphs for the comparison with the original: matches and near misses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.transforms.graphs import const, conv, node, normal, placeholder

INT32 = DType.INT32

# Batch normalization


def stats(channels: int = 5, prefix: str = "", **changes: Any) -> list[Any]:
    values = {
        "gamma": normal(channels, seed=1),
        "beta": normal(channels, seed=2),
        "mean": normal(channels, seed=3),
        "variance": np.abs(normal(channels, seed=4)),
        **changes,
    }
    return [const(prefix + key, value) for key, value in values.items()]


def fused(name: str, source: str, prefix: str = "", **attrs: Any) -> Any:
    inputs = " ".join([source, *(prefix + n for n in ("gamma", "beta", "mean", "variance"))])
    options = {"epsilon": 0.001, "is_training": False, "data_format": "NHWC", **attrs}
    return node(name, "FusedBatchNorm", inputs, **options)


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

# Convolutions after padding or resizing


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

# Quantization

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


def trained(name: str, source: str, low: float = -1.0, high: float = 6.0) -> list[Any]:
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
    "ignored ops": {"ignore_op": ("MatMul", "Relu")},
}
EIGHTBIT = {
    "network": NETWORK,
    "sums": SUMS,
    "trained": [*NETWORK[:5], *trained("fq", "relu"), SOFTMAX],
    "trained after a pool": [*NETWORK[:6], *trained("fq", "pool"), SOFTMAX],
    "trained after a chain": [*NETWORK[:5], *IDENTITIES, *trained("fq", "i4"), SOFTMAX],
    "trained twice": [
        *NETWORK[:2],
        *trained("a", "layer"),
        const("k", 0.5),
        node("s", "Add", "a k"),
        *trained("fq", "s"),
        SOFTMAX,
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

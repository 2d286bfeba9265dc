"""Cases of neural network ops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.reference.cases.base import BF16, F32, SPECIAL, Case, Make, i32, scalar


def convolutions() -> Iterator[Case]:
    make = Make(21)
    plain = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for padding, stride, dilation, size in product(
        ("SAME", "VALID"), (1, 2, 3), (1, 2), ((1, 1), (3, 3), (2, 5))
    ):
        attrs = {
            "strides": [1, stride, stride, 1],
            "padding": padding,
            "dilations": [1, dilation, dilation, 1],
        }
        note = f"{padding}{stride}{dilation}"
        yield Case("Conv2D", (make.real(2, 11, 12, 3), make.real(*size, 3, 4)), attrs, note=note)
        if dilation == 1 or stride == 1:
            filters = make.real(*size, 3, 2)
            yield Case(
                "DepthwiseConv2dNative", (make.real(2, 11, 12, 3), filters), attrs, note=note
            )
    for kind in (np.float64, np.float16, BF16):
        yield Case(
            "Conv2D", (make.real(1, 5, 5, 2, kind=kind), make.real(3, 3, 2, 3, kind=kind)), plain
        )
    yield Case("Conv2D", (make.real(0, 5, 5, 2), make.real(3, 3, 2, 3)), plain, note="empty")
    yield Case("Conv2D", (make.real(1, 6, 6, 4), make.real(3, 3, 2, 6)), plain, note="groups")
    yield Case("Conv2D", (make.real(1, 6, 6, 4), make.real(3, 3, 3, 6)), plain, note="misfit")
    yield Case(
        "Conv2D",
        (make.real(1, 2, 2, 4), make.real(3, 3, 4, 6)),
        {**plain, "padding": "VALID"},
        note="small",
    )
    yield Case("Conv2D", (make.real(2, 60, 61, 32), make.real(3, 3, 32, 40)), plain, note="large")
    yield Case("Conv2D", (make.real(8, 7, 7, 256), make.real(1, 1, 256, 300)), plain, note="large")
    yield Case(
        "Conv2D", (make.real(1, 7, 7, 256), make.real(3, 3, 256, 300)), plain, note="few rows"
    )
    explicit = {
        "strides": [1, 2, 1, 1],
        "padding": "EXPLICIT",
        "explicit_paddings": [0, 0, 1, 2, 3, 0, 0, 0],
    }
    yield Case("Conv2D", (make.real(2, 7, 8, 3), make.real(3, 3, 3, 4)), explicit)
    yield Case(
        "DepthwiseConv2dNative",
        (make.real(2, 40, 41, 64), make.real(3, 3, 64, 1)),
        plain,
        note="large",
    )
    for multiplier in (1, 3):
        filters = make.real(3, 3, 5, multiplier)
        yield Case(
            "DepthwiseConv2dNative", (make.real(2, 6, 7, 5), filters), plain, note=f"x{multiplier}"
        )
    for padding, stride in product(("SAME", "VALID"), (1, 2)):
        attrs = {"strides": [1, stride, stride, stride, 1], "padding": padding}
        yield Case(
            "Conv3D",
            (make.real(2, 5, 6, 7, 2), make.real(2, 3, 3, 2, 3)),
            attrs,
            note=f"{padding}{stride}",
        )


def transposed() -> Iterator[Case]:
    make = Make(22)
    for padding, stride, size in product(("SAME", "VALID"), (1, 2, 3), (2, 3, 4)):
        height, width = 9, 8
        counts = [
            -(-d // stride) if padding == "SAME" else (d - size) // stride + 1
            for d in (height, width)
        ]
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        sizes = i32(2, height, width, 3)
        filters, y = make.real(size, size, 3, 4), make.real(2, *counts, 4)
        yield Case(
            "Conv2DBackpropInput", (sizes, filters, y), attrs, note=f"{padding}{stride}{size}"
        )
        filters, y = make.real(size, size, 3, 2), make.real(2, *counts, 6)
        if stride < 3:
            op = "DepthwiseConv2dNativeBackpropInput"
            yield Case(op, (sizes, filters, y), attrs, note=f"{padding}{stride}{size}")
    attrs = {"strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    inputs = (i32(1, 4, 6, 5, 2), make.real(3, 3, 3, 2, 4), make.real(1, 2, 3, 3, 4))
    yield Case("Conv3DBackpropInputV2", inputs, attrs)
    misfit = (i32(1, 9, 9, 3), make.real(3, 3, 3, 4), make.real(1, 3, 3, 4))
    yield Case(
        "Conv2DBackpropInput", misfit, {"strides": [1, 1, 1, 1], "padding": "SAME"}, note="misfit"
    )


def pools_along_channels() -> Iterator[Case]:
    make = Make(24)
    for padding, window, stride in product(("SAME", "VALID"), (2, 3, 4), (1, 2, 3)):
        attrs = {"ksize": [1, 1, 1, window], "strides": [1, 1, 1, stride], "padding": padding}
        yield Case("MaxPool", (make.real(2, 4, 5, 6),), attrs, note=f"{padding}{window}{stride}")
    window_of_two = i32(1, 1, 1, 2)
    inputs = (make.real(2, 3, 3, 6), window_of_two, window_of_two)
    yield Case("MaxPoolV2", inputs, {"padding": "VALID"}, note="channels")


def pools() -> Iterator[Case]:
    make = Make(23)
    for op, padding, stride, size in product(
        ("MaxPool", "AvgPool"), ("SAME", "VALID"), (1, 2, 3), (1, 2, 3)
    ):
        attrs = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        yield Case(op, (make.real(2, 7, 8, 3),), attrs, note=f"{padding}{stride}{size}")
    square = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    for kind in (np.float64, np.float16, BF16):
        for op in ("MaxPool", "AvgPool"):
            yield Case(op, (make.real(1, 5, 5, 2, kind=kind),), square)
    for kind in (np.int32, np.int8, np.uint8):
        yield Case("MaxPool", (make.real(1, 5, 5, 2, kind=kind, low=-9, high=9),), square)
    yield Case("MaxPool", (np.resize(SPECIAL[1:], (1, 4, 4, 2)),), square, note="special")
    yield Case("MaxPool", (make.real(4, 60, 60, 64),), square, note="large")
    yield Case("AvgPool", (make.real(4, 60, 60, 64),), square, note="large")
    yield Case(
        "AvgPool",
        (make.real(1, 40, 40, 8),),
        {**square, "ksize": [1, 40, 40, 1], "padding": "VALID"},
        note="all",
    )
    yield Case("MaxPool", (make.real(1, 2, 2, 3),), {**square, "padding": "VALID"}, note="small")
    explicit = {**square, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0]}
    yield Case("MaxPool", (make.real(1, 6, 6, 3),), explicit)
    yield Case(
        "MaxPoolV2", (make.real(1, 6, 6, 3), i32(1, 2, 2, 1), i32(1, 2, 2, 1)), {"padding": "VALID"}
    )
    cube = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 1, 2, 1], "padding": "SAME"}
    for op in ("MaxPool3D", "AvgPool3D"):
        yield Case(op, (make.real(2, 5, 6, 7, 3),), cube)
    for padding, whole in product(("SAME", "VALID"), (False, True)):
        attrs = {**square, "padding": padding, "include_batch_in_index": whole}
        yield Case("MaxPoolWithArgmax", (make.real(2, 6, 7, 3),), attrs, note=f"{padding}{whole}")
    patch = {"ksizes": [1, 2, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 2, 1]}
    for padding in ("SAME", "VALID"):
        yield Case(
            "ExtractImagePatches",
            (make.real(2, 7, 9, 3),),
            {**patch, "padding": padding},
            note=padding,
        )
        for stride, rate in ((1, 1), (2, 1), (1, 2)):
            attrs = {
                "strides": [1, stride, stride, 1],
                "rates": [1, rate, rate, 1],
                "padding": padding,
            }
            yield Case(
                "Dilation2D",
                (make.real(2, 7, 8, 3), make.real(3, 2, 3)),
                attrs,
                note=f"{padding}{stride}{rate}",
            )


def normalizations() -> Iterator[Case]:
    make = Make(24)
    statistics = (make.real(3, low=0.5), make.real(3), make.real(3), make.real(3, low=0.5))
    for op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
        yield Case(op, (make.real(2, 4, 5, 3), *statistics), {"is_training": False})
        yield Case(
            op,
            (make.real(2, 3, 4, 5), *statistics),
            {"is_training": False, "data_format": "NCHW"},
            note="NCHW",
        )
    for op in ("FusedBatchNormV2", "FusedBatchNormV3"):
        yield Case(
            op, (make.real(2, 4, 5, 3, kind=np.float16), *statistics), {"is_training": False}
        )
    attrs = {"variance_epsilon": 0.01}
    m, v, beta, gamma = make.real(3), make.real(3, low=0.5), make.real(3), make.real(3)
    for scale in (False, True):
        inputs = (make.real(2, 4, 5, 3), m, v, beta, gamma)
        yield Case(
            "BatchNormWithGlobalNormalization",
            inputs,
            {**attrs, "scale_after_normalization": scale},
            note=str(scale),
        )
    yield Case("LRN", (make.real(2, 3, 4, 9),))
    yield Case(
        "LRN",
        (make.real(2, 3, 4, 9),),
        {"depth_radius": 2, "bias": 2.0, "alpha": 1e-2, "beta": 0.75},
        note="set",
    )


def quantizations() -> Iterator[Case]:
    make = Make(25)
    x = make.real(200, low=-8, high=8)
    for low, high in ((-6, 6), (0, 6), (-1.3, 5.7), (-5, 0), (-0.01, 9)):
        for bits, narrow in ((8, False), (8, True), (4, False)):
            attrs = {"num_bits": bits, "narrow_range": narrow}
            bounds = (scalar(low, F32), scalar(high, F32))
            note = f"{low}{high}{bits}{narrow}"
            yield Case("FakeQuantWithMinMaxVars", (x, *bounds), attrs, note=note)
            yield Case(
                "FakeQuantWithMinMaxArgs",
                (x,),
                {**attrs, "min": float(low), "max": float(high)},
                note=note,
            )
    channels = (make.real(3, low=-5, high=-1), make.real(3, low=1, high=5))
    for shape in ((7, 3), (2, 4, 5, 3), (3,)):
        yield Case(
            "FakeQuantWithMinMaxVarsPerChannel", (make.real(*shape, low=-6, high=6), *channels)
        )
    yield Case("FakeQuantWithMinMaxVars", (x, scalar(0, F32), scalar(0, F32)), note="no range")


def sequences() -> Iterator[Case]:
    make = Make(26)
    width, depth, batch = 5, 4, 3
    w, b = make.real(width + depth, 4 * depth), make.real(4 * depth)
    peepholes = tuple(make.real(depth) for _ in range(3))
    state, hidden = make.real(batch, depth), make.real(batch, depth)
    for peephole, clip in product((False, True), (3.0, -1.0)):
        attrs = {"use_peephole": peephole, "cell_clip": clip}
        inputs = (make.real(batch, width), state, hidden, w, *peepholes, b)
        yield Case("LSTMBlockCell", inputs, attrs, note=str(attrs))
        for op in ("BlockLSTM", "BlockLSTMV2"):
            x = make.real(6, batch, width)
            inputs = (scalar(6, np.int64), x, state, hidden, w, *peepholes, b)
            yield Case(op, inputs, attrs, note=str(attrs))
    gates = (make.real(width + depth, 2 * depth), make.real(width + depth, depth))
    biases = (make.real(2 * depth), make.real(depth))
    yield Case("GRUBlockCell", (make.real(batch, width), hidden, *gates, *biases))
    logits = make.real(7, 2, 4)
    for merge in (False, True):
        yield Case(
            "CTCGreedyDecoder", (logits, i32(7, 4)), {"merge_repeated": merge}, note=str(merge)
        )
    yield Case("CTCGreedyDecoder", (logits, i32(7, 4)), {"blank_index": 0}, note="blank")
    yield Case("CTCGreedyDecoder", (logits, i32(7, 9)), note="misfit")
    speech = make.real(12, 3, 6) * np.float32(4)
    for merge, width, count in product((False, True), (1, 4, 100), (1, 3)):
        attrs = {"merge_repeated": merge, "beam_width": width, "top_paths": count}
        yield Case("CTCBeamSearchDecoder", (speech, i32(12, 5, 9)), attrs, note=str(attrs))
    # With few beams, the beams that a step drops matter.
    for width in (2, 3):
        attrs = {"merge_repeated": False, "beam_width": width, "top_paths": 2}
        crowded = (make.real(24, 8, 5), make.whole(1, 25, 8))
        yield Case("CTCBeamSearchDecoder", crowded, attrs, note=f"crowded{width}")
    yield Case("CTCBeamSearchDecoder", (speech, i32(12, 5, 13)), {"beam_width": 4, "top_paths": 1})
    features = make.real(4, 5)
    labels = np.abs(make.real(4, 5))
    yield Case("SoftmaxCrossEntropyWithLogits", (features, labels / labels.sum(1, keepdims=True)))
    yield Case("SparseSoftmaxCrossEntropyWithLogits", (features, i32(0, 4, 2, 2)))


def fused() -> Iterator[Case]:
    make = Make(27)
    paddings = np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)
    x, filters = make.real(1, 8, 9, 3), make.real(3, 3, 3, 4)
    for mode in ("REFLECT", "SYMMETRIC"):
        attrs = {"mode": mode, "strides": [1, 1, 1, 1], "padding": "VALID"}
        yield Case("FusedPadConv2D", (x, paddings, filters), attrs, note=mode)
        for aligned in (False, True):
            inputs = (x, i32(12, 13), paddings, filters)
            resized = {**attrs, "resize_align_corners": aligned}
            yield Case("FusedResizeAndPadConv2D", inputs, resized, note=f"{mode}{aligned}")
    conv = {
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
        "num_args": 1,
        "num_host_args": 0,
        "TArgs": [DType.FLOAT],
    }
    bias = make.real(4)
    for activation in ("Relu", "Relu6", "Elu", "LeakyRelu"):
        ops = ["BiasAdd", activation]
        yield Case("_FusedConv2D", (x, filters, bias), {**conv, "fused_ops": ops}, note=activation)
    norm = (make.real(4, low=0.5), make.real(4), make.real(4), make.real(4, low=0.5))
    attrs = {
        **conv,
        "num_args": 4,
        "TArgs": [DType.FLOAT] * 4,
        "fused_ops": ["FusedBatchNorm", "Relu"],
        "epsilon": 0.01,
    }
    yield Case("_FusedConv2D", (x, filters, *norm), attrs, note="norm")
    for activation in ("Relu", "Tanh", "Sigmoid"):
        ops = ["BiasAdd", activation]
        inputs = (make.real(3, 5), make.real(5, 4), bias)
        yield Case("_FusedMatMul", inputs, {"num_args": 1, "fused_ops": ops}, note=activation)


def cases() -> Iterator[Case]:
    yield from convolutions()
    yield from transposed()
    yield from pools()
    yield from pools_along_channels()
    yield from normalizations()
    yield from quantizations()
    yield from sequences()
    yield from fused()

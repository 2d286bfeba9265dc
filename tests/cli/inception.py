"""A small network with the structure of the first Inception, as used in TensorFlow guides."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.transforms.graphs import const, conv, node, normal

SIDE, CLASSES = 16, 7
EIGHT_BIT = (
    f'add_default_attributes strip_unused_nodes(type=float, shape="1,{SIDE},{SIDE},3") '
    "remove_nodes(op=Identity, op=CheckNumerics) fold_old_batch_norms quantize_weights "
    "quantize_nodes"
)


def inception() -> Graph:
    """A network that is fed at a Mul, with old batch norms and a softmax."""
    jpeg = Node("DecodeJpeg/contents", "Placeholder", attrs={"dtype": attr.dtype(DType.STRING)})
    norm = {"variance_epsilon": 0.001, "scale_after_normalization": True}
    sized = {"half_pixel_centers": False, "align_corners": False}
    return Graph(
        [
            jpeg,
            node("DecodeJpeg", "DecodeJpeg", "DecodeJpeg/contents", T=None, channels=3),
            node("Cast", "Cast", "DecodeJpeg", T=None, SrcT=DType.UINT8, DstT=DType.FLOAT),
            const("ExpandDims/dim", 0, np.int32),
            node("ExpandDims", "ExpandDims", "Cast ExpandDims/dim", Tdim=DType.INT32),
            const("size", [SIDE, SIDE], np.int32),
            node("ResizeBilinear", "ResizeBilinear", "ExpandDims size", **sized),
            const("Sub/y", 128.0),
            node("Sub", "Sub", "ResizeBilinear Sub/y"),
            const("Mul/y", 0.0078125),
            node("Mul", "Mul", "Sub Mul/y"),
            const("conv/conv2d_params", 0.2 * normal(3, 3, 3, 8)),
            conv("conv/Conv2D", "Mul conv/conv2d_params"),
            *(const(f"conv/{n}", 1 + 0.1 * normal(8, seed=i)) for i, n in enumerate("mvbg")),
            node(
                "conv/batchnorm",
                "BatchNormWithGlobalNormalization",
                "conv/Conv2D conv/m conv/v conv/b conv/g",
                **norm,
            ),
            node("conv/CheckNumerics", "CheckNumerics", "conv/batchnorm", message="conv"),
            node("conv/control_dependency", "Identity", "conv/batchnorm ^conv/CheckNumerics"),
            node("conv", "Relu", "conv/control_dependency"),
            const("axes", [1, 2], np.int32),
            node("pool", "Mean", "conv axes", Tidx=DType.INT32, keep_dims=False),
            const("softmax/weights", normal(8, CLASSES, seed=9)),
            node("logits", "MatMul", "pool softmax/weights"),
            const("softmax/biases", 0.1 * normal(CLASSES)),
            node("biased", "BiasAdd", "logits softmax/biases", data_format="NHWC"),
            node("softmax", "Softmax", "biased"),
        ]
    )

"""Models whose decoders belong in the app."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op

FLOAT = {"T": attr.dtype(DType.FLOAT)}


def text_placeholder(name: str) -> Node:
    attrs = {"dtype": attr.dtype(DType.STRING), "shape": attr.shape(())}
    return Node(name, "Placeholder", (), "", attrs)


def decoder(name: str, kind: str, text: str, **attrs: attr.AttrValue) -> Node:
    return Node(name, kind, (parse_ref(text),), "", attrs)


def speech() -> Graph:
    """An audio decoder, and a dense layer on 16 samples of one channel."""
    weights = np.linspace(-1, 1, 48, dtype=np.float32).reshape(16, 3)
    return Graph(
        [
            text_placeholder("wav"),
            decoder(
                "sound",
                "DecodeWav",
                "wav",
                desired_channels=attr.integer(1),
                desired_samples=attr.integer(16),
            ),
            constant("row", Tensor.of(np.int32([1, 16]))),
            op("flat", "Reshape", "sound", "row", **FLOAT, Tshape=attr.dtype(DType.INT32)),
            constant("w", Tensor.of(weights)),
            op("dense", "MatMul", "flat", "w", **FLOAT),
            op("probabilities", "Softmax", "dense", **FLOAT),
        ]
    )


def picture() -> Graph:
    """An image decoder with an unknown image size, and the mean of the pixels."""
    axes = constant("axes", Tensor.of(np.int32([0, 1])))
    cast = {"SrcT": attr.dtype(DType.UINT8), "DstT": attr.dtype(DType.FLOAT)}
    return Graph(
        [
            text_placeholder("jpeg"),
            decoder("pixels", "DecodeJpeg", "jpeg", channels=attr.integer(3)),
            Node("floats", "Cast", (parse_ref("pixels"),), "", cast),
            axes,
            op("mean", "Mean", "floats", "axes", **FLOAT, Tidx=attr.dtype(DType.INT32)),
        ]
    )

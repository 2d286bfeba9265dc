"""Keras application networks at small sizes, frozen and as SavedModels, built once and cached."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.reference.conftest import HOME, making
from tests.reference.networks import randomize

SIZES = {
    "MobileNet": 64,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "MobileNetV3Large": 64,
    "EfficientNetB0": 64,
    "EfficientNetV2B0": 64,
    "ResNet50": 64,
    "ResNet50V2": 64,
    "DenseNet121": 64,
    "InceptionV3": 96,
    "InceptionResNetV2": 96,
    "Xception": 96,
    "NASNetMobile": 64,
    "VGG16": 32,
    "ConvNeXtTiny": 32,
}


@dataclass(frozen=True)
class SmallNetwork:
    """A network in both forms, with an image and its output in TensorFlow.

    Args:
        frozen: the graph, frozen by ``convert_variables_to_constants_v2``.
        saved: the SavedModel.
        input: the input's name in the frozen graph.
        output: the output's name there.
        image: the input.
        expected: the output of the frozen graph.
    """

    frozen: Path
    saved: Path
    input: str
    output: str
    image: np.ndarray
    expected: np.ndarray


def small_network(tf: ModuleType, name: str) -> SmallNetwork:
    """A network from the shared directory; TensorFlow builds it on first use."""
    folder = HOME / "small_networks" / _recipe() / name
    with making():
        if not (folder / "done.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "done.json").write_text(json.dumps(_make(tf, name, folder)))
    names = json.loads((folder / "done.json").read_text())
    with np.load(folder / "golden.npz") as golden:
        image, expected = golden["image"], golden["expected"]
    return SmallNetwork(
        folder / "frozen.pb", folder / "saved", names["input"], names["output"], image, expected
    )


def _recipe() -> str:
    """A digest of the code that builds networks, so that changes rebuild them."""
    here = Path(__file__)
    sources = (here, here.with_name("networks.py"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()[:16]


def _make(tf: ModuleType, name: str, folder: Path) -> dict[str, Any]:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    tf.keras.backend.clear_session()
    size = SIZES[name]
    kind = getattr(tf.keras.applications, name)
    model = kind(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)
    rng = np.random.default_rng(7)
    randomize(model, rng)
    called = tf.function(lambda image: model(image, training=False))
    signature = tf.TensorSpec([None, size, size, 3], tf.float32, name="image")
    frozen = convert_variables_to_constants_v2(called.get_concrete_function(signature))
    (folder / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    model.export(str(folder / "saved"), verbose=False)
    image = rng.uniform(0, 1, (1, size, size, 3)).astype(np.float32)
    (expected,) = frozen(tf.constant(image))
    np.savez(folder / "golden.npz", image=image, expected=expected.numpy())
    return {"input": frozen.inputs[0].op.name, "output": frozen.outputs[0].op.name}

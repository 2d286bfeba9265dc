"""Real models that are single GraphDef files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GRAPHS = [
    "android-wakeword-streaming-rnn/graph.pb",
    "arm-kws/Basic_LSTM_S.pb",
    "arm-kws/CNN_S.pb",
    "arm-kws/DS_CNN_S.pb",
    "made-qat-mnist-tf115/eval_graph.pb",
    "made-qat-mnist-tf115/frozen_eval_graph.pb",
    "mtcnn/mtcnn.pb",
    "sugyan-mnist-v1ckpt/graph.pb",
    "tf2onnx-models/fc-layers/frozen.pb",
    "tf2onnx-models/gru/frozen.pb",
    "tf2onnx-models/lstm/frozen.pb",
    "tfjs-facemesh/facemesh.pb",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
    "tfjs-posenet/posenet.pb",
]


def model_parts(models: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The parts that the ``INFO.json`` of each model lists, with the directory of the model."""
    for info in sorted(models.glob("*/INFO.json")):
        for part in json.loads(info.read_text()).get("parts", ()):
            yield info.parent, part

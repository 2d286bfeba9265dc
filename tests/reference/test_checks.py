"""Checks of real models, with random samples and with recorded inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.formats.arrays import read_arrays, write_arrays

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("work_dir")]

CHAIN = """
  - strip_unused_nodes
  - remove_nodes: {op: [Identity, CheckNumerics]}
  - fold_constants
  - fold_batch_norms
  - fold_old_batch_norms"""
# Directory, source, inputs, outputs, and recorded run.
MODELS: dict[str, tuple[str, dict[str, str], list[str], list[str], str]] = {
    "wakeword": (
        "android-wakeword-streaming-rnn",
        {"frozen": "graph.pb"},
        ["model/rnn_initial_states", "model/inputX"],
        ["model/softmax", "model/logit", "model/rnn_states"],
        "golden_graph.npz",
    ),
    "kws-dscnn": (
        "arm-kws",
        {"frozen": "DS_CNN_S.pb"},
        ["wav_data"],
        ["labels_softmax"],
        "golden_DS_CNN_S.npz",
    ),
    "kws-lstm": (
        "arm-kws",
        {"frozen": "Basic_LSTM_S.pb"},
        ["wav_data"],
        ["labels_softmax"],
        "golden_Basic_LSTM_S.npz",
    ),
    "basic-pitch": (
        "basic-pitch-savedmodel",
        {"saved_model": "."},
        [],
        [],
        "golden_savedmodel_.npz",
    ),
    "qat": (
        "made-qat-mnist-tf115",
        {"frozen": "frozen_eval_graph.pb"},
        ["input"],
        ["output"],
        "golden_frozen_eval_graph.npz",
    ),
    "mtcnn": (
        "mtcnn",
        {"frozen": "mtcnn.pb"},
        ["input", "min_size", "thresholds", "factor"],
        ["prob", "landmarks", "box"],
        "golden_mtcnn.npz",
    ),
    "musicnn": (
        "musicnn",
        {"meta_graph": "MTT_musicnn/model.meta"},
        ["model/Placeholder", "model/Placeholder_2"],
        ["model/Sigmoid"],
        "golden_MTT_musicnn_model.npz",
    ),
    "fc": (
        "tf2onnx-models",
        {"frozen": "fc-layers/frozen.pb"},
        ["X"],
        ["output"],
        "golden_fc-layers_frozen.npz",
    ),
    "gru": (
        "tf2onnx-models",
        {"frozen": "gru/frozen.pb"},
        ["X", "keep_prob"],
        ["output"],
        "golden_gru_frozen.npz",
    ),
    "facemesh": (
        "tfjs-facemesh",
        {"frozen": "facemesh.pb"},
        ["input_1"],
        ["Identity", "Identity_1", "Identity_2"],
        "golden_facemesh.npz",
    ),
    "nsfwjs": (
        "tfjs-nsfwjs-mobilenet-v2",
        {"frozen": "nsfwjs-mobilenet-v2.pb"},
        ["input"],
        ["Identity"],
        "golden_nsfwjs-mobilenet-v2.npz",
    ),
    "posenet": (
        "tfjs-posenet",
        {"frozen": "posenet.pb"},
        ["image"],
        ["MobilenetV1/heatmap_2/BiasAdd", "MobilenetV1/offset_2/BiasAdd"],
        "golden_posenet.npz",
    ),
}


def recipe(models: Path, name: str, **more: Any) -> None:
    folder, source, inputs, outputs, _ = MODELS[name]
    ((kind, file),) = source.items()
    lines = [
        "version: 1",
        f"name: {name}",
        f"source: {{{kind}: {(models / folder / file).as_posix()}}}",
        f"transforms: {CHAIN}",
        'targets: {phone: {registration: {tensorflow: "2.21"}}}',
        *(f"{key}: {json.dumps(value)}" for key, value in more.items()),
    ]
    if inputs:
        lines.append(f"inputs: {json.dumps({name: {} for name in inputs})}")
        lines.append(f"outputs: {json.dumps(outputs)}")
    Path("recipe.yaml").write_text("\n".join(lines) + "\n")


def build_check(capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["validate", "recipe.yaml"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    code = main(["build", "recipe.yaml", "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)[0]["check"]


@pytest.mark.parametrize("name", MODELS)
def test_check_with_random_samples(
    models: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    recipe(models, name, check={"max_difference": 1e-4, "samples": 3})
    check = build_check(capsys)
    assert check["samples"] == 3
    # Random images have no faces.
    assert bool(check["warnings"]) == (name == "mtcnn"), check["warnings"]


@pytest.mark.parametrize("name", MODELS)
def test_check_with_recorded_inputs(
    models: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder, *_, golden = MODELS[name]
    arrays = read_arrays(models / folder / golden)
    fed = {k.removeprefix("in:").replace("|", "/"): v for k, v in arrays.items() if k[:3] == "in:"}
    write_arrays(Path("data.npz"), fed)
    recipe(models, name, check={"data": "data.npz", "max_difference": 1e-4})
    assert build_check(capsys)["data"] == "data.npz"


def test_check_limits_the_error_of_8_bit_weights(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe(models, "facemesh", check={"max_difference": 1e-3})
    text = Path("recipe.yaml").read_text().replace("{phone: {", "{phone: {quantize: weights, ")
    Path("recipe.yaml").write_text(text)
    assert main(["build", "recipe.yaml"]) == 8
    err = capsys.readouterr().err
    assert "after quantize_weights the output 'Identity" in err
    Path("recipe.yaml").write_text(text.replace("0.001", "0.5"))
    assert 0.001 < build_check(capsys)["share_of_peak"] < 0.5


def test_invalid_labels_are_reported(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.zeros((4, 784), np.float32)
    write_arrays(Path("test.npz"), {"X": x, "label": np.array([1, 12, 3, 4])})
    recipe(models, "fc", validation={"data": "test.npz"})
    for verb in ("validate", "build"):
        assert main([verb, "recipe.yaml"]) == 8
        assert "1 of 4 labels 'label' are none of the model's 10 classes" in capsys.readouterr().err

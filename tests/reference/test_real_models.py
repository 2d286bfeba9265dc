"""Every real model through ``init``, ``validate``, ``build``, and ``check-target``, and then run.

A row passes if the build fails with a documented exit code and an error message, or if the
published file runs in the runtime of its target with correct outputs. For float targets, these are
TensorFlow's outputs for the source; for quantized ones, the interpreter's for the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from mobileprep.cli.main import main
from mobileprep.graph.files import read_graph
from mobileprep.runtime.interpreter import Interpreter
from tests.reference.golden import assert_close, read_golden
from tests.reference.shipped import node_name, run_shipped
from tests.reference.test_init import COARSE, ROUNDING, SOURCES

pytestmark = pytest.mark.reference

Array = np.ndarray

# Usage, recipe, corrupt file, invalid graph, unsupported, transform, accuracy.
DOCUMENTED = (2, 3, 4, 5, 6, 7, 8)
# LiteRT, 1.15, and 2.21, which computed the expected outputs, sum in different orders. Logarithms
# of Fourier transforms amplify the differences.
LITE_ROUNDING = 1e-4
COARSE_115 = {"android-wakeword-streaming-rnn": 3e-4}
# Mean error as a share of the source's peak. Calibration on one input is not accurate.
EIGHT_BIT = 0.5


@dataclass(frozen=True)
class Kind:
    """A kind of artifact.

    Args:
        release: the runtime that loads it: a release of TensorFlow, or "litert".
        target: the target of the recipe; None for the target from ``init``.
        quantized: whether its outputs differ from the source's.
    """

    release: str = "1.15"
    target: Mapping[str, Any] | None = field(default=None, hash=False)
    quantized: bool = False


def tensorflow(*releases: str) -> dict[str, Any]:
    return {"registration": {"tensorflow": list(releases)}}


KINDS = {
    "as init writes it": Kind(),
    "float": Kind("1.15", tensorflow("1.15")),
    "float for 2.21": Kind("2.21", tensorflow("2.21")),
    "float for both": Kind("1.15", tensorflow("1.15", "2.21")),
    "8-bit weights": Kind("1.15", {**tensorflow("1.15"), "quantize": "weights"}, quantized=True),
    "memory-mapped": Kind("1.15", {**tensorflow("1.15"), "artifact": "memmapped"}),
    "tflite": Kind("litert", {"artifact": "tflite"}),
    "tflite int8": Kind(
        "litert", {"artifact": "tflite", "quantize": {"mode": "int8"}}, quantized=True
    ),
}
# One source of each model is built as every kind; other sources are the same models in other files.
ONE_OF_EACH = (
    "android-wakeword-streaming-rnn/graph.pb",
    "arm-kws/Basic_LSTM_S.pb",
    "arm-kws/CNN_S.pb",
    "arm-kws/DS_CNN_S.pb",
    "basic-pitch-savedmodel",
    "made-qat-mnist-tf115/frozen_eval_graph.pb",
    "made-qat-mnist-tf115/frozen_float_fusedbn.pb",
    "mtcnn/mtcnn.pb",
    "musicnn/MTT_musicnn/model.meta",
    "sugyan-mnist-v1ckpt/softmax-1000.ckpt",
    "tf-serving-testdata/matrix_half_plus_two",
    "tf-serving-testdata/saved_model_half_plus_two_tf2_cpu/00000123",
    "tf2onnx-models/fc-layers",
    "tf2onnx-models/gru/frozen.pb",
    "tf2onnx-models/lstm/frozen.pb",
    "tfjs-facemesh/facemesh.pb",
    "tfjs-nsfwjs-mobilenet-v2",
    "tfjs-posenet/posenet.pb",
)
ROWS = [
    (source, kind)
    for source in SOURCES
    for kind in KINDS
    if source in ONE_OF_EACH or kind == "as init writes it"
]


@pytest.fixture(scope="module")
def recipe_of(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write the recipe of a source with ``init``, once for each source."""
    written: dict[str, Path] = {}

    def recipe(source: str) -> Path:
        if source not in written:
            path = tmp_path_factory.mktemp("model") / "recipe.yaml"
            code = main(["init", "-q", str(models / source), "--recipe", str(path)])
            assert code == 0, f"init exits with {code}"
            written[source] = path
        return written[source]

    return recipe


def recipe_of_kind(written: Path, kind: Kind, feeds: Mapping[str, Array]) -> tuple[Path, Any]:
    """Write a recipe with the target of a kind, and return its path and content."""
    recipe = yaml.safe_load(written.read_text(encoding="utf-8"))
    # The recorded inputs of models with a decoder are files; test_preprocessing_code.py cuts them.
    is_cut = recipe.pop("preprocessing", None) is not None
    if kind.target is None and not is_cut:
        return written, recipe
    if kind.target is not None:
        recipe["targets"] = {"phone": {"platform": "android", **kind.target}}
    if kind.quantized:
        # The limit that `init` wrote is for another target.
        recipe["check"] = True
    if kind.release == "litert" and kind.quantized:
        samples = {node_name(name): _samples(array) for name, array in feeds.items()}
        np.savez(written.with_name("calibration.npz"), **samples)
        recipe["calibration"] = {"data": "calibration.npz", "method": "min_max"}
    path = written.with_name("kind.yaml")
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path, recipe


def _samples(array: Array) -> Array:
    """Eight samples near the first of an array, or eight times the same number."""
    if array.dtype != np.float32 or not array.ndim:
        return np.stack([array] * 8)
    shares = np.linspace(0.8, 1.0, 8, dtype=np.float32)
    return np.stack([array[0] * share for share in shares])


@pytest.mark.parametrize(("source", "name"), ROWS)
def test_built_files_run_correctly(
    source: str,
    name: str,
    models: Path,
    original: Path,
    tf: ModuleType,
    recipe_of: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    kind = KINDS[name]
    model = read_golden(models / source.split("/")[0] / f"{SOURCES[source]}.npz")
    path, recipe = recipe_of_kind(recipe_of(source), kind, model.feeds)
    out = tmp_path / "out"
    capsys.readouterr()
    valid = main(["validate", "-q", str(path)])
    message = capsys.readouterr().err
    code = main(["build", "-q", "--out", str(out), str(path)])
    message = capsys.readouterr().err or message
    if code:
        assert code in DOCUMENTED, message
        assert "error: " in message
        return
    assert valid == 0, f"the build succeeds, but validate fails: {message}"

    target = recipe["targets"]["phone"]
    folder = out / recipe["name"] / "phone"
    is_tflite, mapped = kind.release == "litert", target.get("artifact") == "memmapped"
    shipped = folder / f"{recipe['name']}.{'tflite' if is_tflite else 'pb'}"
    releases = [] if is_tflite else target["registration"]["tensorflow"]
    for release in releases:
        gaps = main(["check-target", str(shipped), "--tensorflow", release, "--selective"])
        assert gaps == 0, f"check-target for {release}: {capsys.readouterr().out}"

    outputs = {node_name(n): n for n in recipe["outputs"]}
    # Some files rename the nodes of a graph, and its only output.
    names = [outputs.get(node_name(n), recipe["outputs"][0]) for n in model.outputs]
    fetches = [node_name(n) for n in names]
    feeds = {node_name(n): array for n, array in model.feeds.items()}
    expected = list(model.outputs.values())
    eight_bit = kind.quantized or "quantize" in target
    rounding = _rounding(source, kind.release)
    for release in releases or ["litert"]:
        results = run_shipped(
            shipped,
            release,
            feeds,
            fetches,
            home=original,
            tf=tf,
            folder=tmp_path,
            memmapped=mapped,
        )
        if not eight_bit:
            assert_close(results, expected, rounding, min_peak=1e-3)
            continue
        for array, reference in zip(results, expected, strict=True):
            assert array.shape == reference.shape
            assert np.abs(array - reference).mean() <= EIGHT_BIT * np.abs(reference).max()
        if not is_tflite:
            measured = Interpreter(read_graph(shipped)).run(fetches, feeds)
            assert_close(results, measured, rounding, min_peak=1e-3)


def _rounding(source: str, release: str) -> float:
    model = source.split("/")[0]
    if release == "1.15" and model in COARSE_115:
        return COARSE_115[model]
    return COARSE.get(model, LITE_ROUNDING if release == "litert" else ROUNDING)

"""Logs that the profilers of TensorFlow and LiteRT print now, read and matched to their models."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mobileprep import load_graph, load_recipe, to_tflite
from mobileprep.building.builder import build
from mobileprep.building.device_measurements import import_measurement
from mobileprep.inspection.device_logs import parse_log
from mobileprep.targets.measurements import Measurement
from mobileprep.targets.op_classes import HEAVY_CLASSES
from tests.reference.native import program

pytestmark = pytest.mark.reference

DIGITS = Path(__file__).parents[2] / "recipes" / "digits" / "recipe.yaml"
RECIPE = f"""\
version: 1
extends: {DIGITS}
targets:
  phone: {{quantize: none, registration: null}}
  lite: {{artifact: tflite, quantize: none}}
  download: null
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a build of the digits recipe in float."""
    folder = tmp_path_factory.mktemp("devices")
    (folder / "recipe.yaml").write_text(RECIPE)
    build([folder / "recipe.yaml"], out=folder / "out", warn=lambda _: None)
    return folder


def profile(module: str, *arguments: object) -> str:
    pytest.importorskip(module, reason=f"{module} is not installed")
    command = [sys.executable, "-m", "tests.reference.profiles", *map(str, arguments)]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    return done.stdout


def imported(folder: Path, text: str, target: str) -> Measurement:
    (folder / "log").write_text(text)
    facts = {"device": "this machine", "target": target, "threads": "1"}
    recipe = load_recipe(folder / "recipe.yaml")
    return import_measurement(folder / "log", recipe, out=folder / "out", facts=facts).measurement


def check_matches(measurement: Measurement) -> None:
    """Check that all convolutions and products of the model have measured times."""
    expected = {c.kind: c.nodes for c in measurement.costs if c.kind in HEAVY_CLASSES}
    matched = [op.cost for op in measurement.ops if op.cost is not None]
    counts = {kind: sum(c.nodes for c in matched if c.kind == kind) for kind in expected}
    assert counts == expected
    part = sum(op.ms for op in measurement.ops) / measurement.mean_ms
    assert 0.3 < part < 1.1


def test_tensorflow_2(folder: Path) -> None:
    text = profile("tensorflow", folder / "out/digits/phone/digits.pb", 50)
    measurement = imported(folder, text, "phone")
    assert measurement.runs == 50
    check_matches(measurement)


def test_tensorflow_115(folder: Path, original: Path) -> None:
    model = folder / "out/digits/phone/digits.pb"
    command = [program(original, "profile"), model, "image", "1,8,8,1", "probabilities", "50"]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, env=environ
    )
    measurement = imported(folder, done.stderr, "phone")
    assert measurement.runs == 50
    check_matches(measurement)


def test_litert_with_xnnpack(folder: Path) -> None:
    # The profiler counts microseconds, in which the digits are done.
    text = profile("ai_edge_litert", folder / "out/digits/lite/digits.tflite", 20)
    names = [op.op for op in parse_log(text + "Inference timings in us: Inference: 4\n", "log").ops]
    assert [name for name in names if name.startswith(("Conv", "Fully"))] == [
        "Convolution (NHWC, F32) IGEMM",
        "Convolution (NHWC, F32) DWConv",
        *["Fully Connected (NC, F32) GEMM"] * 3,
    ]


def test_litert_benchmark(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    # A batch of 512, so that a run takes longer than the smallest time that the tool prints.
    model = tmp_path / "m.tflite"
    graph = load_graph(folder / "out/digits/phone/digits.pb")
    shapes = {"image": (512, 8, 8, 1)}
    to_tflite(graph, model, inputs=["image"], outputs=["probabilities"], shapes=shapes)
    tool = Path(sysconfig.get_path("scripts")) / "litert-benchmark"
    command = [tool, "--model", model, "--num_runs", "20", "--num_threads", "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    log = parse_log(done.stderr + done.stdout, "log")
    assert (log.format, log.runs) == ("litert", 20)
    assert log.min_ms is not None
    assert 0 < log.min_ms <= log.mean_ms

"""Integer quantization for LiteRT with ``tflite`` and in recipes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.core.files import map_file
from mobileprep.formats.tflite.reader import read_model
from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import RECIPES, Run

RANGES = "version: 1\ntensors:\n  x: {min: -1.0, max: 2.0}\n  y: {min: -4.0, max: 4.0}\n"


@pytest.fixture
def graph(workdir: Path) -> Path:
    path = workdir / "frozen.pb"
    write_graph(path, classifier())
    return path


def types(path: str) -> list[str]:
    """The types of inputs and outputs of a file."""
    graph = read_model(map_file(Path(path)), path).subgraphs[0]
    return [graph.tensors[i].type for i in (*graph.inputs, *graph.outputs)]


def output_scale(path: str) -> float:
    graph = read_model(map_file(Path(path)), path).subgraphs[0]
    quantization = graph.tensors[graph.outputs[0]].quantization
    assert quantization is not None
    return float(quantization.scales[0])


def test_range_file_and_integer_inputs(graph: Path, run: Run) -> None:
    Path("ranges.yaml").write_text(RANGES)
    flags = ["--mode=int8", "--calibration=ranges.yaml", "--inference_input_type=uint8"]
    result = run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags)
    assert result.code == 0, result.err
    assert types("m.tflite") == ["UINT8", "FLOAT32"]


CALIBRATED = """\
version: 1
name: r
source: {frozen: frozen.pb}
inputs: {x: {dtype: float32, shape: [-1, 3]}}
outputs: [y]
calibration: {data: samples.npz, range_file: ranges.yaml}
targets:
  phone: {artifact: tflite, quantize: int8}
"""


def test_range_file_of_another_graph_is_refused(graph: Path, run: Run) -> None:
    np.savez("samples.npz", x=np.linspace(-1, 1, 15).astype(np.float32).reshape(5, 3))
    Path("recipe.yaml").write_text(CALIBRATED)
    assert run("calibrate", "recipe.yaml").code == 0
    command = ["tflite", f"--in_graph={graph}", "--mode=int8", "--calibration=ranges.yaml"]
    fits = run(*command, "--out_file=m.tflite")
    assert fits.code == 0
    assert "digests" not in fits.err

    write_graph(graph, classifier(scale=2.0))
    result = run(*command, "--out_file=other.tflite")
    assert (result.code, Path("other.tflite").exists()) == (8, False)
    assert (
        "ranges.yaml: the range file is stale: [MP801]\n  y: what computes it has changed\n"
        in result.err
    )
    assert "run 'mobileprep calibrate'" in result.err


def test_int8_and_int16_targets_share_a_range_file(graph: Path, run: Run) -> None:
    np.savez("samples.npz", x=np.linspace(-1, 1, 15).astype(np.float32).reshape(5, 3))
    eight = "{artifact: tflite, quantize: {mode: int8, inference_output_type: int8}}"
    sixteen = "{artifact: tflite, quantize: {mode: int16x8, inference_output_type: int16}}"
    targets = f"targets: {{eight: {eight}, sixteen: {sixteen}}}\n"
    Path("recipe.yaml").write_text(CALIBRATED.partition("targets:")[0] + targets)
    assert run("calibrate", "recipe.yaml").code == 0
    result = run("build", "recipe.yaml", "--out=out")
    assert result.code == 0, result.err
    # 8 bits have an eighth of headroom, 16 bits have as much as the values.
    assert output_scale("out/r/eight/r.tflite") == pytest.approx(2 * 1.125 / 255)
    assert output_scale("out/r/sixteen/r.tflite") == pytest.approx(2 / 32767)


def test_ranges_without_digests_are_used_with_a_warning(graph: Path, run: Run) -> None:
    Path("ranges.yaml").write_text(RANGES)
    flags = ["--mode=int8", "--calibration=ranges.yaml"]
    result = run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags)
    assert result.code == 0
    assert "ranges.yaml: the ranges have no digests" in result.err


def test_ranges_are_measured_on_samples(graph: Path, run: Run) -> None:
    size = classifier()["x"].attr_shape("shape")
    assert size is not None
    np.savez("samples.npz", x=np.linspace(-1, 1, 5 * size[1]).astype(np.float32).reshape(5, -1))
    flags = ["--mode=int16x8", "--calibration=samples.npz", "--inference_output_type=int16"]
    result = run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags)
    assert result.code == 0, result.err
    assert types("m.tflite") == ["FLOAT32", "INT16"]
    # The outputs are from -1 to 1, and there is as much headroom.
    assert output_scale("m.tflite") == pytest.approx(2 / 32767)


@pytest.mark.parametrize(("mode", "scale"), [("int8", 8 / 255), ("int16x8", 10 / 32767)])
def test_range_file_has_ranges_for_8_and_16_bits(
    graph: Path, run: Run, mode: str, scale: float
) -> None:
    Path("ranges.yaml").write_text(RANGES.replace("max: 4.0", "max: 4.0, min16: -10.0, max16: 9.0"))
    kind = "int8" if mode == "int8" else "int16"
    flags = [f"--mode={mode}", "--calibration=ranges.yaml", f"--inference_output_type={kind}"]
    assert run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags).code == 0
    assert output_scale("m.tflite") == pytest.approx(scale)


def test_float_operators_are_reported(graph: Path, run: Run) -> None:
    Path("ranges.yaml").write_text(RANGES.replace("  y", "  z"))
    flags = ["--mode=int8", "--calibration=ranges.yaml"]
    result = run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags)
    assert result.code == 0
    assert "FULLY_CONNECTED 'y' in float: the range of 'y' is not known" in result.err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--calibration=ranges.yaml"], 2, "mode float computes in float"),
        (["--mode=weights", "--inference_input_type=int8"], 2, "mode weights computes in float"),
        (["--mode=int8", "--calibration=none.yaml"], 4, "none.yaml"),
        (["--mode=int8", "--calibration=none.npz"], 4, "none.npz"),
        (["--mode=int8", "--calibration=other.npz"], 8, "'x'"),
        (["--mode=int8", "--inference_input_type=int16"], 2, "inference_input_type is int16"),
        (["--mode=int8"], 2, "int8 needs ranges of tensors"),
        (
            ["--mode=int8", "--inference_input_type=int8", "--calibration=less.yaml"],
            2,
            "the range of the input 'x'",
        ),
    ],
)
def test_invalid_options_are_refused(
    flags: list[str], code: int, message: str, graph: Path, run: Run
) -> None:
    Path("ranges.yaml").write_text(RANGES)
    Path("less.yaml").write_text(RANGES.replace("  x", "  z"))
    np.savez("other.npz", z=np.zeros((2, 2), np.float32))
    result = run("tflite", f"--in_graph={graph}", "--out_file=m.tflite", *flags)
    assert (result.code, Path("m.tflite").exists()) == (code, False), result.err
    assert message in result.err


TARGETS = """
targets:
  float: {artifact: tflite}
  int8: {artifact: tflite, quantize: int8}
  int16x8: {artifact: tflite, quantize: {mode: int16x8, inference_input_type: int16}}
  weights: {artifact: tflite, quantize: weights}
"""
TRAINED = """
  trained:
    artifact: tflite
    source: {graph: model/fake_quant.pbtxt, checkpoint: model/fake_quant.ckpt-600}
    calibration: null
    quantize: {mode: int8, ranges: trained, inference_output_type: uint8}
"""
# 0.1 %: one of 1,000 images, none of 450.
MOST = 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "calibration", "more"),
    [
        ("mnist", "{data: data/calibration.npz, method: min_max}", TRAINED),
        ("digits", "{data: data/calibration.npz}", ""),
    ],
)
def test_quantized_recipes_keep_their_accuracy(
    name: str, calibration: str, more: str, workdir: Path, run: Run
) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    shutil.copytree(RECIPES / name, workdir / name)
    recipe = workdir / name / "recipe.yaml"
    text, _, _ = recipe.read_text("utf-8").partition("\ntargets:")
    text, _, _ = text.partition("\ncalibration:")
    limit = "validation: {engine: litert, data: data/test.npz, labels: label, metric: top1"
    text = text.partition("\nvalidation:")[0]
    text += f"\ncalibration: {calibration}\n{limit}, max_drop: {MOST}}}\n{TARGETS}{more}"
    recipe.write_text(text, "utf-8")
    result = run("build", recipe)
    assert result.code == 0, result.err
    sizes = {path.parent.name: path.stat().st_size for path in workdir.glob("out/*/*/*.tflite")}
    assert sizes["weights"] < sizes["int8"] < sizes["int16x8"] < 0.6 * sizes["float"]
    report: dict[str, Any] = json.loads(Path(f"out/{name}/int8/report.json").read_text("utf-8"))
    assert report["calibrations"][0]["tensors"] >= 8

"""LiteRT and TensorFlow find the same objects in SSD exports with TFLite_Detection_PostProcess."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.data.metrics.detection import MeanAveragePrecision
from mobileprep.formats.tflite.reader import read_model
from mobileprep.graph.serde import graph_from_bytes
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.graph_engines import TensorFlowEngine
from tests.data.metrics.batches import batch
from tests.litert.graphs import answered, codes
from tests.reference.detectors import OUTPUTS, Form, frozen

pytestmark = pytest.mark.reference

FORMS = {
    "2017": Form("2017"),
    "2018": Form("2018"),
    "2018 softmax": Form("2018", "softmax", least_score=0.2),
    "2019": Form("2019"),
    "2019 softmax": Form("2019", "softmax", least_score=0.2),
    "no background": Form(has_background=False),
    "constant anchors": Form(computes_anchors=False),
    "other scales": Form(scales=(8.0, 9.0, 3.0, 4.0)),
    "no scales": Form(scales=None),
    "one class": Form(classes=1),
    "any score": Form(least_score=1e-8, per_class=100, total=100),
}


def convert_command(source: Path, target: Path) -> list[str]:
    return [
        *("tflite", f"--in_graph={source}", f"--out_file={target}", "--inputs=image_tensor"),
        *("--input_shapes=1,40,56,3", f"--outputs={','.join(OUTPUTS)}"),
        "--detection_postprocess=auto",
    ]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_detections_match_tensorflow(tf: ModuleType, tmp_path: Path, form: Form) -> None:
    content = frozen(tf, form)
    source, target = tmp_path / "frozen_inference_graph.pb", tmp_path / "detector.tflite"
    source.write_bytes(content)
    assert main(convert_command(source, target)) == 0
    operators = set(codes(read_model(target.read_bytes(), str(target))))
    assert not operators & {"WHILE", "NON_MAX_SUPPRESSION_V4", "DYNAMIC_UPDATE_SLICE"}
    engine = TensorFlowEngine(graph_from_bytes(content, "graph"), "graph")
    random = np.random.default_rng(1)
    metric = MeanAveragePrecision()
    for _ in range(6):
        image = random.integers(0, 256, (1, 40, 56, 3)).astype(np.uint8)
        expected = engine.run(list(OUTPUTS), {"image_tensor": image})
        outputs = answered(target.read_bytes(), [image])
        names = ("boxes", "scores", "classes", "count")
        metric.update(batch(dict(zip(names, outputs, strict=True)), _labels(expected)))
        np.testing.assert_array_equal(outputs[3], expected[3])
    assert metric.value() > 0.999


def _labels(outputs: list[Array]) -> Array:
    """The detections of the graph as ground truth."""
    rows = np.concatenate([outputs[0], outputs[2][..., None]], axis=2)
    rows[0, int(outputs[3][0]) :, 4] = -1
    return rows.astype(float)


def test_postprocessing_stays_float_in_integer_modes(tf: ModuleType, tmp_path: Path) -> None:
    source, target = tmp_path / "frozen_inference_graph.pb", tmp_path / "detector.tflite"
    source.write_bytes(frozen(tf, Form("2018")))
    samples = np.random.default_rng(1).integers(0, 256, (8, 40, 56, 3)).astype(np.uint8)
    np.savez(tmp_path / "samples.npz", image_tensor=samples)
    flags = ["--mode=int8", f"--calibration={tmp_path / 'samples.npz'}"]
    assert main([*convert_command(source, target), *flags]) == 0
    (graph,) = read_model(target.read_bytes(), str(target)).subgraphs
    types = {
        operator.code.builtin: graph.tensors[operator.outputs[0]].type
        for operator in graph.operators
    }
    assert [types[code] for code in ("CONV_2D", "LOGISTIC")] == ["INT8", "INT8"]
    assert [types[code] for code in ("EXP", "LOG", "MAXIMUM")] == ["FLOAT32"] * 3

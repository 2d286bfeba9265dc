"""TFLite_Detection_PostProcess, compared with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.interpreter import Interpreter
from tests.litert.graphs import answered, feed, model, op
from tests.ops.graphs import f32

NAMES = ("boxes", "scores", "anchors")
OUTPUTS = ("found", "found:1", "found:2", "found:3")
FAST: dict[str, Any] = {
    "max_detections": 3,
    "max_classes_per_detection": 2,
    "num_classes": 2,
    "nms_score_threshold": 0.25,
    "nms_iou_threshold": 0.5,
    "use_regular_nms": False,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
REGULAR = {
    **FAST,
    "max_classes_per_detection": 1,
    "use_regular_nms": True,
    "detections_per_class": 2,
}
ANCHORS = f32([0.25, 0.25, 0.5, 0.5], [0.26, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5])
SCORES = f32([[0.0, 0.6, 0.25], [0.0, 0.5, 0.1], [0.9, 0.1, 0.7]])[None]


def graph(inputs: tuple[np.ndarray, ...], settings: dict[str, Any]) -> Graph:
    nodes = [feed(name, array.shape) for name, array in zip(NAMES, inputs, strict=True)]
    return Graph([*nodes, op("found", "TFLite_Detection_PostProcess", NAMES, **settings)])


def run(inputs: tuple[np.ndarray, ...], settings: dict[str, Any]) -> list[np.ndarray]:
    feeds = dict(zip(NAMES, inputs, strict=True))
    return Interpreter(graph(inputs, settings)).run(OUTPUTS, feeds)


def test_overlapping_box_is_suppressed() -> None:
    inputs = np.zeros((1, 3, 4), np.float32), SCORES, ANCHORS
    boxes, classes, scores, count = run(inputs, REGULAR)
    np.testing.assert_array_equal(scores, f32([[0.7, 0.6, 0.25]]))
    np.testing.assert_array_equal(classes, f32([[1, 0, 1]]))
    np.testing.assert_allclose(boxes[0, :2], [[0.5, 0.5, 1, 1], [0, 0, 0.5, 0.5]])
    assert count == [3]


@pytest.mark.parametrize(("settings", "size"), [(REGULAR, 3), (FAST, 6)], ids=["regular", "fast"])
def test_shapes_are_inferred_from_attributes(settings: dict[str, Any], size: int) -> None:
    shapes = infer_shapes(graph((np.zeros((1, 3, 4)), SCORES, ANCHORS), settings))
    assert list(shapes["found"]) == [(1, size, 4), (1, size), (1, size), (1,)]


def test_invalid_shapes_are_refused() -> None:
    boxes = np.zeros((1, 3, 4), np.float32)
    with pytest.raises(InvalidGraphError, match="scores of 5 classes for num_classes=2"):
        run((boxes, np.zeros((1, 3, 5), np.float32), ANCHORS), REGULAR)
    with pytest.raises(InvalidGraphError, match=r"anchors of \[2, 4\]"):
        run((boxes, SCORES, ANCHORS[:2]), REGULAR)


@pytest.mark.parametrize("settings", [FAST, REGULAR], ids=["fast", "regular"])
@pytest.mark.parametrize("columns", [2, 3])
def test_results_match_litert(settings: dict[str, Any], columns: int) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        inputs = (
            random.normal(0, 2, (1, 6, 4)).astype(np.float32),
            random.uniform(0, 1, (1, 6, columns)).astype(np.float32),
            random.uniform(0.2, 0.6, (6, 4)).astype(np.float32),
        )
        record = model(graph(inputs, settings), NAMES, OUTPUTS)
        expected, values = answered(model_bytes(record), inputs), run(inputs, settings)
        count = int(expected[3][0])
        assert int(values[3][0]) == count
        for value, reference in zip(values[:3], expected[:3], strict=True):
            np.testing.assert_allclose(value[:, :count], reference[:, :count], atol=1e-6)

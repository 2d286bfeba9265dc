"""Non-maximum suppression."""

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
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32, run, run_all

BOXES, SCORES = (5, 4), (5,)
# Scalar inputs after boxes and scores: max output size, IoU threshold, score threshold, sigma.
REST = {
    "NonMaxSuppression": 1,
    "NonMaxSuppressionV2": 2,
    "NonMaxSuppressionV3": 3,
    "NonMaxSuppressionV4": 3,
    "NonMaxSuppressionV5": 4,
}
FOUND = {
    "NonMaxSuppressionV4": [(-1,), ()],
    "NonMaxSuppressionV5": [(-1,), (-1,), ()],
}
OVERLAPS, COMBINED = "NonMaxSuppressionWithOverlaps", "CombinedNonMaxSuppression"
PADDED = {"pad_to_max_output_size": True}
PER_CLASS = {"pad_per_class": True}
LIMITS = [(), ()]
BATCH = [(2, 9, 1, 4), (2, 9, 3)]


def combined_shapes(count: int) -> list[tuple[int, ...]]:
    return [(2, count, 4), (2, count), (2, count), (2,)]


SHAPES = [
    *(shapes(op, [BOXES, SCORES, *[()] * n], FOUND.get(op, [(-1,)])) for op, n in REST.items()),
    *(shapes(op, [None, None, *[()] * n], FOUND.get(op, [(-1,)])) for op, n in REST.items()),
    *(shapes(op, [BOXES, (6,), *[()] * n], None) for op, n in REST.items()),
    *(shapes(op, [(5, 3), SCORES, *[()] * n], None) for op, n in REST.items()),
    *(shapes(op, [(20,), SCORES, *[()] * n], None) for op, n in REST.items()),
    *(shapes(op, [BOXES, (5, 1), *[()] * n], None) for op, n in REST.items()),
    shapes("NonMaxSuppressionV4", [BOXES, SCORES, 7, *LIMITS], [(7,), ()], **PADDED),
    shapes("NonMaxSuppressionV4", [BOXES, SCORES, 7, *LIMITS], [(-1,), ()]),
    shapes("NonMaxSuppressionV4", [BOXES, SCORES, (), *LIMITS], [(-1,), ()], **PADDED),
    shapes("NonMaxSuppressionV5", [BOXES, SCORES, 7, *LIMITS, ()], [(7,), (7,), ()], **PADDED),
    shapes(OVERLAPS, [(5, 5), SCORES, (), (), ()], [(-1,)]),
    shapes(OVERLAPS, [(5, 6), (-1,), (), (), ()], None),
    shapes(OVERLAPS, [(5, -1), (6,), (), (), ()], None),
    shapes(OVERLAPS, [(-1, 5), (6,), (), (), ()], [(-1,)]),
    shapes(OVERLAPS, [(5, 5, 1), SCORES, (), (), ()], None),
    shapes(OVERLAPS, [(5, 5), (5, 1), (), (), ()], None),
    shapes(COMBINED, [*BATCH, 2, 7, *LIMITS], combined_shapes(7)),
    shapes(COMBINED, [(2, 9, 1, 4), (-1, 9, 3), 4, (), *LIMITS], combined_shapes(-1)),
    shapes(COMBINED, [(2, 9, 1, 4), (2, 9, 0), 2, 7, *LIMITS], combined_shapes(0), **PER_CLASS),
    # 2 for each of 3 classes
    shapes(COMBINED, [*BATCH, 2, 7, *LIMITS], combined_shapes(6), **PER_CLASS),
    shapes(COMBINED, [*BATCH, 4, 7, *LIMITS], combined_shapes(7), **PER_CLASS),
    shapes(COMBINED, [(2, 9, 1, 4), (2, 9, -1), 2, 7, *LIMITS], combined_shapes(-1), **PER_CLASS),
    shapes(COMBINED, [*BATCH, (), 7, *LIMITS], combined_shapes(-1), **PER_CLASS),
    shapes(COMBINED, [*BATCH, 2, (), *LIMITS], combined_shapes(-1), **PER_CLASS),
    shapes(COMBINED, [(2, 9, 1, 4), (3, 9, 3), 4, 7, *LIMITS], None),
]

COSTS = [
    *(cost(op, [BOXES, SCORES, *[()] * n], [(5,), (5,), ()], None) for op, n in REST.items()),
    cost(OVERLAPS, [(5, 5), SCORES, (), (), ()], [(5,)], None),
    cost(COMBINED, [*BATCH, (), (), *LIMITS], [(2, 7, 4), (2, 7), (2, 7), (2,)], None),
]

# Two boxes with an IoU of 0.6, a distant one, and one without area.
BOXES = f32([[0, 0, 1, 1], [0, 0, 1, 0.6], [5, 5, 6, 6], [2, 2, 2, 3]])
SCORES = f32(0.5, 0.9, 0.3, 0.1)
HALF = f32(0.5)


def test_overlapping_boxes_are_suppressed() -> None:
    assert run("NonMaxSuppressionV2", BOXES, SCORES, i32(9), HALF).tolist() == [1, 2, 3]
    assert run("NonMaxSuppression", BOXES, SCORES, i32(9), iou_threshold=0.5).tolist() == [1, 2, 3]


def test_overlap_below_the_threshold_is_allowed() -> None:
    assert run("NonMaxSuppressionV2", BOXES, SCORES, i32(9), f32(0.61)).tolist() == [1, 0, 2, 3]


def test_max_output_size() -> None:
    assert run("NonMaxSuppressionV2", BOXES, SCORES, i32(1), HALF).tolist() == [1]
    assert run("NonMaxSuppressionV2", BOXES, SCORES, i32(0), HALF).tolist() == []


def test_swapped_corners() -> None:
    turned = BOXES[:, [2, 1, 0, 3]]
    assert run("NonMaxSuppressionV2", turned, SCORES, i32(9), HALF).tolist() == [1, 2, 3]


def test_first_of_equal_scores_is_selected() -> None:
    same = f32(0.5, 0.5, 0.5, 0.5)
    assert run("NonMaxSuppressionV2", BOXES, same, i32(9), HALF).tolist() == [0, 2, 3]


def test_low_scores_are_dropped() -> None:
    result = run("NonMaxSuppressionV3", BOXES, SCORES, i32(9), HALF, f32(0.3))
    assert result.tolist() == [1]


def test_pad_to_max_output_size() -> None:
    rest = (BOXES, SCORES, i32(5), HALF, f32(0.2))
    selected, count = run_all("NonMaxSuppressionV4", *rest, pad_to_max_output_size=True)
    assert (selected.tolist(), count.tolist()) == ([1, 2, 0, 0, 0], 2)
    selected, count = run_all("NonMaxSuppressionV4", *rest)
    assert (selected.tolist(), count.tolist()) == ([1, 2], 2)


def test_soft_suppression_lowers_scores() -> None:
    rest = (BOXES, SCORES, i32(4), f32(1.0), f32(0.0), f32(0.5))
    selected, scores, count = run_all("NonMaxSuppressionV5", *rest)
    lowered = 0.5 * np.exp(-0.36)
    assert selected.tolist() == [1, 0, 2, 3]
    np.testing.assert_allclose(scores, [0.9, lowered, 0.3, 0.1], rtol=1e-6)
    assert count == 4


def test_soft_suppression_drops_low_scores() -> None:
    rest = (BOXES, SCORES, i32(4), f32(1.0), f32(0.36), f32(0.5))
    selected, scores, count = run_all("NonMaxSuppressionV5", *rest, pad_to_max_output_size=True)
    assert (selected.tolist(), count.tolist()) == ([1, 0, 0, 0], 1)
    np.testing.assert_allclose(scores, [0.9, 0, 0, 0], rtol=1e-6)


def test_suppression_with_overlap_matrix() -> None:
    matrix = np.eye(4, dtype=np.float32)
    matrix[2, 1] = 0.7
    result = run("NonMaxSuppressionWithOverlaps", matrix, SCORES, i32(9), HALF, f32(0.0))
    assert result.tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("boxes", "count", "overlap"),
    [(BOXES[:3], 9, 0.5), (BOXES[:, :3], 9, 0.5), (BOXES, -1, 0.5), (BOXES, 9, 1.5)],
)
def test_invalid_inputs_are_refused(boxes, count: int, overlap: float) -> None:
    with pytest.raises(InvalidGraphError, match="node 'y'"):
        run("NonMaxSuppressionV2", boxes, SCORES, i32(count), f32(overlap))


def test_empty_input() -> None:
    none = np.zeros((0, 4), np.float32)
    assert run("NonMaxSuppressionV2", none, none[:, 0], i32(3), HALF).shape == (0,)


def combined(scores: np.ndarray, most: tuple[int, int] = (9, 4), **attrs: bool) -> list[np.ndarray]:
    """The boxes selected from ``BOXES`` in one image, with the same boxes for all classes."""
    inputs = (BOXES[None, :, None], scores[None], i32(most[0]), i32(most[1]), HALF, f32(0.2))
    return run_all("CombinedNonMaxSuppression", *inputs, **attrs)


def test_combined_suppression_sorts_boxes_of_all_classes() -> None:
    scores = np.stack([SCORES, f32(0.95, 0.1, 0.1, 0.4)], axis=-1)
    boxes, best, classes, count = combined(scores)
    assert count.tolist() == [4]
    np.testing.assert_array_equal(best, f32([[0.95, 0.9, 0.4, 0.3]]))
    assert classes.tolist() == [[1, 0, 1, 0]]
    np.testing.assert_array_equal(boxes[0, 1], BOXES[1])


def test_combined_suppression_clips_boxes() -> None:
    scores = f32([[0.1], [0.1], [0.9], [0.1]])
    assert combined(scores)[0][0, 0].tolist() == [1, 1, 1, 1]
    assert combined(scores, clip_boxes=False)[0][0, 0].tolist() == [5, 5, 6, 6]


def test_combined_suppression_pads_with_zeros() -> None:
    scores = np.stack([SCORES, SCORES * 0], axis=-1)
    boxes, best, _, count = combined(scores, (1, 3))
    assert (count.tolist(), boxes.shape) == ([1], (1, 3, 4))
    assert best[0, 1:].tolist() == [0, 0]
    assert combined(scores, (1, 3), pad_per_class=True)[0].shape == (1, 2, 4)


@pytest.mark.parametrize("shape", [(1, 4, 3, 4), (1, 3, 1, 4), (1, 4, 4)])
def test_invalid_boxes_of_combined_suppression_are_refused(shape: tuple[int, ...]) -> None:
    boxes, numbers = np.zeros(shape, np.float32), (i32(9), i32(9), HALF, HALF)
    with pytest.raises(InvalidGraphError, match="boxes"):
        run_all("CombinedNonMaxSuppression", boxes, SCORES[None, :, None], *numbers)


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
DETECTION_SCORES = f32([[0.0, 0.6, 0.25], [0.0, 0.5, 0.1], [0.9, 0.1, 0.7]])[None]


def graph(inputs: tuple[np.ndarray, ...], settings: dict[str, Any]) -> Graph:
    nodes = [feed(name, array.shape) for name, array in zip(NAMES, inputs, strict=True)]
    return Graph([*nodes, op("found", "TFLite_Detection_PostProcess", NAMES, **settings)])


def detection_run(inputs: tuple[np.ndarray, ...], settings: dict[str, Any]) -> list[np.ndarray]:
    feeds = dict(zip(NAMES, inputs, strict=True))
    return Interpreter(graph(inputs, settings)).run(OUTPUTS, feeds)


def test_overlapping_box_is_suppressed() -> None:
    inputs = np.zeros((1, 3, 4), np.float32), DETECTION_SCORES, ANCHORS
    boxes, classes, scores, count = detection_run(inputs, REGULAR)
    np.testing.assert_array_equal(scores, f32([[0.7, 0.6, 0.25]]))
    np.testing.assert_array_equal(classes, f32([[1, 0, 1]]))
    np.testing.assert_allclose(boxes[0, :2], [[0.5, 0.5, 1, 1], [0, 0, 0.5, 0.5]])
    assert count == [3]


@pytest.mark.parametrize(("settings", "size"), [(REGULAR, 3), (FAST, 6)], ids=["regular", "fast"])
def test_shapes_are_inferred_from_attributes(settings: dict[str, Any], size: int) -> None:
    shapes = infer_shapes(graph((np.zeros((1, 3, 4)), DETECTION_SCORES, ANCHORS), settings))
    assert list(shapes["found"]) == [(1, size, 4), (1, size), (1, size), (1,)]


def test_invalid_shapes_are_refused() -> None:
    boxes = np.zeros((1, 3, 4), np.float32)
    with pytest.raises(InvalidGraphError, match="scores of 5 classes for num_classes=2"):
        detection_run((boxes, np.zeros((1, 3, 5), np.float32), ANCHORS), REGULAR)
    with pytest.raises(InvalidGraphError, match=r"anchors of \[2, 4\]"):
        detection_run((boxes, DETECTION_SCORES, ANCHORS[:2]), REGULAR)


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
        expected, values = answered(model_bytes(record), inputs), detection_run(inputs, settings)
        count = int(expected[3][0])
        assert int(values[3][0]) == count
        for value, reference in zip(values[:3], expected[:3], strict=True):
            np.testing.assert_allclose(value[:, :count], reference[:, :count], atol=1e-6)


test_shapes_and_costs = case_tests(SHAPES, COSTS)

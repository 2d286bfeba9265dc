"""Non-maximum suppression, with areas computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.image.non_max_suppression import (
    Boxes,
    SuppressionLimits,
    suppress,
    suppress_softly,
)

# Squares of side 2: the second is shifted by one, the third is apart, the fourth is a line.
CORNERS = np.float32([[0, 0, 2, 2], [0, 1, 2, 3], [5, 5, 7, 7], [0, 0, 0, 2]])
BOXES = Boxes(CORNERS)


def test_overlap_is_intersection_over_union() -> None:
    assert BOXES.overlap(0).tolist() == pytest.approx([1, 2 / 6, 0, 0])
    assert BOXES.overlap(1).tolist() == pytest.approx([2 / 6, 1, 0, 0])
    assert BOXES.overlap(2).tolist() == [0, 0, 1, 0]


def test_box_without_area_has_no_overlap() -> None:
    assert BOXES.overlap(3).tolist() == [0, 0, 0, 0]


def test_boxes_touching_at_a_corner_do_not_overlap() -> None:
    boxes = Boxes(np.float32([[0, 0, 1, 1], [1, 1, 2, 2], [3, 3, 4, 4]]))
    assert boxes.overlap(0).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("scores", "limits", "expected"),
    [
        ([0.9, 0.8, 0.7, 0.6], (9, 0.5, 0), [0, 1, 2, 3]),
        ([0.9, 0.8, 0.7, 0.6], (9, 0.3, 0), [0, 2, 3]),
        ([0.8, 0.9, 0.7, 0.6], (9, 0.3, 0), [1, 2, 3]),
        ([0.9, 0.8, 0.7, 0.6], (2, 0.3, 0), [0, 2]),
        ([0.9, 0.8, 0.7, 0.6], (0, 0.3, 0), []),
        # Scores must be above the threshold, and equal scores are sorted by index.
        ([0.5, 0.25, 0.75, 0.5], (9, 0.3, 0.5), [2]),
        ([0.5, 0.5, 0.5, 0.5], (9, 0.5, 0), [0, 1, 2, 3]),
    ],
)
def test_best_of_overlapping_boxes_is_selected(
    scores: list[float], limits: tuple[int, float, float], expected: list[int]
) -> None:
    selected = suppress(np.float32(scores), BOXES.overlap, SuppressionLimits(*limits))
    assert (selected.tolist(), selected.dtype) == (expected, np.int32)


def test_overlap_equal_to_the_threshold_is_allowed() -> None:
    limits = SuppressionLimits(9, 0.5, 0.0)
    half = {0: np.float32([1, 0.5]), 1: np.float32([0.5, 1])}
    assert suppress(np.float32([0.9, 0.8]), half.__getitem__, limits).tolist() == [0, 1]


def test_soft_suppression_lowers_scores() -> None:
    scores = np.float64([0.9, 0.8, 0.7, 0.6])
    selected, lowered = suppress_softly(scores, BOXES.overlap, SuppressionLimits(9, 1, 0), 0.1)
    # 0.8 * exp(-(1 / 3) ** 2 / (2 * 0.1)) is 0.459, the smallest score.
    assert selected.tolist() == [0, 2, 3, 1]
    faded = 0.8 * np.exp(-((1 / 3) ** 2) / 0.2)
    assert lowered.tolist() == pytest.approx([0.9, 0.7, 0.6, faded], rel=1e-6)


def test_soft_suppression_is_cumulative() -> None:
    scores = np.float64([0.9, 0.8, 0.7])
    same = Boxes(np.float64([[0, 0, 1, 1]] * 3))
    selected, lowered = suppress_softly(scores, same.overlap, SuppressionLimits(9, 1, 0), 1.0)
    assert selected.tolist() == [0, 1, 2]
    assert lowered.tolist() == pytest.approx([0.9, 0.8 * np.exp(-0.5), 0.7 * np.exp(-1)])


@pytest.mark.parametrize(
    ("count", "score", "expected"),
    [(2, 0, [0, 2]), (9, 0.5, [0, 2, 3]), (9, 0.65, [0, 2]), (0, 0, [])],
)
def test_soft_suppression_applies_limits(count: int, score: float, expected: list[int]) -> None:
    scores = np.float64([0.9, 0.8, 0.7, 0.6])
    limits = SuppressionLimits(count, 1, score)
    selected, lowered = suppress_softly(scores, BOXES.overlap, limits, 0.1)
    assert selected.tolist() == expected
    assert len(lowered) == len(expected)

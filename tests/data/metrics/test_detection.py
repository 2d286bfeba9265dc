"""The mean average precision of detections, compared with pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from mobileprep.data.metrics.base import LabelError, OutputError
from mobileprep.data.metrics.detection import MeanAveragePrecision
from mobileprep.errors import AccuracyError
from tests.data.metrics.batches import batch

BOX, OTHER = [0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]
NONE = [0.0, 0.0, 0.0, 0.0, -1.0]


def precision(boxes: Any, scores: Any, classes: Any, labels: Any, *more: Any) -> float:
    names = ("boxes", "scores", "classes", "count")[: 3 + len(more)]
    named = dict(zip(names, (boxes, scores, classes, *more), strict=True))
    metric = MeanAveragePrecision()
    metric.update(batch(named, np.array(labels, float)))
    return metric.value()


def shifted(share: float) -> list[float]:
    """A box whose intersection over union with ``BOX`` is the share."""
    offset = 10 * (1 - share) / (1 + share)
    return [0.0, offset, 10.0, 10.0 + offset]


@pytest.mark.parametrize(
    ("boxes", "value"),
    [
        ([BOX], 1.0),
        ([OTHER], 0.0),
        ([shifted(0.72)], 0.5),  # good at 0.50 to 0.70
        ([shifted(0.51)], 0.1),
        ([shifted(0.49)], 0.0),
        # The wrong one has the higher score: precision 1/2 at every recall.
        ([OTHER, BOX], 0.5),
        # The second is a duplicate after everything was recalled.
        ([BOX, BOX], 1.0),
    ],
)
def test_known_values_for_one_object(boxes: list[Any], value: float) -> None:
    scores = np.linspace(0.9, 0.5, len(boxes))[None]
    classes = np.zeros((1, len(boxes)))
    labels = [[[*BOX, 0.0], NONE]]
    assert precision([boxes], scores, classes, labels) == pytest.approx(value, abs=1e-12)


def test_missed_object_limits_the_recall() -> None:
    labels = [[[*BOX, 0.0], [*OTHER, 0.0]]]
    value = precision([[BOX]], [[0.9]], [[0]], labels)
    assert value == pytest.approx(51 / 101, abs=1e-12)


def test_classes_without_objects_are_excluded_from_the_mean() -> None:
    labels = [[[*BOX, 0.0], [*OTHER, 7.0]]]
    value = precision([[BOX, BOX, BOX]], [[0.9, 0.8, 0.7]], [[0, 7, 3]], labels)
    assert value == pytest.approx(0.5, abs=1e-12)


def test_detections_in_a_crowd_are_ignored() -> None:
    labels = [[[*BOX, 0.0, 1.0], [*OTHER, 0.0, 0.0]]]
    inside = [1.0, 1.0, 4.0, 4.0]
    value = precision([[inside, inside, OTHER]], [[0.9, 0.8, 0.7]], [[0, 0, 0]], labels)
    assert value == pytest.approx(1.0, abs=1e-12)


def test_detections_beyond_the_count_are_ignored() -> None:
    labels = [[[*BOX, 0.0]]]
    arguments = [[OTHER, BOX]], [[0.1, 0.9]], [[0, 0]], labels
    assert precision(*arguments, [2.0]) == pytest.approx(1.0, abs=1e-12)
    assert precision(*arguments, [1.0]) == 0.0


def test_images_without_detections_or_objects_count() -> None:
    labels = [[[*BOX, 0.0]], [NONE], [[*BOX, 0.0]]]
    boxes, classes = [[BOX], [BOX], [BOX]], [[0], [0], [1]]
    # Precision 1 up to a recall of a half; the wrong detection has a lower score.
    value = precision(boxes, [[0.9], [0.5], [0.4]], classes, labels)
    assert value == pytest.approx(51 / 101, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"boxes": np.ones((1, 2, 3))}, OutputError, "no boxes, scores and classes"),
        ({"scores": np.ones((1, 3))}, OutputError, "no boxes, scores and classes"),
        ({"scores": np.array([["a", "b"]])}, OutputError, "'scores' is <U1"),
        ({"scores": np.array([[np.nan, 1.0]])}, AccuracyError, "are NaN"),
        ({"classes": np.array([[0.5, 1.0]])}, OutputError, "has fractions"),
        ({"labels": np.ones((1, 2, 4))}, LabelError, r"of shape \[1, 2, 4\]"),
        ({"labels": np.full((1, 1, 5), np.nan)}, LabelError, "have NaN"),
        ({"labels": np.full((1, 1, 5), -1.0)}, AccuracyError, "no object but crowds"),
    ],
)
def test_invalid_detections_are_reported(
    change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    arguments = {
        "boxes": np.ones((1, 2, 4)),
        "scores": np.ones((1, 2)),
        "classes": np.zeros((1, 2)),
        "labels": np.array([[[*BOX, 0.0]]]),
        **change,
    }
    with pytest.raises(kind, match=message):
        precision(*arguments.values())


@pytest.mark.parametrize("seed", range(12))
def test_value_matches_pycocotools(seed: int) -> None:
    pytest.importorskip("pycocotools", reason="pycocotools is not installed")
    rng = np.random.default_rng(seed)
    images, most = 12, 130 if seed == 0 else 14
    labels = np.concatenate(
        [_boxes(rng, images, 9), rng.integers(-1, 3, (images, 9, 1)), np.zeros((images, 9, 1))],
        axis=2,
    )
    labels[:, :2, 5] = rng.integers(0, 2, (images, 2))
    boxes = _boxes(rng, images, most)
    near = labels[:, rng.integers(0, 9, most), :4] + rng.integers(-2, 3, (images, most, 4))
    chosen = rng.random((images, most, 1)) < 0.6
    boxes = np.where(chosen & (near[..., 2:] > near[..., :2]).all(axis=2)[..., None], near, boxes)
    scores = rng.random((images, most)).round(2)  # with ties
    classes = rng.integers(0, 4, (images, most))
    metric = MeanAveragePrecision()
    for at in range(0, images, 5):
        named = {"boxes": boxes, "scores": scores, "classes": classes}
        metric.update(
            batch({k: v[at : at + 5] for k, v in named.items()}, labels[at : at + 5], first=at)
        )
    expected = _by_coco(boxes, scores, classes, labels)
    assert metric.value() == pytest.approx(expected, abs=1e-12)


def _boxes(rng: np.random.Generator, images: int, count: int) -> np.ndarray:
    low = rng.integers(0, 30, (images, count, 2))
    return np.concatenate([low, low + rng.integers(3, 20, (images, count, 2))], axis=2).astype(
        float
    )


def _by_coco(boxes: Any, scores: Any, classes: Any, labels: Any) -> float:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def xywh(box: np.ndarray) -> list[float]:
        return [*map(float, box[:2]), *map(float, box[2:4] - box[:2])]

    objects = [
        {
            "id": 1 + number,
            "image_id": int(image),
            "category_id": int(labels[image, at, 4]),
            "bbox": xywh(labels[image, at]),
            "area": 100.0,
            "iscrowd": int(labels[image, at, 5]),
        }
        for number, (image, at) in enumerate(np.argwhere(labels[:, :, 4] >= 0))
    ]
    detections = [
        {
            "image_id": image,
            "category_id": int(classes[image, at]),
            "bbox": xywh(boxes[image, at]),
            "score": float(scores[image, at]),
        }
        for image in range(len(boxes))
        for at in range(boxes.shape[1])
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in range(len(boxes))],
            "annotations": objects,
            "categories": [{"id": which} for which in range(4)],
            "info": {},
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])

"""Custom operators in LiteRT builds, and FAKE_QUANT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from tests.litert.graphs import answered, codes, const, feed, model, op
from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("squared", [False, True])
def test_spectrograms(squared: bool) -> None:
    attrs: dict[str, Any] = {"window_size": 256, "stride": 100, "magnitude_squared": squared}
    # Sums of a transform in another order.
    operators = check("AudioSpectrogram", [numbers(1000, 2)], tolerance=1e-5, **attrs)
    assert operators == ["AudioSpectrogram"]


def test_mel_cepstra() -> None:
    values = [abs(numbers(1, 5, 257)), np.int32(16000)]
    attrs = {"upper_frequency_limit": 7000.0, "dct_coefficient_count": 10}
    # Logarithms of sums in another order.
    assert check("Mfcc", values, constant=[1], tolerance=1e-5, **attrs) == ["Mfcc"]


def test_fractional_frequency_limit_is_refused() -> None:
    values = [abs(numbers(1, 5, 257)), np.int32(16000)]
    with pytest.raises(UnsupportedError, match="no whole numbers"):
        check("Mfcc", values, constant=[1], upper_frequency_limit=6999.5)


def test_fake_quantization() -> None:
    values = [numbers(3, 40), np.float32(-1.5), np.float32(2.0)]
    operators = check("FakeQuantWithMinMaxVars", values, constant=[1, 2])
    assert operators == ["FAKE_QUANT"]
    assert check("FakeQuantWithMinMaxArgs", values[:1], min=-2.0, max=1.0) == ["FAKE_QUANT"]


def test_narrow_range_of_computed_values_is_refused() -> None:
    """The runtime fails to allocate tensors."""
    bounds = {"min": -2.0, "max": 1.0, "narrow_range": True}
    with pytest.raises(UnsupportedError, match="FakeQuantWithMinMaxArgs 'y': LiteRT has no narrow"):
        check("FakeQuantWithMinMaxArgs", [numbers(3, 40)], **bounds)


def test_detections() -> None:
    """Two distant boxes of two classes are both detected, the likelier first."""
    anchors = [[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5]]
    nodes = [
        feed("boxes", (1, 2, 4)),
        feed("scores", (1, 2, 3)),
        const("anchors", anchors),
        op(
            "found",
            "TFLite_Detection_PostProcess",
            ["boxes", "scores", "anchors"],
            max_detections=2,
            max_classes_per_detection=1,
            num_classes=2,
            use_regular_nms=False,
            nms_score_threshold=0.1,
            nms_iou_threshold=0.5,
            **{f"{side}_scale": 10.0 if side in "yx" else 5.0 for side in "yxhw"},
        ),
    ]
    outputs = ["found", "found:1", "found:2", "found:3"]
    record = model(Graph(nodes), ["boxes", "scores"], outputs)
    assert codes(record) == ["TFLite_Detection_PostProcess"]
    scores = np.float32([[[0, 0.6, 0.2], [0, 0.1, 0.9]]])
    boxes, classes, likely, count = answered(
        model_bytes(record), [np.zeros((1, 2, 4), np.float32), scores]
    )
    np.testing.assert_allclose(boxes, [[[0.5, 0.5, 1, 1], [0, 0, 0.5, 0.5]]])
    np.testing.assert_array_equal(classes, [[1, 0]])
    np.testing.assert_allclose(likely, np.float32([[0.9, 0.6]]))
    assert count == [2]

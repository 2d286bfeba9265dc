"""Combined non-max suppression over all classes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.tensor import Array
from tests.litert.one_op import check

LIMITS = [np.float32(0.4), np.float32(0.2)]


def boxes_and_scores(images: int, count: int, shared: int, classes: int) -> tuple[Array, Array]:
    draw = np.random.default_rng(3)
    corners = draw.random((images, count, shared, 2), np.float32)
    sizes = draw.random((images, count, shared, 2), np.float32)
    return np.concatenate([corners, corners + sizes], -1), draw.random(
        (images, count, classes), np.float32
    )


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("is_clipped", [False, True])
@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("per_class, total", [(4, 6), (2, 9), (30, 5)])
def test_combined_suppression(
    per_class: int, total: int, shared: int, is_clipped: bool, is_padded: bool
) -> None:
    values = boxes_and_scores(2, 12, shared, 3)
    numbers = [np.int32(per_class), np.int32(total)]
    ran = check(
        "CombinedNonMaxSuppression",
        [*values, *numbers, *LIMITS],
        constant=[2, 3, 4, 5],
        outputs=4,
        pad_per_class=is_padded,
        clip_boxes=is_clipped,
    )
    assert ran.count("NON_MAX_SUPPRESSION_V4") == 6


def test_combined_suppression_of_unknown_batch_is_refused() -> None:
    inputs = [*boxes_and_scores(2, 12, 1, 3), np.int32(4), np.int32(5), *LIMITS]
    with pytest.raises(UnsupportedError, match="number of its images"):
        check("CombinedNonMaxSuppression", inputs, constant=[2, 3], open_sizes=1, outputs=4)

"""The metrics by name."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Final

from mobileprep.errors import InternalError
from mobileprep.metrics import error_rates
from mobileprep.metrics.base import Metric, MetricOptions
from mobileprep.metrics.classification import TopK
from mobileprep.metrics.detection import MeanAveragePrecision
from mobileprep.metrics.regression import R2, Cosine, MeanError, Psnr
from mobileprep.metrics.roc import Auc
from mobileprep.metrics.segmentation import MeanIoU

_TOP_K: Final = re.compile(r"top([1-9][0-9]{0,4})")
METRICS: Final[Mapping[str, Callable[[MetricOptions], Metric]]] = {
    "mean_absolute_error": lambda _: MeanError(1),
    "mean_squared_error": lambda _: MeanError(2),
    "r2": lambda _: R2(),
    "psnr": Psnr,
    "cosine": lambda _: Cosine(),
    "mean_iou": MeanIoU,
    "auc": lambda _: Auc(),
    "word_error_rate": functools.partial(error_rates.ErrorRate, error_rates.words),
    "character_error_rate": functools.partial(error_rates.ErrorRate, error_rates.characters),
    "mean_average_precision": lambda _: MeanAveragePrecision(),
}
"""Those that compare outputs with labels, but ``top1``, ``top2`` and so on."""

FREE_SHAPES: Final = frozenset(
    {"word_error_rate", "character_error_rate", "mean_average_precision"}
)
"""Those whose outputs may have other shapes than the source's without being broken."""


def make_metric(name: str, options: MetricOptions) -> Metric:
    """A metric of labels by its name."""
    top = _TOP_K.fullmatch(name)
    if top is not None:
        return TopK(int(top[1]))
    kind = METRICS.get(name)
    if kind is None:
        message = f"there is no metric {name!r} of labels"
        raise InternalError(message)
    return kind(options)

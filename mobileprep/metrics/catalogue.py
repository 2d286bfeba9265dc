"""The metrics by name; the module of each is imported where it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from mobileprep.errors import InternalError
from mobileprep.metrics.base import Metric, MetricOptions


def _regression(name: str, options: MetricOptions) -> Metric:
    from mobileprep.metrics.regression import R2, Cosine, MeanError, Psnr

    if name == "psnr":
        return Psnr(options)
    if name == "r2":
        return R2()
    if name == "cosine":
        return Cosine()
    return MeanError(1 if name == "mean_absolute_error" else 2)


def _mean_iou(_: str, options: MetricOptions) -> Metric:
    from mobileprep.metrics.segmentation import MeanIoU

    return MeanIoU(options)


def _auc(_: str, _options: MetricOptions) -> Metric:
    from mobileprep.metrics.roc import Auc

    return Auc()


def _error_rate(name: str, options: MetricOptions) -> Metric:
    from mobileprep.metrics.error_rates import ErrorRate, characters, words

    return ErrorRate(words if name == "word_error_rate" else characters, options)


def _mean_average_precision(_: str, _options: MetricOptions) -> Metric:
    from mobileprep.metrics.detection import MeanAveragePrecision

    return MeanAveragePrecision()


_TOP_K: Final = re.compile(r"top([1-9][0-9]{0,4})")
METRICS: Final[Mapping[str, Callable[[str, MetricOptions], Metric]]] = {
    "mean_absolute_error": _regression,
    "mean_squared_error": _regression,
    "r2": _regression,
    "psnr": _regression,
    "cosine": _regression,
    "mean_iou": _mean_iou,
    "auc": _auc,
    "word_error_rate": _error_rate,
    "character_error_rate": _error_rate,
    "mean_average_precision": _mean_average_precision,
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
        from mobileprep.metrics.classification import TopK

        return TopK(int(top[1]))
    kind = METRICS.get(name)
    if kind is None:
        message = f"there is no metric {name!r} of labels"
        raise InternalError(message)
    return kind(name, options)

"""Facts about metrics that checking a recipe needs, without the arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from mobileprep.recipe.validation_settings import MetricFunction

_TOP_K: Final = re.compile(r"top[1-9][0-9]{0,4}")


class MetricFacts(Struct, frozen=True):
    """Properties of a metric that checking a recipe needs.

    Args:
        higher_is_better: whether larger values are better.
        is_share: whether values range from about 0 to 1, independent of the model's unit.
        of_labels: whether it compares outputs with labels, not with the outputs of the source.
        outputs: permitted numbers of outputs.
        keys: keys of the metric besides its limits.
    """

    higher_is_better: bool = True
    is_share: bool = True
    of_labels: bool = True
    outputs: tuple[int, ...] = (1,)
    keys: frozenset[str] = frozenset()


_TEXTS: Final = MetricFacts(higher_is_better=False, outputs=(1, 3), keys=frozenset({"characters"}))
_FACTS: Final[Mapping[str, MetricFacts]] = {
    "mean_absolute_error": MetricFacts(higher_is_better=False, is_share=False),
    "mean_squared_error": MetricFacts(higher_is_better=False, is_share=False),
    "r2": MetricFacts(),
    "psnr": MetricFacts(is_share=False, keys=frozenset({"peak"})),
    "cosine": MetricFacts(),
    "mean_iou": MetricFacts(keys=frozenset({"threshold", "ignore"})),
    "auc": MetricFacts(),
    "word_error_rate": _TEXTS,
    "character_error_rate": _TEXTS,
    "mean_average_precision": MetricFacts(outputs=(3, 4)),
    "agreement": MetricFacts(of_labels=False),
    "top1_agreement": MetricFacts(of_labels=False),
    "peak_agreement": MetricFacts(of_labels=False),
}
METRIC_NAMES: Final = ("auto", "top1", "top5", *_FACTS)
"""The metric names, with ``top1`` and ``top5`` for the ``topK`` metrics."""
AUTO: Final = "auto"
"""The default: ``top1`` if the data has labels, otherwise ``agreement``."""


def metric_facts(name: str) -> MetricFacts | None:
    """Return the properties of a metric; None if there is no such metric."""
    if name == AUTO or _TOP_K.fullmatch(name):
        return MetricFacts()
    return _FACTS.get(name)


def choice_facts(metric: str | MetricFunction) -> MetricFacts | None:
    """Return the properties of a metric of a validation; None if there is no such metric."""
    if isinstance(metric, MetricFunction):
        higher = metric.higher_is_better
        return MetricFacts(higher_is_better=higher, is_share=False, outputs=(1, 3, 4))
    return metric_facts(metric)

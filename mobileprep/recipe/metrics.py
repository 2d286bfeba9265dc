"""What a recipe may ask of each metric, known without the arithmetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mobileprep.frozen import dataclass

_TOP_K: Final = re.compile(r"top[1-9][0-9]{0,4}")


@dataclass(frozen=True)
class MetricFacts:
    """What is to be known of a metric to read a recipe.

    Args:
        higher_is_better: whether a model is better where it is larger.
        is_share: whether it goes from 0 to 1 or nearly so, whatever the model's unit.
        of_labels: whether it compares outputs with labels; else with the source's outputs.
        outputs: how many outputs it may be of.
        keys: those that concern it beside the limits.
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
"""The metrics; of ``top1``, ``top2`` and so on the two that are usual."""
AUTO: Final = "auto"
"""``top1`` where the data has labels, else ``agreement``: what is measured if nothing is asked."""


def metric_facts(name: str) -> MetricFacts | None:
    """What is known of a metric; None where there is none of that name."""
    if name == AUTO or _TOP_K.fullmatch(name):
        return MetricFacts()
    return _FACTS.get(name)

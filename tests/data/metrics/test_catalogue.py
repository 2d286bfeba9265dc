"""The metrics that recipes may name."""

from __future__ import annotations

import pytest

from mobileprep.data.metrics.base import FREE_SHAPES, METRICS, MetricOptions, make_metric
from mobileprep.errors import InternalError
from mobileprep.recipe.metrics import METRIC_NAMES, metric_facts


def test_recipes_and_metrics_have_the_same_names() -> None:
    of_labels = [
        name
        for name in METRIC_NAMES
        if (facts := metric_facts(name)) and facts.of_labels and name != "auto"
    ]
    assert set(of_labels) == {"top1", "top5", *METRICS}
    assert set(METRICS) > FREE_SHAPES
    for name in of_labels:
        assert make_metric(name, MetricOptions())


@pytest.mark.parametrize("name", ["top0", "top", "top01", "top1.5", "Top1", "psnr ", "agreement"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(InternalError):
        make_metric(name, MetricOptions())
    assert (metric_facts(name) is None) == (name != "agreement")

"""Batches of outputs and labels for metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.data.metrics.base import Metric, MetricBatch, MetricOptions, make_metric


def batch(output: Any, labels: Any, *, first: int = 0, count: int | None = None) -> MetricBatch:
    """A batch of one output ``y``, or of several by name."""
    outputs = output if isinstance(output, dict) else {"y": output}
    arrays = {name: np.asarray(array) for name, array in outputs.items()}
    samples = len(next(iter(arrays.values()))) if count is None else count
    array = None if labels is None else np.asarray(labels)
    return MetricBatch(arrays, tuple(arrays), samples, array, "label", first)


def measured(name: str, output: Any, labels: Any, **options: Any) -> float:
    """A metric of a single batch."""
    metric = make_metric(name, MetricOptions(**options))
    metric.update(batch(output, labels))
    return metric.value()


def in_batches(metric: Metric, output: Any, labels: Any, size: int) -> float:
    """A metric of an output that comes in batches of a size."""
    output, labels = np.asarray(output), np.asarray(labels)
    for at in range(0, len(output), size):
        metric.update(batch(output[at : at + size], labels[at : at + size], first=at))
    return metric.value()

"""Summaries of training: their shapes."""

from __future__ import annotations

from mobileprep.ops.common_shapes import scalars_only
from mobileprep.ops.shape_function import shape_fn

shape_fn(
    "AudioSummaryV2",
    "HistogramSummary",
    "ImageSummary",
    "MergeSummary",
    "ScalarSummary",
    "Timestamp",
)(scalars_only)

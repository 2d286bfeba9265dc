"""Summaries of training: their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.common_shapes import scalars_only
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

shape_fn("Timestamp")(scalars_only)


@shape_fn(
    *("MergeSummary", "ScalarSummary", "HistogramSummary", "ImageSummary"),
    "AudioSummaryV2",
)
def summary_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]

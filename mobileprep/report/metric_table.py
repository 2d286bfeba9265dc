"""The report's metrics, in words and as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mobileprep.plan.running_records import MetricRecord

METRIC_HEADINGS: Final = ("metric", "output", "before", "after", "limit")
_TOP_K: Final = re.compile(r"top([0-9]+)")
_LEFT: Final = 2  # columns of text; the others are numbers


def metric_title(record: MetricRecord) -> str:
    """A metric in words: ``top-1``, ``psnr of 'image'``."""
    top = _TOP_K.fullmatch(record.metric)
    return f"top-{top[1]}" if top else f"{record.metric} of {record.output!r}"


def metric_cells(record: MetricRecord) -> tuple[str, ...]:
    """The cells of a metric's row, under ``METRIC_HEADINGS``."""
    before, after = (metric_text(record, value) for value in (record.before, record.after))
    return record.metric, record.output, before, after, limit_text(record)


def metric_text(record: MetricRecord, value: float) -> str:
    """A value: four places for a share of the samples, six digits for others."""
    return f"{value:.4f}" if _TOP_K.fullmatch(record.metric) else f"{value:.6g}"


def limit_text(record: MetricRecord) -> str:
    """What is allowed, in words."""
    told = []
    if record.max_drop is not None:
        told.append(f"{'drop' if record.higher_is_better else 'rise'} {record.max_drop:g}")
    if record.at_least is not None:
        told.append(f"at least {record.at_least:g}")
    if record.at_most is not None:
        told.append(f"at most {record.at_most:g}")
    return ", ".join(told)


def metric_table(records: Sequence[MetricRecord], width: int) -> list[str]:
    """The lines of a table of metrics; where it does not fit the width, a sentence for each.

    Args:
        records: the metrics.
        width: the most characters of a line.
    """
    rows = [METRIC_HEADINGS, *map(metric_cells, records)]
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(size) if at < _LEFT else cell.rjust(size)
            for at, (cell, size) in enumerate(zip(row, sizes, strict=True))
        )
        for row in rows
    ]
    if max(map(len, lines)) <= width:
        return lines
    return [
        f"{metric_title(r)}: {metric_text(r, r.before)} before, {metric_text(r, r.after)} after "
        f"({limit_text(r)})"
        for r in records
    ]

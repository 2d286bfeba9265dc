"""Report the cost of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.building.report.layout import TextTable, fitted, number_text, plain, table
from mobileprep.building.stages.pipeline.spec import Amounts, PipelineRecord
from mobileprep.targets.targets import FITTED

_HEADINGS: Final = (
    *("step", "runs", "runs p95", "runs worst", "FLOPs", "FLOPs p95", "FLOPs worst"),
)


def pipeline_lines(record: PipelineRecord, width: int) -> Iterator[str]:
    """Yield a table of the steps, the source of each number of runs, and the totals."""
    yield f"pipeline {_title(record)}"
    rows = tuple(_rows(record))
    yield from (f"  {line}" for line in fitted(TextTable(_HEADINGS, rows), width - 2))
    for number, step in enumerate(record.steps, start=1):
        yield f"  {number} {step.model}: {step.basis}"
    yield from (f"  {line}" for line in _total_lines(record))


def pipeline_markdown(record: PipelineRecord) -> Iterator[str]:
    """Yield the tables of steps and totals."""
    yield ""
    yield f"Pipeline {plain(_title(record))}:"
    yield ""
    sources = (*(step.basis for step in record.steps), "")
    rows = ([*row, source] for row, source in zip(_rows(record), sources, strict=True))
    yield from table((*_HEADINGS, "source of the runs"), (map(plain, row) for row in rows))
    for line in _total_lines(record):
        yield ""
        yield f"{plain(line)}."


def _title(record: PipelineRecord) -> str:
    steps = f"of {len(record.steps)} step{'s' * (len(record.steps) != 1)} for one input"
    bound = "about" if f": {FITTED}" in record.device else "at best"
    device = f", {bound} on {record.device}" if record.device else ""
    basis = f"; {record.basis}" if record.basis else ""
    return f"{steps}{device}{basis}"


def _rows(record: PipelineRecord) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each step, and of the total."""
    for number, step in enumerate(record.steps, start=1):
        yield f"{number} {step.model}", *_texts(step.runs), *_texts(step.flops)
    yield "total", "", "", "", *_texts(record.flops)


def _total_lines(record: PipelineRecord) -> Iterator[str]:
    if record.latency_ms is not None:
        expected, p95, worst = _texts(record.latency_ms)
        yield f"latency: {expected} ms on average, {p95} ms p95, {worst} ms worst"
    loaded = "all models loaded" if record.keep_loaded else "one model loaded at a time"
    yield f"RAM: {record.ram_bytes:,} bytes of model files and tensors, {loaded}"


def _texts(amounts: Amounts) -> Iterator[str]:
    yield from map(_text, (amounts.expected, amounts.p95, amounts.worst))


def _text(number: float) -> str:
    """Format whole and large numbers without decimal places."""
    is_whole = number == int(number) or number >= 1000
    return f"{number:,.0f}" if is_whole else number_text(number)

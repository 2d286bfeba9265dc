"""The report as text for a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from mobileprep.report.collect import Accuracy, Report, StepLine

_WIDTH = 100


def report_text(report: Report, *, width: int = _WIDTH, color: bool = False) -> str:
    """The report as a few tables, ``width`` columns wide."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=color, highlight=False)
    console.print(f"[bold]{report.recipe}/{report.target}[/bold]")
    console.print(_steps(report))
    for step in report.steps:
        _remarks(console, step)
    console.print(_model_line(report), soft_wrap=True)
    if report.accuracy is not None:
        console.print(_accuracy_line(report.accuracy), soft_wrap=True)
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items())
    console.print(f"ops      {ops}", soft_wrap=True)
    return stream.getvalue()


def _steps(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("step")
    for name in ("nodes", "parameters", "bytes", "matched", "added", "removed", "changed"):
        table.add_column(name, justify="right")
    checked = any(s.largest_difference is not None for s in report.steps)
    if checked:
        table.add_column("difference", justify="right")
    source = report.source
    counts = (source["nodes"], source["parameters"], source["bytes"])
    table.add_row("frozen", *(f"{n:,}" for n in counts))
    for s in report.steps:
        numbers = (s.nodes, s.parameters, s.bytes, s.matched, s.added, s.removed, s.changed)
        difference = [f"{s.largest_difference:.3g}"] if s.largest_difference is not None else []
        table.add_row(s.name, *(f"{n:,}" for n in numbers), *difference)
    return table


def _remarks(console: Console, step: StepLine) -> None:
    for reason, count in step.skipped.items():
        console.print(f"  {step.name}: {count} left as they were: {reason}", soft_wrap=True)
    for warning in step.warnings:
        console.print(f"  warning: {warning}", soft_wrap=True)


def _model_line(report: Report) -> str:
    model = report.model
    return (
        f"model    {model['file']}: {model['bytes']:,} bytes, "
        f"{model['compressed_bytes']:,} compressed, {model['nodes']:,} nodes"
    )


def _accuracy_line(accuracy: Accuracy) -> str:
    return (
        f"accuracy top-1 {accuracy.top1_before:.4f} before, {accuracy.top1_after:.4f} after "
        f"({accuracy.samples} samples); largest output difference "
        f"{accuracy.largest_difference:.3g}"
    )

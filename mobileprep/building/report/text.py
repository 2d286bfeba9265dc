"""The report as text, for a terminal of some width or for a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mobileprep.building.plan.records import (
    BudgetLine,
    CalibrationRecord,
    CheckRecord,
    DamageRecord,
    KernelsRecord,
    MetricRecord,
    TensorRecord,
)
from mobileprep.building.report.collect import Accuracy, Checked, EngineLine, Report, StepLine
from mobileprep.building.report.layout import TextTable, fitted, wrapped
from mobileprep.building.report.migration import migration_lines
from mobileprep.building.report.step_table import difference_text, step_table
from mobileprep.core.printable import plain
from mobileprep.targets.targets import DeviceCost

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
USUAL_WIDTH = 80


def report_text(report: Report, *, color: bool = False, width: int | None = None) -> str:
    """The report in lines; no name or warning in it does anything to a terminal.

    Args:
        color: set off the target's name, with a terminal's escape sequences.
        width: of the terminal, in characters, which no line is longer than unless a word is; None
            where it is not for one: then the table has at most 80, and sentences stay in one line.
    """
    name = plain(f"{report.recipe}/{report.target}")
    lines = [f"{BOLD}{name}{PLAIN}" if color else name]
    lines += map(plain, step_table(report, width or USUAL_WIDTH))
    rest = [f"  warning: {warning}" for warning in report.source.warnings]
    for step in report.steps:
        rest += _remarks(step)
    rest += [f"  warning: {warning}" for warning in report.warnings]
    rest.append(_model_line(report))
    rest += _budget_lines(report.budget)
    rest += [] if report.cost is None else [f"cost     {cost_text(report.cost)}"]
    rest += [f"kernels  {kernels_text(found)}" for found in report.kernels]
    if report.check is not None:
        rest += _check_lines(report.check)
    for calibration in report.calibrations:
        rest += _calibration_lines(calibration)
    if report.accuracy is not None:
        rest += _accuracy_lines(report.accuracy, width or USUAL_WIDTH)
    if report.damage is not None:
        rest += damage_lines(report.damage, width or USUAL_WIDTH)
    if report.migration is not None:
        rest += migration_lines(report.migration)
    rest += _engine_lines(report.engines)
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items())
    rest.append(f"ops      {ops}{f'; {report.model.basis}' if report.model.basis else ''}")
    told = map(plain, rest)
    lines += told if width is None else (part for line in told for part in wrapped(line, width))
    return "".join(f"{line}\n" for line in lines)


def _remarks(step: StepLine) -> Iterator[str]:
    if not (step.matched or step.skipped or step.warnings or step.added or step.changed):
        yield f"  {step.name}: found nothing to do"
    for reason, count in step.skipped.items():
        yield f"  {step.name}: {count} left as they were: {reason}"
    for warning in step.warnings:
        yield f"  warning: {warning}"


def _model_line(report: Report) -> str:
    model, packed = report.model, report.compressed
    return (
        f"model    {model.file}: {model.bytes:,} bytes, {packed.bytes:,} compressed "
        f"({packed.compressor}), {model.nodes:,} nodes{f'; {model.basis}' if model.basis else ''}"
    )


def _budget_lines(lines: Sequence[BudgetLine]) -> Iterator[str]:
    """A line for each limit, with what is left of it."""
    for line in lines:
        basis = f" ({line.basis})" if line.basis else ""
        yield f"budget   {line.name}: {budget_text(line)}{basis}"


def _check_lines(check: Checked) -> Iterator[str]:
    samples = f"{check.samples} sample{'s' * (check.samples != 1)}"
    origin = f"{samples} drawn" if check.data is None else f"{samples} of {check.data}"
    where = f" after {check.step}" if check.step and check.share_of_peak else ""
    rows = [_difference(check, where, check.basis)] if check.step else []
    if check.model is not None:
        rows.append(_difference(check.model, "", check.model.basis))
    yield f"check    {origin}: {rows[0]}"
    if check.data is None:
        yield from (f"  {name}: {what}" for name, what in check.inputs.items())
    yield from (f"check    {origin}: {row}" for row in rows[1:])
    yield from (f"  warning: {warning}" for warning in check.warnings)


def _difference(check: Checked | CheckRecord, where: str, basis: str) -> str:
    furthest = f"largest difference {check.share_of_peak:.2g} of the peak of {check.output!r}"
    limit = "" if check.max_difference is None else f" (at most {check.max_difference:.3g})"
    return f"{furthest}{where}{limit}{f'; {basis}' if basis else ''}"


def _calibration_lines(calibration: CalibrationRecord) -> Iterator[str]:
    yield f"ranges   {calibration_text(calibration)}"
    yield from (f"  warning: {warning}" for warning in calibration.warnings)


def _accuracy_lines(accuracy: Accuracy, width: int) -> Iterator[str]:
    """One line for one metric, a table for several, and what is to be known of them."""
    difference = (
        f"({accuracy.samples} samples); largest output difference "
        f"{difference_text(accuracy.largest_difference)}"
        f"{f'; {accuracy.basis}' if accuracy.basis else ''}"
    )
    if len(accuracy.metrics) == 1:
        (metric,) = accuracy.metrics
        before, after = metric_text(metric, metric.before), metric_text(metric, metric.after)
        yield f"accuracy {metric_title(metric)} {before} before, {after} after {difference}"
    else:
        yield f"accuracy of {len(accuracy.metrics)} metrics {difference}"
        yield from (f"  {line}" for line in metric_table(accuracy.metrics, width - 2))
    yield from (f"  warning: {warning}" for warning in accuracy.warnings)


def _engine_lines(engines: Sequence[EngineLine]) -> Iterator[str]:
    """A line for each engine that ran something: what, and how it compares."""
    alike: dict[tuple[str, str, bool], list[EngineLine]] = {}
    for line in engines:
        # LiteRT may run both graphs and a file that is apart from its graph.
        is_apart = line.within is not None and line.within > line.tolerance
        key = f"{line.name} {line.version}".rstrip(), line.unlike, is_apart
        alike.setdefault(key, []).append(line)
    for (engine, unlike, _), lines in alike.items():
        # Of many checked transforms the count says enough.
        after = [line for line in lines if line.graph not in ("source", "model")]
        ran = [line.graph for line in lines if line not in after]
        if after:
            ran.append(f"{len(after)} transforms' graphs" if len(after) > 1 else after[0].graph)
        yield f"engine   {engine} ran {', '.join(ran)}: {_agreement(lines, unlike)}"


def _agreement(lines: Sequence[EngineLine], unlike: str) -> str:
    if unlike:
        return f"not compared with numpy: {unlike}"
    apart = [line.within for line in lines if line.within is not None]
    if not apart:
        return "it is the reference, so nothing is compared"
    count = max(line.samples for line in lines)
    samples = f"{count} sample{'s' * (count > 1)}"
    within, allowed = max(apart), lines[0].tolerance
    if within > allowed:
        return (
            f"apart from the graph that the file is made of, which numpy ran, by at most "
            f"{within:.0e} of the largest value ({samples})"
        )
    return (
        f"agrees with numpy within {within:.0e} of the largest value "
        f"({samples}; at most {allowed:.0e} is allowed)"
    )


TENSOR_HEADINGS: Final = ("tensor", "of", "dB", "cosine", "clipped", "RMSE/scale")
# By transform: what it is called, and the option that tells more.
_KNOWN: Final = {
    "quantize_weights": ("weights", ""),
    "linear_quantize_weights": ("weights, {} bits", "bits"),
    "cast_weights": ("weights, {}", "type"),
    "round_weights": ("round", ""),
    "quantize_nodes": ("nodes, {}", "ranges"),
}
# What is told of options that are left out.
_DEFAULTS: Final = {"bits": 8, "type": "float16", "ranges": "as the original"}
_ACTIVATIONS, _WEIGHTS = 3, 2


def quantization_text(settings: Mapping[str, Any]) -> str:
    """How a target quantizes: ``weights``, ``nodes, observed``, ``int8``; empty if it does not.

    Args:
        settings: the target's, as its manifest has them: ``transforms``, each with ``name`` and
            ``options``, and the ``quantize`` section of a .tflite target.
    """
    words = []
    for step in settings.get("transforms", ()):
        text, option = _KNOWN.get(step["name"], ("", ""))
        given = step["options"].get(option, _DEFAULTS.get(option))
        words.append(text.format(given))
    mode = settings.get("quantize", {}).get("mode", "none")
    words += [mode] if mode != "none" else []
    return " and ".join(dict.fromkeys(filter(None, words)))


def damage_lines(damage: DamageRecord, width: int) -> Iterator[str]:
    """The activations and the weights that lost most, as a table."""
    if damage.unmeasured:
        yield f"tensors  not compared with float: {damage.unmeasured}"
        return
    samples = f"{damage.samples} sample{'s' * (damage.samples != 1)}"
    yield (
        f"tensors  {len(damage.tensors)} compared with float on {samples} of {damage.data}, "
        "those that lost most (rounding alone has an RMSE of 0.289 of the scale):"
    )
    activations = [tensor for tensor in damage.tensors if not tensor.is_weights]
    weights = [tensor for tensor in damage.tensors if tensor.is_weights]
    shown = (*activations[:_ACTIVATIONS], *weights[:_WEIGHTS])
    if shown:
        table = TextTable(TENSOR_HEADINGS, tuple(map(tensor_cells, shown)), left=2)
        yield from (f"  {line}" for line in fitted(table, width - 2))


def tensor_cells(tensor: TensorRecord) -> tuple[str, ...]:
    """The cells of a tensor's row, under ``TENSOR_HEADINGS``."""
    clipped, steps = tensor.clipped, tensor.rmse_over_scale
    return (
        tensor.tensor,
        "weights" if tensor.is_weights else tensor.op,
        f"{tensor.sqnr:.1f}",
        f"{tensor.cosine:.4f}",
        "-" if clipped is None else f"{clipped:.2%}",
        "-" if steps is None else f"{steps:.3f}",
    )


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
    """The lines of a table of metrics; where it does not fit the width, a sentence for each."""
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


def calibration_text(record: CalibrationRecord) -> str:
    """How many ranges there are, how they were found, on what; and how many are missing."""
    tensors = f"{record.tensors:,} tensor{'s' * (record.tensors != 1)}"
    samples = f"{record.samples:,} sample{'s' * (record.samples != 1)}"
    if record.is_measured:
        found = f"of {tensors} measured by {record.method} on {samples} of {record.origin}"
    else:
        found = f"of {tensors} from {record.origin}, by {record.method} on {samples}"
    return f"{found}; {len(record.unseen):,} not reached" if record.unseen else found


def budget_text(line: BudgetLine) -> str:
    """What the model takes, and what is left: ``48,000 of 50,000, 2,000 left``."""
    return f"{number_text(line.found)} of {number_text(line.limit)}, {number_text(line.left)} left"


def cost_text(cost: DeviceCost) -> str:
    """The cost of a sample: ``12,000 FLOPs a sample, at best 1.2 ms on a Raspberry Pi 3 (...)``."""
    latency = f"at best {number_text(cost.latency_ms)} ms on {cost.device}"
    return f"{cost.flops:,} FLOPs a sample, {latency} ({cost.basis})"


def kernels_text(found: KernelsRecord) -> str:
    """What a header registers: ``12 kernels of TensorFlow 1.15, about 534,120 bytes of code``."""
    plural = "s" * (found.kernels != 1)
    code = "" if found.bytes is None else f", about {found.bytes:,} bytes of code"
    return f"{found.kernels:,} kernel{plural} of TensorFlow {found.tensorflow} registered{code}"


def number_text(amount: float) -> str:
    """Whole numbers to the last digit, others to four."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"

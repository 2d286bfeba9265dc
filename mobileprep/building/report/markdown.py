"""Reports as Markdown, for a pull request comment or a CI job summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.building.report.collect import Report, accuracies, all_warnings
from mobileprep.building.report.layout import number_text, plain, table
from mobileprep.building.report.summary import candidates_of, off_by
from mobileprep.building.stages.budget.spec import (
    BudgetLine,
    OpCost,
    cost_text,
    measured_text,
    slowest_ops,
)
from mobileprep.building.stages.calibrate.spec import calibration_text
from mobileprep.building.stages.candidate.report import candidate_markdown
from mobileprep.building.stages.check.report import Checked
from mobileprep.building.stages.cut.spec import preprocessing_lines
from mobileprep.building.stages.damage.spec import TENSOR_HEADINGS, DamageRecord, tensor_cells
from mobileprep.building.stages.decoder.spec import decoding_line
from mobileprep.building.stages.download.spec import download_text
from mobileprep.building.stages.exceptions.report import exception_markdown
from mobileprep.building.stages.gaps.spec import gap_markdown
from mobileprep.building.stages.layers.report import layer_markdown
from mobileprep.building.stages.migration.report import migration_markdown
from mobileprep.building.stages.package.report import kernels_text, lite_lines
from mobileprep.building.stages.pipeline.report import pipeline_markdown
from mobileprep.building.stages.transform.report import difference_text
from mobileprep.building.stages.validate.report import METRIC_HEADINGS, metric_cells
from mobileprep.building.stages.validate.spec import Accuracy, OutputRecord

_METRIC_HEADINGS = ("metric", "before", "after")
_SIZE_HEADINGS = ("bytes", "compressed", "nodes")
_HEADINGS = ("target", "model", "quantize", *_SIZE_HEADINGS, *_METRIC_HEADINGS, "off by")
_STEP_HEADINGS = ("step", "nodes", "parameters", "bytes", "matched", "difference")
_BUDGET_HEADINGS = ("budget", "found", "limit", "left")
_OP_HEADINGS = ("op", "measured ms", "estimated ms")
_OUTPUT_HEADINGS = ("output", "largest difference", "share of peak")
_TENSORS = 10


def reports_markdown(reports: Sequence[Report]) -> str:
    """Format tables of all targets and models, followed by the steps and warnings of each."""
    lines = ["## mobileprep", ""]
    lines += table(_HEADINGS, map(_facts, reports))
    models, metric = candidates_of(reports)
    if models:
        lines += ["", "Candidates:", "", *candidate_markdown(models, metric)]
    for report in reports:
        lines += ["", *_details(report)]
    return "".join(f"{line}\n" for line in lines)


def _facts(report: Report) -> list[str]:
    model = report.model
    limits = {line.name: line.limit for line in report.budget}
    return [
        plain(_name(report)),
        plain(model.file),
        plain(report.quantize or "-"),
        _within(model.bytes, limits.get("model_bytes")),
        _within(report.compressed.bytes, limits.get("compressed_bytes")),
        f"{model.nodes:,}{f' ({model.basis})' if model.basis else ''}",
        *_first_metric(report.accuracy),
        off_by(report),
    ]


def _first_metric(accuracy: Accuracy | None) -> list[str]:
    """Return the cells of the first metric for the table of all targets."""
    if accuracy is None or not accuracy.metrics:
        return ["-"] * len(_METRIC_HEADINGS)
    name, _, before, after, _ = metric_cells(accuracy.metrics[0])
    basis = f" ({accuracy.basis})" if accuracy.is_of_graph else ""
    return [plain(f"{name}{basis}"), before, after]


def _within(size: int, limit: float | None) -> str:
    """Format a size with its remaining budget."""
    if limit is None:
        return f"{size:,}"
    return f"{size:,} ({limit - size:,} left of {limit:,})"


def _details(report: Report) -> Iterator[str]:
    warnings = list(all_warnings(report))
    yield from (f"- **{plain(_name(report))}**: {plain(warning)}" for warning in warnings)
    if warnings:
        yield ""
    yield f"<details><summary>{plain(_name(report))}: {len(report.steps)} steps</summary>"
    yield ""
    yield from table(_STEP_HEADINGS, _steps(report))
    if report.budget:
        yield ""
        yield from table(_BUDGET_HEADINGS, map(_budget, report.budget))
    for sentence in _sentences(report):
        yield ""
        yield f"{plain(sentence)}."
    if report.measured is not None and report.measured.ops:
        yield ""
        yield from table(_OP_HEADINGS, map(_measured_op, slowest_ops(report.measured)))
    if report.check is not None:
        check = report.check
        yield ""
        yield from _check(check)
    for calibration in report.calibrations:
        yield ""
        yield f"Ranges {plain(calibration_text(calibration))}."
    for name, accuracy in accuracies(report):
        yield from _metrics(accuracy, name)
    if report.validations is not None:
        yield from gap_markdown(report.validations.gaps)
    if report.exceptions is not None:
        yield from exception_markdown(report.exceptions)
    yield from _optional(report)
    yield ""
    yield "</details>"


def _optional(report: Report) -> Iterator[str]:
    """Yield the sections that a recipe asks for."""
    if report.damage is not None:
        yield from _tensors(report.damage)
    if report.layers is not None:
        yield from layer_markdown(report.layers)
    if report.migration is not None:
        yield from migration_markdown(report.migration)
    if report.pipeline is not None:
        yield from pipeline_markdown(report.pipeline)


def _sentences(report: Report) -> Iterator[str]:
    """Yield the download, the cost, the measurement, the kernels, and the preprocessing."""
    if report.download is not None:
        yield f"Download: {download_text(report.download)}"
    if report.cost is not None:
        yield f"Cost: {cost_text(report.cost)}"
    if report.measured is not None:
        yield f"Measured: {measured_text(report.measured)}"
    yield from map(kernels_text, report.kernels)
    if report.lite is not None:
        for line in lite_lines(report.lite):
            heading, _, rest = line.strip().partition(" ")
            yield plain(f"{heading.capitalize()}: {rest.strip()}")
    if report.preprocessing is not None:
        summary, *compared = preprocessing_lines(report.preprocessing)
        yield f"P{summary[1:]}"
        yield from (f"The app's preprocessing {line.strip()}" for line in compared)
    if report.decoding is not None:
        yield f"D{decoding_line(report.decoding)[1:]}"


def _check(check: Checked) -> Iterator[str]:
    """Yield the results of the checks of the transforms and of the packaged model."""
    rows = [(check.share_of_peak, check.output, check.basis)] if check.step else []
    if check.model is not None:
        rows.append((check.model.share_of_peak, check.model.output, check.model.basis))
    for share, output, basis in rows:
        yield (
            f"Checked on {check.samples} samples: largest difference {share:.2g} of the peak of "
            f"{plain(output)}{f', {plain(basis)}' if basis else ''}."
        )


def _metrics(accuracy: Accuracy, name: str) -> Iterator[str]:
    """Yield the metrics with their limits, and the difference of each output from the source's."""
    yield ""
    basis = f", {plain(accuracy.basis)}" if accuracy.basis else ""
    data_set = f" of {plain(name)}" if name else ""
    yield f"Validated on {accuracy.samples} samples{data_set}{basis}:"
    yield ""
    rows = (list(map(plain, metric_cells(metric))) for metric in accuracy.metrics)
    yield from table(METRIC_HEADINGS, rows)
    yield ""
    yield from table(_OUTPUT_HEADINGS, map(_output, accuracy.outputs))


def _tensors(damage: DamageRecord) -> Iterator[str]:
    """Yield the tensors with the largest quantization error."""
    yield ""
    if damage.unmeasured:
        yield f"Tensors are not compared with float: {plain(damage.unmeasured)}."
        return
    yield (
        f"Of {len(damage.tensors)} tensors compared with float on {damage.samples} samples of "
        f"{plain(damage.data)}, those that lost most (rounding alone has an RMSE of 0.289 of the "
        "scale):"
    )
    yield ""
    rows = (list(map(plain, tensor_cells(tensor))) for tensor in damage.tensors[:_TENSORS])
    yield from table(TENSOR_HEADINGS, rows)


def _output(output: OutputRecord) -> list[str]:
    share = output.share_of_peak
    shown = "-" if share is None else f"{share:.2g}"
    return [plain(output.output), difference_text(output.largest_difference), shown]


def _budget(line: BudgetLine) -> list[str]:
    name = f"{line.name} ({line.basis})" if line.basis else line.name
    return [plain(name), *map(number_text, (line.found, line.limit, line.left))]


def _measured_op(op: OpCost) -> list[str]:
    estimate = "" if op.estimated_ms is None else number_text(op.estimated_ms)
    return [plain(f"{op.op} {op.name}".strip()), number_text(op.measured_ms), estimate]


def _steps(report: Report) -> Iterator[list[str]]:
    source = report.source
    yield ["frozen", f"{source.nodes:,}", f"{source.parameters:,}", f"{source.bytes:,}", "", ""]
    for step in report.steps:
        counts = (step.nodes, step.parameters, step.bytes, step.matched)
        difference = difference_text(step.largest_difference)
        yield [plain(step.name), *(f"{count:,}" for count in counts), difference]


def _name(report: Report) -> str:
    return f"{report.recipe}/{report.target}"

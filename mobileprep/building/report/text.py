"""Report as plain text, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mobileprep.building.report.collect import Report, accuracies
from mobileprep.building.report.layout import wrapped
from mobileprep.building.stages.budget.spec import budget_lines, cost_text, measured_lines
from mobileprep.building.stages.calibrate.spec import calibration_lines
from mobileprep.building.stages.check.report import check_lines
from mobileprep.building.stages.cut.spec import preprocessing_lines
from mobileprep.building.stages.damage.spec import damage_lines
from mobileprep.building.stages.decoder.spec import decoding_line
from mobileprep.building.stages.download.spec import download_text
from mobileprep.building.stages.evaluate.spec import engine_lines
from mobileprep.building.stages.exceptions.report import exception_lines
from mobileprep.building.stages.gaps.spec import gap_lines
from mobileprep.building.stages.layers.report import layer_lines
from mobileprep.building.stages.migration.report import migration_lines
from mobileprep.building.stages.package.report import kernels_text, lite_lines, model_line
from mobileprep.building.stages.pipeline.report import pipeline_lines
from mobileprep.building.stages.transform.report import step_remarks, step_table
from mobileprep.building.stages.validate.report import accuracy_lines
from mobileprep.core.printable import plain

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


USUAL_WIDTH = 80


def report_text(report: Report, *, color: bool = False, width: int | None = None) -> str:
    """Format the report as lines of text, with control characters escaped.

    Args:
        color: highlight the target's name with terminal escape sequences.
        width: terminal width in characters; only single words may be longer. If None, the table
            has at most 80 characters and sentences are not wrapped.
    """
    name = plain(f"{report.recipe}/{report.target}")
    lines = [f"{BOLD}{name}{PLAIN}" if color else name]
    lines += map(plain, step_table(report.source, report.steps, width or USUAL_WIDTH))
    rest = [f"  warning: {warning}" for warning in report.source.warnings]
    for step in report.steps:
        rest += step_remarks(step)
    rest += [f"  warning: {warning}" for warning in report.warnings]
    rest.append(model_line(report.model, report.compressed))
    rest += [] if report.lite is None else lite_lines(report.lite)
    rest += [] if report.download is None else [f"download {download_text(report.download)}"]
    rest += budget_lines(report.budget)
    rest += [] if report.cost is None else [f"cost     {cost_text(report.cost)}"]
    rest += [] if report.measured is None else measured_lines(report.measured)
    rest += [f"kernels  {kernels_text(kernels)}" for kernels in report.kernels]
    if report.check is not None:
        rest += check_lines(report.check)
    for calibration in report.calibrations:
        rest += calibration_lines(calibration)
    for data_set, accuracy in accuracies(report):
        rest += accuracy_lines(accuracy, width or USUAL_WIDTH, data_set)
    if report.validations is not None:
        rest += gap_lines(report.validations.gaps)
    rest += _optional_lines(report, width or USUAL_WIDTH)
    rest += engine_lines(report.engines)
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items())
    rest.append(f"ops      {ops}{f'; {report.model.basis}' if report.model.basis else ''}")
    escaped = map(plain, rest)
    lines += (
        escaped if width is None else (part for line in escaped for part in wrapped(line, width))
    )
    return "".join(f"{line}\n" for line in lines)


def _optional_lines(report: Report, width: int) -> Iterator[str]:
    """Yield the lines of sections that few targets have."""
    if report.exceptions is not None:
        yield from exception_lines(report.exceptions)
    if report.damage is not None:
        yield from damage_lines(report.damage, width)
    if report.layers is not None:
        yield from layer_lines(report.layers, width)
    if report.preprocessing is not None:
        yield from preprocessing_lines(report.preprocessing)
    if report.decoding is not None:
        yield decoding_line(report.decoding)
    if report.migration is not None:
        yield from migration_lines(report.migration)
    if report.pipeline is not None:
        yield from pipeline_lines(report.pipeline, width)


# For each transform, its short name and the option to show.
_KNOWN: Final = {
    "quantize_weights": ("weights", ""),
    "linear_quantize_weights": ("weights, {} bits", "bits"),
    "cast_weights": ("weights, {}", "type"),
    "round_weights": ("round", ""),
    "quantize_nodes": ("nodes, {}", "ranges"),
}


# Values of options that are not set.
_DEFAULTS: Final = {"bits": 8, "type": "float16", "ranges": "as the original"}


def quantization_text(settings: Mapping[str, Any]) -> str:
    """Describe how a target quantizes: ``weights``, ``nodes, observed``, ``int8``; empty if not.

    Args:
        settings: the target's settings from its manifest: ``transforms``, each with ``name`` and
            ``options``, and the ``quantize`` section of a .tflite target.
    """
    words = []
    for step in settings.get("transforms", ()):
        text, option = _KNOWN.get(step["name"], ("", ""))
        value = step["options"].get(option, _DEFAULTS.get(option))
        words.append(text.format(value))
    mode = settings.get("quantize", {}).get("mode", "none")
    words += [mode] if mode != "none" else []
    return " and ".join(dict.fromkeys(filter(None, words)))

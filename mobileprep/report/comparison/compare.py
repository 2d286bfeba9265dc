"""Compares two reports of a target, or all those of two builds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from mobileprep.report.collect import Report
from mobileprep.report.comparison.causes import Place, causes_of
from mobileprep.report.comparison.figures import changed_figures
from mobileprep.report.comparison.model import Comparison, NodeChanges, RangeChange
from mobileprep.report.comparison.steps import step_changes
from mobileprep.report.metric_table import metric_title

NO_SETTINGS: Final = "the earlier report does not hold what it was made from"


def compare_reports(
    old: Report, new: Report, place: Place, nodes: NodeChanges | None = None
) -> Comparison:
    """What a target's build differs in from an earlier one.

    Args:
        old: the earlier report.
        new: the report now.
        place: tells where keys stand in the recipe.
        nodes: what the two models differ in, where they were compared.
    """
    known = bool(old.settings and new.settings)
    found = list(causes_of(old, new, place)) if known else []
    keys: dict[int, list[str]] = {}
    for cause, step in found:
        if step is not None:
            keys.setdefault(step, []).append(cause.key)
    warned, warns = _warnings(old), _warnings(new)
    made = Comparison(
        new.recipe,
        new.target,
        "same",
        tuple(cause for cause, _ in found),
        "" if known else NO_SETTINGS,
        tuple(step_changes(old, new, keys)),
        changed_figures(_sizes(old), _sizes(new)),
        changed_figures(old.ops, new.ops),
        changed_figures(_accuracies(old), _accuracies(new)),
        changed_figures(_outputs(old), _outputs(new)),
        _ranges(old, new),
        changed_figures(_tensors(old), _tensors(new)),
        changed_figures(_limits(old), _limits(new)),
        changed_figures(_kernels(old), _kernels(new)),
        tuple(w for w in warns if w not in warned),
        tuple(w for w in warned if w not in warns),
        nodes,
    )
    return _judged(made)


def compare_builds(
    old: Sequence[Report],
    new: Sequence[Report],
    place: Callable[[Report], Place],
    nodes: Callable[[Report, Report], NodeChanges | None],
) -> list[Comparison]:
    """Each target beside its earlier build, in the new one's order; those that are gone last.

    One report on each side is one target, whatever its name was.

    Args:
        old: the earlier reports.
        new: the reports now.
        place: tells where a target's keys stand in the recipe.
        nodes: compares the models of an earlier and a new report.
    """
    before = {(r.recipe, r.target): r for r in old}
    if len(old) == len(new) == 1:
        before = {(new[0].recipe, new[0].target): old[0]}
    found = []
    for report in new:
        earlier = before.pop((report.recipe, report.target), None)
        if earlier is None:
            found.append(Comparison(report.recipe, report.target, "added"))
        else:
            compared = nodes(earlier, report)
            found.append(compare_reports(earlier, report, place(report), compared))
    found += [Comparison(recipe, target, "removed") for recipe, target in before]
    return found


def _judged(made: Comparison) -> Comparison:
    """The same, said to be changed where anything of it is."""
    told = (made.causes, made.steps, made.sizes, made.ops, made.accuracies, made.outputs)
    more = (made.ranges, made.tensors, made.limits, made.kernels, made.warnings, made.solved)
    nodes = made.nodes is not None and made.nodes.changes
    return dataclasses.replace(made, state="changed") if any((*told, *more, nodes)) else made


def _sizes(report: Report) -> dict[str, float | None]:
    source, model = report.source, report.model
    found: dict[str, float | None] = {
        "model bytes": model.bytes,
        "compressed bytes": report.compressed.bytes,
        "nodes": model.nodes,
        "parameters": model.parameters,
        "source bytes": source.bytes,
        "source nodes": source.nodes,
        "source parameters": source.parameters,
    }
    # The model is told of already, and is called as it likes.
    files = {name: size for name, size in report.files.items() if name != model.file}
    return {**found, **{f"file {name}": size for name, size in files.items()}}


def _accuracies(report: Report) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for metric in () if report.accuracy is None else report.accuracy.metrics:
        found[f"{metric_title(metric)}{_basis(report)}"] = metric.after
        found[f"{metric_title(metric)} of the source"] = metric.before
    return found


def _outputs(report: Report) -> dict[str, float | None]:
    outputs = () if report.accuracy is None else report.accuracy.outputs
    return {f"{output.output}{_basis(report)}": output.share_of_peak for output in outputs}


def _basis(report: Report) -> str:
    """The basis of numbers of a graph, which are not comparable with those of its file."""
    accuracy = report.accuracy
    return f" ({accuracy.basis})" if accuracy is not None and accuracy.is_of_graph else ""


def _tensors(report: Report) -> dict[str, float | None]:
    tensors = () if report.damage is None else report.damage.tensors
    return {tensor.tensor: tensor.sqnr for tensor in tensors}


def _limits(report: Report) -> dict[str, float | None]:
    return {line.name: line.found for line in report.budget}


def _kernels(report: Report) -> dict[str, float | None]:
    return {f"kernels for TensorFlow {k.tensorflow}": k.kernels for k in report.kernels}


def _ranges(old: Report, new: Report) -> tuple[RangeChange, ...]:
    before, after = (
        {name: tuple(ends) for c in report.calibrations for name, ends in c.ranges.items()}
        for report in (old, new)
    )
    return tuple(
        RangeChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*after, *before])
        if before.get(name) != after.get(name)
    )


def _warnings(report: Report) -> list[str]:
    found = [*report.source.warnings, *(w for step in report.steps for w in step.warnings)]
    found += [*report.warnings, *(() if report.check is None else report.check.warnings)]
    found += [w for calibration in report.calibrations for w in calibration.warnings]
    return list(dict.fromkeys([*found, *(report.accuracy.warnings if report.accuracy else ())]))

"""Compare builds with earlier ones, by reports and models."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import structs

from mobileprep.building.pipeline.runner import Built, collect
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.report.collect import Report, accuracies, all_warnings
from mobileprep.building.report.comparison.model import (
    Cause,
    Comparison,
    Figure,
    Kind,
    NodeChanges,
    RangeChange,
    StepChange,
)
from mobileprep.building.report_files import StoredReport, model_file, node_changes, stored_reports
from mobileprep.building.stages.package.spec import PackageRecord
from mobileprep.building.stages.validate.report import metric_title
from mobileprep.building.stages.validate.spec import Accuracy
from mobileprep.building.targets import build_report
from mobileprep.errors import UsageError
from mobileprep.recipe.model import Recipe, Target

_Model: TypeAlias = Callable[[], Path | None]


def compare_built(recipes: Sequence[Recipe], state: State, earlier: Path) -> list[Comparison]:
    """Compare the built targets of recipes with an earlier build."""
    built = collect(state)
    targets = {(r.name, t.folder): t for r in recipes for t in r.targets}
    with tempfile.TemporaryDirectory() as folder:
        models: dict[tuple[str, str], _Model] = {}
        reports = []
        for number, one in enumerate(built):
            report = build_report(one)
            reports.append(report)
            place = Path(folder, str(number))
            models[_key(report)] = lambda b=one, p=place: _unpacked(b, state.store, p)  # type: ignore[misc]
        places = {_key(r): _places(targets[_key(r)]) for r in reports}
        return _compared(stored_reports(earlier), reports, places.__getitem__, models, earlier)


def compare_stored(later: Sequence[StoredReport], earlier: Path) -> list[Comparison]:
    """Compare builds with stored reports to an earlier build."""
    models: dict[tuple[str, str], _Model] = {
        _key(s.report): (lambda s=s: model_file(s))  # type: ignore[misc]
        for s in later
    }
    reports = [s.report for s in later]
    return _compared(stored_reports(earlier), reports, lambda _: _nowhere, models, earlier)


def _compared(
    old: Sequence[StoredReport],
    new: Sequence[Report],
    place: Callable[[tuple[str, str]], Place],
    models: dict[tuple[str, str], _Model],
    earlier: Path,
) -> list[Comparison]:
    if len(new) == 1 and len(old) > 1:
        # Only one target of a whole build was requested.
        old = [s for s in old if _key(s.report) == _key(new[0])]
    if not {_key(s.report) for s in old} & {_key(r) for r in new} and len(old) != 1:
        message = "the earlier build has none of these targets"
        raise UsageError(message, "name the report or the folder of the same recipe", str(earlier))
    by_report = {id(s.report): s for s in old}

    def nodes(before: Report, after: Report) -> NodeChanges:
        return node_changes(model_file(by_report[id(before)]), models[_key(after)]())

    return compare_builds([s.report for s in old], new, lambda r: place(_key(r)), nodes)


def _key(report: Report) -> tuple[str, str]:
    return report.recipe, report.target


def _nowhere(_keys: Sequence[str | int]) -> str:
    return ""


def _places(target: Target) -> Place:
    """Return a function that locates keys of a target, including steps of its chain."""

    def place(keys: Sequence[str | int]) -> str:
        if len(keys) > 1 and keys[0] == "transforms" and isinstance(keys[1], int):
            return target.transforms[keys[1]].place
        return target.place(keys)

    return place


def _unpacked(built: Built, store: Store, folder: Path) -> Path | None:
    """Write the model of a target to a file; return None if it is not in the cache."""
    name = built.records.one(PackageRecord).model.file
    output = built.files.get(name)
    if output is None:
        return None
    folder.mkdir()
    path = folder / Path(name).name
    with path.open("wb") as stream:
        for piece in store.pieces(output):
            stream.write(piece)
    return path


NO_SETTINGS: Final = "the earlier report does not record its inputs"


def compare_reports(
    old: Report, new: Report, place: Place, nodes: NodeChanges | None = None
) -> Comparison:
    """Compare the reports of two builds of a target."""
    has_settings = bool(old.settings and new.settings)
    causes = list(causes_of(old, new, place)) if has_settings else []
    keys: dict[int, list[str]] = {}
    for cause, step in causes:
        if step is not None:
            keys.setdefault(step, []).append(cause.key)
    warned, warns = (list(dict.fromkeys(all_warnings(report))) for report in (old, new))
    comparison = Comparison(
        new.recipe,
        new.target,
        "same",
        tuple(cause for cause, _ in causes),
        "" if has_settings else NO_SETTINGS,
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
    return _judged(comparison)


def compare_builds(
    old: Sequence[Report],
    new: Sequence[Report],
    place: Callable[[Report], Place],
    nodes: Callable[[Report, Report], NodeChanges | None],
) -> list[Comparison]:
    """Compare each target with its earlier build, in the new order; removed targets come last.

    If there is one report on each side, they are compared even if their names differ.
    """
    before = {(r.recipe, r.target): r for r in old}
    if len(old) == len(new) == 1:
        before = {(new[0].recipe, new[0].target): old[0]}
    comparisons = []
    for report in new:
        earlier = before.pop((report.recipe, report.target), None)
        if earlier is None:
            comparisons.append(Comparison(report.recipe, report.target, "added"))
        else:
            compared = nodes(earlier, report)
            comparisons.append(compare_reports(earlier, report, place(report), compared))
    comparisons += [Comparison(recipe, target, "removed") for recipe, target in before]
    return comparisons


def _judged(comparison: Comparison) -> Comparison:
    """Set the state to changed if there is any difference."""
    names = (
        *("causes", "steps", "sizes", "ops", "accuracies", "outputs", "ranges", "tensors"),
        *("limits", "kernels", "warnings", "solved"),
    )
    is_changed = any(getattr(comparison, name) for name in names)
    is_changed |= comparison.nodes is not None and bool(comparison.nodes.changes)
    return structs.replace(comparison, state="changed") if is_changed else comparison


def _sizes(report: Report) -> dict[str, float | None]:
    source, model = report.source, report.model
    figures: dict[str, float | None] = {
        "model bytes": model.bytes,
        "compressed bytes": report.compressed.bytes,
        "nodes": model.nodes,
        "parameters": model.parameters,
        "source bytes": source.bytes,
        "source nodes": source.nodes,
        "source parameters": source.parameters,
    }
    # The model is listed separately, and its file name may differ.
    files = {name: size for name, size in report.files.items() if name != model.file}
    return {**figures, **{f"file {name}": size for name, size in files.items()}}


def _accuracies(report: Report) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name, accuracy in accuracies(report):
        data_set = f" on {name}" if name else ""
        for metric in accuracy.metrics:
            title = f"{metric_title(metric)}{data_set}"
            figures[f"{title}{_basis(accuracy)}"] = metric.after
            figures[f"{title} of the source"] = metric.before
    return figures


def _outputs(report: Report) -> dict[str, float | None]:
    return {
        f"{output.output}{f' on {name}' if name else ''}{_basis(accuracy)}": output.share_of_peak
        for name, accuracy in accuracies(report)
        for output in accuracy.outputs
    }


def _basis(accuracy: Accuracy) -> str:
    """Return the basis of a graph's numbers, which are not comparable with those of its file."""
    return f" ({accuracy.basis})" if accuracy.is_of_graph else ""


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


def step_changes(
    old: Report, new: Report, keys: Mapping[int, Sequence[str]]
) -> Iterator[StepChange]:
    """Yield the transforms whose effect has changed.

    Args:
        old, new: the reports.
        keys: changed keys of the recipe, by the position of their step in the new chain.
    """
    before, after = _effects(old), _effects(new)
    names = [[step.name for step in report.steps] for report in (old, new)]
    for i, j in aligned(*names):
        at = j if j is not None else i
        assert at is not None
        causes = tuple(keys.get(j, ())) if j is not None else ()
        figures = changed_figures({} if i is None else before[i], {} if j is None else after[j])
        if i is None or j is None or causes or figures:
            kind: Kind = "added" if i is None else "removed" if j is None else "changed"
            name = names[0][at] if j is None else names[1][at]
            yield StepChange(kind, at + 1, name, causes, figures)


def _effects(report: Report) -> list[dict[str, float | None]]:
    effects = []
    nodes, parameters, size = (
        report.source.nodes,
        report.source.parameters,
        report.source.bytes,
    )
    for step in report.steps:
        effects.append(
            {
                "nodes": step.nodes - nodes,
                "parameters": step.parameters - parameters,
                "bytes": step.bytes - size,
                "matched": step.matched,
                "added": step.added,
                "removed": step.removed,
                "changed": step.changed,
                "difference": step.largest_difference,
                **{f"left: {reason}": count for reason, count in step.skipped.items()},
            }
        )
        nodes, parameters, size = step.nodes, step.parameters, step.bytes
    return effects


def changed_figures(
    old: Mapping[str, float | None], new: Mapping[str, float | None]
) -> tuple[Figure, ...]:
    """Return the numbers that differ, in the new order; values that are not finite become None."""
    pairs = (
        (name, _finite(old.get(name)), _finite(new.get(name)))
        for name in dict.fromkeys([*new, *old])
    )
    return tuple(Figure(name, a, b) for name, a, b in pairs if a != b)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


Place: TypeAlias = Callable[[Sequence[str | int]], str]
"""Path of a key in the recipe: ``("transforms", 3)`` is the step at index 3."""

_CHAIN: Final = "transforms"


def causes_of(old: Report, new: Report, place: Place) -> Iterator[tuple[Cause, int | None]]:
    """Yield each change of inputs, and for a step of the chain its position in the new one."""
    if old.tool != new.tool:
        yield Cause("tool", "mobileprep", old.tool or None, new.tool or None), None
    for cause in _settings(old.settings, new.settings, place):
        yield cause, None
    yield from _steps(_chain(old), _chain(new), place)
    for name in sorted({*old.sources, *new.sources}):
        before, after = old.sources.get(name), new.sources.get(name)
        if before != after:
            yield Cause("source", name, before, after), None


def _settings(old: Mapping[str, Any], new: Mapping[str, Any], place: Place) -> Iterator[Cause]:
    without = ({k: v for k, v in settings.items() if k != _CHAIN} for settings in (old, new))
    for path, before, after in _differing((), *without):
        yield Cause("setting", ".".join(path), before, after, place(path))


def _steps(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], place: Place
) -> Iterator[tuple[Cause, int | None]]:
    names = [[str(step.get("name")) for step in chain] for chain in (old, new)]
    old_labels, new_labels = map(labels, names)
    for i, j in aligned(*names):
        if i is not None and j is not None:
            where = place((_CHAIN, j))
            for path, before, after in _differing((), _options(old[i]), _options(new[j])):
                key = ".".join((_CHAIN, new_labels[j], *path))
                yield Cause("setting", key, before, after, where), j
        elif i is not None:
            yield Cause("setting", f"{_CHAIN}.{old_labels[i]}", _options(old[i]), None), None
        elif j is not None:
            where = place((_CHAIN, j))
            key = f"{_CHAIN}.{new_labels[j]}"
            yield Cause("setting", key, None, _options(new[j]), where), j


def _chain(report: Report) -> list[Mapping[str, Any]]:
    steps = report.settings.get(_CHAIN)
    return [s for s in steps if isinstance(s, Mapping)] if isinstance(steps, list | tuple) else []


def _options(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's options merged with its other keys, as in a recipe."""
    options = step.get("options")
    named = dict(options) if isinstance(options, Mapping) else {}
    # Empty values are equivalent to missing ones, and most steps have them.
    rest = {k: v for k, v in step.items() if k not in ("name", "options") and v}
    return {**named, **rest}


def _differing(
    path: tuple[str, ...], old: object, new: object
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the keys with different values, recursing into mappings and lists of named items."""
    before, after = _named(old), _named(new)
    if before is None or after is None:
        if old != new:
            yield path, old, new
        return
    for key in dict.fromkeys([*after, *before]):
        yield from _differing((*path, key), before.get(key), after.get(key))


def _named(value: object) -> Mapping[str, Any] | None:
    """Return a mapping, or a list of named items as a mapping; else None."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple) and value and all(_is_named(item) for item in value):
        by_name = {item["name"]: item for item in value}
        return by_name if len(by_name) == len(value) else None
    return None


def _is_named(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)


def aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs of positions in order; None for a step that only the other chain has."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(range(a, a_end), range(b, b_end), strict=True)
        else:
            yield from ((i, None) for i in range(a, a_end))
            yield from ((None, j) for j in range(b, b_end))


def labels(names: Sequence[str]) -> list[str]:
    """Return unique labels of steps: ``fold_constants``, ``fold_constants#2`` for the second."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique

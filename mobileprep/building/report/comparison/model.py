"""Structure of a comparison of two reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.building.report.layout import plain, table, wrapped

What: TypeAlias = Literal["setting", "source", "tool"]
Kind: TypeAlias = Literal["changed", "added", "removed"]
State: TypeAlias = Literal["same", "changed", "added", "removed"]


class Figure(Struct, frozen=True):
    """A number that changed.

    Args:
        name: name of the quantity, such as ``model bytes``, an op, or a tensor.
        before: previous value; None if there was none or it was not finite.
        after: current value; None if there is none or it is not finite.
    """

    name: str
    before: float | None
    after: float | None


class Cause(Struct, frozen=True):
    """A build input that changed.

    Args:
        what: ``setting`` for a key of the recipe, ``source`` for the content of a file, ``tool``
            for the version of mobileprep.
        key: dotted path of the key, ``transforms.quantize_weights.minimum_size``; name of the file;
            or ``mobileprep``.
        before: previous value, or SHA-256 of a file; None if it did not exist.
        after: current value, or SHA-256 of a file; None if it no longer exists.
        place: ``file:line:column`` in the recipe, or an empty string if unknown.
    """

    what: What
    key: str
    before: Any
    after: Any
    place: str = ""


class StepChange(Struct, frozen=True):
    """A transform whose effect changed.

    Args:
        kind: whether the step was added, removed, or changed.
        number: number of the step, from 1; for a removed step, its previous number.
        name: transform name.
        causes: changed recipe keys of this step; if there are none, an earlier step caused the
            change.
        figures: changed effects of the step: growth in nodes, parameters, and bytes; number of
            matches; nodes added, removed, and changed; and the difference of outputs after it.
    """

    kind: Kind
    number: int
    name: str
    causes: tuple[str, ...]
    figures: tuple[Figure, ...]


class RangeChange(Struct, frozen=True):
    """A tensor whose range changed; None for a side without a range."""

    tensor: str
    before: tuple[float, ...] | None
    after: tuple[float, ...] | None


class NodeChange(Struct, frozen=True):
    """A changed node of the published model.

    Args:
        kind: "added", "removed", "op", "inputs", "attribute", "constant", and so on.
        name: node name.
        told: description of the difference.
    """

    kind: str
    name: str
    told: str


class NodeChanges(Struct, frozen=True):
    """Differences between the nodes of two models. Nodes are matched regardless of their names.

    Args:
        matched: number of matched nodes, equal or changed.
        renamed: number of matched nodes that have another name.
        changes: the differences.
        untold: why the models were not compared; empty if they were.
    """

    matched: int = 0
    renamed: int = 0
    changes: tuple[NodeChange, ...] = ()
    untold: str = ""


class Comparison(Struct, frozen=True):
    """Differences between a target's build and an earlier build.

    Args:
        recipe: recipe name.
        target: target name.
        state: whether the target is the same, changed, added, or removed.
        causes: build inputs that changed.
        untold: why causes may be missing; empty if all are known.
        steps: transforms whose effect changed.
        sizes: sizes of the source, the model, and each file.
        ops: number of nodes of each op.
        accuracies: each metric of the model and of the source.
        outputs: difference of each output from the source's, as a fraction of its peak.
        ranges: ranges of tensors for the steps that quantize.
        tensors: signal-to-noise ratio of quantized tensors, in dB.
        limits: values that each limit of the budget applies to.
        kernels: kernels that the header for each release registers.
        warnings: new warnings.
        solved: warnings that no longer occur.
        nodes: differences between the two models; None if they were not compared.
    """

    recipe: str
    target: str
    state: State
    causes: tuple[Cause, ...] = ()
    untold: str = ""
    steps: tuple[StepChange, ...] = ()
    sizes: tuple[Figure, ...] = ()
    ops: tuple[Figure, ...] = ()
    accuracies: tuple[Figure, ...] = ()
    outputs: tuple[Figure, ...] = ()
    ranges: tuple[RangeChange, ...] = ()
    tensors: tuple[Figure, ...] = ()
    limits: tuple[Figure, ...] = ()
    kernels: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    solved: tuple[str, ...] = ()
    nodes: NodeChanges | None = None


ARROW: Final = "->"
_MOST: Final = 60
_DIGEST: Final = 12
# Quantities that also show the relative change.
_SIZES: Final = frozenset({"bytes", "nodes", "parameters"})


def figure_text(figure: Figure) -> str:
    """Format a changed number: ``model bytes 15,641 -> 14,000 (-10.5%)``."""
    return f"{figure.name} {values_text(figure)}{share_text(figure)}"


def values_text(figure: Figure) -> str:
    """Format the two values: ``15,641 -> 14,000``."""
    return f"{number_text(figure.before)} {ARROW} {number_text(figure.after)}"


def share_text(figure: Figure) -> str:
    """Format the relative change of a size: `` (-10.5%)``. Empty for other figures."""
    is_size = figure.name.rpartition(" ")[2] in _SIZES
    if not (is_size and figure.before and figure.after is not None and figure.before > 0):
        return ""
    return f" ({100 * (figure.after / figure.before - 1):+.1f}%)"


def number_text(value: float | None) -> str:
    """Format a count with all digits, another number with six digits, or ``none``."""
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def cause_text(cause: Cause) -> str:
    """Format a cause without its location.

    Example: ``transforms.quantize_weights.minimum_size: 1024 -> 16``.
    """
    shown = _digest if cause.what == "source" else _value
    name = f"file {cause.key}" if cause.what == "source" else cause.key
    return f"{name}: {shown(cause.before)} {ARROW} {shown(cause.after)}"


def step_text(change: StepChange) -> str:
    """Describe how the effect of a step changed."""
    title = f"{change.number:02} {change.name}"
    if change.kind != "changed":
        counted_figures = [
            (f.name, f.after if change.kind == "added" else f.before) for f in change.figures
        ]
        counts = ", ".join(
            f"{name} {number_text(value)}" for name, value in counted_figures if value
        )
        verb = "is new" if change.kind == "added" else "is gone"
        return f"{title} {verb}: {counts}" if counts else f"{title} {verb}"
    if not change.figures:
        return f"{title}: the same counts"
    return f"{title}: {', '.join(f'{f.name} {values_text(f)}' for f in change.figures)}"


def range_text(change: RangeChange) -> str:
    """Format a changed range: ``conv1: [-1, 4] -> [-1, 6]``."""
    return f"{change.tensor}: {_ends(change.before)} {ARROW} {_ends(change.after)}"


def nodes_text(nodes: NodeChanges) -> str:
    """Count the added, removed, and changed nodes, or give the reason they were not compared."""
    if nodes.untold:
        return f"not compared: {nodes.untold}"
    kinds = [change.kind for change in nodes.changes]
    changed = {c.name for c in nodes.changes if c.kind not in ("added", "removed")}
    named = f" ({nodes.renamed} under another name)" if nodes.renamed else ""
    return (
        f"{kinds.count('added')} added, {kinds.count('removed')} removed, {len(changed)} changed"
        f" of {nodes.matched} that are in both{named}"
    )


def _ends(ends: tuple[float, ...] | None) -> str:
    return "none" if ends is None else f"[{', '.join(f'{end:.6g}' for end in ends)}]"


def _digest(sha256: Any) -> str:  # noqa: ANN401 - JSON
    return str(sha256)[:_DIGEST] if sha256 else "none"


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return "not set"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


LISTED: Final = 10
_STATES: Final = {"same": "nothing differs", "added": "is new", "removed": "is gone"}


def comparison_title(one: Comparison) -> str:
    """Return the target's name, with its state unless it only changed."""
    state = _STATES.get(one.state)
    name = f"{one.recipe}/{one.target}"
    return f"{name}: {state}" if state else name


def comparison_lines(one: Comparison, width: int | None = None) -> list[str]:
    """Return the lines of a comparison, wrapped at a width unless it is None."""
    body = _lines(one)
    return list(body) if width is None else [p for line in body for p in wrapped(line, width)]


def _lines(one: Comparison) -> Iterator[str]:
    for cause in one.causes:
        yield f"cause    {cause_text(cause)}{f' ({cause.place})' if cause.place else ''}"
    if one.untold and one.state == "changed":
        yield f"cause    not known: {one.untold}"
    yield from (f"step     {step_text(step)}" for step in one.steps)
    for title, figures in (
        ("size", one.sizes),
        ("accuracy", one.accuracies),
        ("budget", one.limits),
        ("kernels", one.kernels),
    ):
        yield from (f"{title:<8} {figure_text(figure)}" for figure in figures)
    yield from (f"output   {figure_text(f)} of its peak off" for f in one.outputs)
    if one.ops:
        yield f"ops      {', '.join(map(figure_text, one.ops))}"
    yield from _some("range", [range_text(change) for change in one.ranges])
    yield from _some("tensor", [f"{figure_text(f)} dB" for f in one.tensors])
    yield from (f"  new warning: {warning}" for warning in one.warnings)
    yield from (f"  warning is gone: {warning}" for warning in one.solved)
    if one.nodes is not None:
        yield from _nodes(one.nodes)


def _nodes(nodes: NodeChanges) -> Iterator[str]:
    if nodes.changes or nodes.untold:
        yield f"nodes    {nodes_text(nodes)}"
    yield from _some("", [change.told for change in nodes.changes])


def _some(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, each with a title, and the number of omitted lines."""
    shown = lines[:LISTED]
    yield from (f"{title:<8} {line}" for line in shown)
    if len(lines) > len(shown):
        yield f"{'':<8} ... and {len(lines) - len(shown):,} more (--json has all)"


_HEADINGS: Final = ("", "before", "after", "change")
_LISTED: Final = 50


def comparisons_markdown(comparisons: Sequence[Comparison]) -> str:
    """Format comparisons as Markdown: for each target the causes, effects, and numbers."""
    same = [one for one in comparisons if one.state == "same"]
    lines = ["## mobileprep: what changed", ""]
    for one in comparisons:
        if one.state != "same":
            lines += [*_target(one), ""]
    if same:
        lines.append(f"Nothing differs in {', '.join(plain(_name(one)) for one in same)}.")
    return "".join(f"{line}\n" for line in lines)


def _target(one: Comparison) -> Iterator[str]:
    state = _STATES.get(one.state)
    yield f"### {plain(_name(one))}{f' {state}' if state else ''}"
    if state:
        return
    yield ""
    for cause in one.causes:
        place = f" ({cause.place})" if cause.place else ""
        yield f"- **cause** {plain(cause_text(cause) + place)}"
    if one.untold:
        yield f"- **cause** not known: {plain(one.untold)}"
    yield from (f"- **step** {plain(step_text(step))}" for step in one.steps)
    yield from (f"- **new warning** {plain(warning)}" for warning in one.warnings)
    yield from (f"- **warning is gone** {plain(warning)}" for warning in one.solved)
    rows = list(_rows(one))
    if rows:
        yield ""
        yield from table(_HEADINGS, rows)
    yield from _folded("ranges of tensors", [range_text(change) for change in one.ranges])
    if one.nodes is not None and (one.nodes.changes or one.nodes.untold):
        yield from _markdown_nodes(one.nodes)


def _rows(one: Comparison) -> Iterator[list[str]]:
    titled = [
        ("", one.sizes),
        ("", one.accuracies),
        ("", one.kernels),
        ("budget: ", one.limits),
        ("off by, of the peak: ", one.outputs),
        ("op ", one.ops),
        ("dB of ", one.tensors[:_LISTED]),
    ]
    for title, figures in titled:
        yield from (_row(title, figure) for figure in figures)


def _row(title: str, figure: Figure) -> list[str]:
    return [
        plain(f"{title}{figure.name}"),
        number_text(figure.before),
        number_text(figure.after),
        share_text(figure).strip(" ()") or _gap(figure),
    ]


def _gap(figure: Figure) -> str:
    if figure.before is None or figure.after is None:
        return ""
    gap = figure.after - figure.before
    return f"{gap:+,}" if isinstance(gap, int) else f"{gap:+.3g}"


def _markdown_nodes(nodes: NodeChanges) -> Iterator[str]:
    if nodes.untold:
        yield ""
        yield f"Nodes {plain(nodes_text(nodes))}."
        return
    yield from _folded(f"nodes: {nodes_text(nodes)}", [change.told for change in nodes.changes])


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield lines in a collapsed section."""
    if not lines:
        return
    yield ""
    yield f"<details><summary>{plain(title)}</summary>"
    yield ""
    yield from (f"- {plain(line)}" for line in lines[:_LISTED])
    if len(lines) > _LISTED:
        yield f"- and {len(lines) - _LISTED:,} more"
    yield ""
    yield "</details>"


def _name(one: Comparison) -> str:
    return f"{one.recipe}/{one.target}"

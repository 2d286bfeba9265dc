"""A comparison of builds as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.report.comparison.model import Comparison, Figure, NodeChanges
from mobileprep.report.comparison.words import (
    cause_text,
    nodes_text,
    number_text,
    range_text,
    share_text,
    step_text,
)
from mobileprep.report.markup import plain, table

_HEADINGS: Final = ("", "before", "after", "change")
_LISTED: Final = 50
_STATES: Final = {"added": "is new", "removed": "is gone"}


def comparisons_markdown(comparisons: Sequence[Comparison]) -> str:
    """What targets differ in: for each what it comes from, what that did, and the numbers."""
    same = [one for one in comparisons if one.state == "same"]
    lines = ["## mobileprep: what changed", ""]
    for one in comparisons:
        if one.state != "same":
            lines += [*_target(one), ""]
    if same:
        lines.append(f"Nothing differs in {', '.join(plain(_name(one)) for one in same)}.")
    return "".join(f"{line}\n" for line in lines)


def _target(one: Comparison) -> Iterator[str]:
    told = _STATES.get(one.state)
    yield f"### {plain(_name(one))}{f' {told}' if told else ''}"
    if told:
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
        yield from _nodes(one.nodes)


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


def _nodes(nodes: NodeChanges) -> Iterator[str]:
    if nodes.untold:
        yield ""
        yield f"Nodes {plain(nodes_text(nodes))}."
        return
    yield from _folded(f"nodes: {nodes_text(nodes)}", [change.told for change in nodes.changes])


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that are shown once they are asked for."""
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

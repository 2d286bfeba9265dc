"""A comparison of builds in lines, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.report.comparison.model import Comparison, NodeChanges
from mobileprep.report.comparison.words import (
    cause_text,
    figure_text,
    nodes_text,
    range_text,
    step_text,
)
from mobileprep.report.layout import wrapped

LISTED: Final = 10
_STATES: Final = {"same": "nothing differs", "added": "is new", "removed": "is gone"}


def comparison_title(one: Comparison) -> str:
    """The target's name, and where that says all, what became of it."""
    told = _STATES.get(one.state)
    name = f"{one.recipe}/{one.target}"
    return f"{name}: {told}" if told else name


def comparison_lines(
    one: Comparison, width: int | None = None, listed: int | None = LISTED
) -> list[str]:
    """What a target differs in.

    Args:
        one: the comparison.
        width: of the terminal, in characters; None where it is not for one.
        listed: how many ranges, tensors and nodes to name at most; None for all.
    """
    body = _lines(one, listed)
    return list(body) if width is None else [p for line in body for p in wrapped(line, width)]


def _lines(one: Comparison, listed: int | None) -> Iterator[str]:
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
    yield from _some("range", [range_text(change) for change in one.ranges], listed)
    yield from _some("tensor", [f"{figure_text(f)} dB" for f in one.tensors], listed)
    yield from (f"  new warning: {warning}" for warning in one.warnings)
    yield from (f"  warning is gone: {warning}" for warning in one.solved)
    if one.nodes is not None:
        yield from _nodes(one.nodes, listed)


def _nodes(nodes: NodeChanges, listed: int | None) -> Iterator[str]:
    if nodes.changes or nodes.untold:
        yield f"nodes    {nodes_text(nodes)}"
    yield from _some("", [change.told for change in nodes.changes], listed)


def _some(title: str, lines: Sequence[str], listed: int | None) -> Iterator[str]:
    """The first lines, each with a title, and how many more there are."""
    shown = lines if listed is None else lines[:listed]
    yield from (f"{title:<8} {line}" for line in shown)
    if len(lines) > len(shown):
        yield f"{'':<8} ... and {len(lines) - len(shown):,} more (--json has all)"

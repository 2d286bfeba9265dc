"""The numbers and values of a comparison, in words."""

from __future__ import annotations

import json
from typing import Any, Final

from mobileprep.report.comparison.model import Cause, Figure, NodeChanges, RangeChange, StepChange

ARROW: Final = "->"
_MOST: Final = 60
_DIGEST: Final = 12
# Of these a share tells more than the two numbers.
_SIZES: Final = frozenset({"bytes", "nodes", "parameters"})


def figure_text(figure: Figure) -> str:
    """``model bytes 15,641 -> 14,000 (-10.5%)``."""
    return f"{figure.name} {values_text(figure)}{share_text(figure)}"


def values_text(figure: Figure) -> str:
    """``15,641 -> 14,000``."""
    return f"{number_text(figure.before)} {ARROW} {number_text(figure.after)}"


def share_text(figure: Figure) -> str:
    """`` (-10.5%)`` of a size; empty for other figures."""
    is_size = figure.name.rpartition(" ")[2] in _SIZES
    if not (is_size and figure.before and figure.after is not None and figure.before > 0):
        return ""
    return f" ({100 * (figure.after / figure.before - 1):+.1f}%)"


def number_text(value: float | None) -> str:
    """A count in full, another number in six digits; ``none`` where there is none."""
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def cause_text(cause: Cause) -> str:
    """``transforms.quantize_weights.minimum_size: 1024 -> 16``, without the place."""
    shown = _digest if cause.what == "source" else _value
    name = f"file {cause.key}" if cause.what == "source" else cause.key
    return f"{name}: {shown(cause.before)} {ARROW} {shown(cause.after)}"


def step_text(change: StepChange) -> str:
    """What a step does by itself, beside what it did."""
    title = f"{change.number:02} {change.name}"
    if change.kind != "changed":
        sided = [(f.name, f.after if change.kind == "added" else f.before) for f in change.figures]
        told = ", ".join(f"{name} {number_text(value)}" for name, value in sided if value)
        what = "is new" if change.kind == "added" else "is gone"
        return f"{title} {what}: {told}" if told else f"{title} {what}"
    if not change.figures:
        return f"{title}: the same counts"
    return f"{title}: {', '.join(f'{f.name} {values_text(f)}' for f in change.figures)}"


def range_text(change: RangeChange) -> str:
    """``conv1: [-1, 4] -> [-1, 6]``."""
    return f"{change.tensor}: {_ends(change.before)} {ARROW} {_ends(change.after)}"


def nodes_text(nodes: NodeChanges) -> str:
    """How many nodes were added, removed and changed, or why that is not told."""
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

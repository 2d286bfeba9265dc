"""Report the models of a recipe, or candidates, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.building.report.layout import TextTable, fitted, plain, table
from mobileprep.building.stages.candidate.spec import Candidate
from mobileprep.core.printable import shortened

_NONE: Final = "-"
_WIDTH: Final = 32
_BYTES: Final = ("B", "KB", "MB", "GB", "TB")
_COUNTS: Final = ("", "k", "M", "G", "T")
_TIMES: Final = ("us", "ms", "s")


def candidate_lines(candidates: Sequence[Candidate], width: int, metric: str = "") -> list[str]:
    """Format a table of models that fits a width, with the notes below it."""
    rows = tuple(tuple(_cells(candidate, metric)) for candidate in candidates)
    lines = fitted(TextTable(_headings(metric), rows), width)
    return [*lines, *(f"  {line}" for line in _remarks(candidates))]


def candidate_markdown(candidates: Sequence[Candidate], metric: str = "") -> Iterator[str]:
    """Yield a Markdown table of models, and a list of the notes below it."""
    rows = ([plain(cell) for cell in _cells(candidate, metric)] for candidate in candidates)
    yield from table(_headings(metric), rows)
    yield ""
    yield from (f"- {plain(line)}" for line in _remarks(candidates))


def _headings(metric: str) -> tuple[str, ...]:
    sizes = ("parameters", "float", "8-bit", "compressed")
    costs = ("FLOPs", "best", "likely", "RAM", "lacks ops")
    return ("model", *sizes, *costs, *filter(None, (metric,)))


def _cells(candidate: Candidate, metric: str) -> Iterator[str]:
    # Operations of uncounted ops are missing from these numbers.
    more = ">" if candidate.uncounted else ""
    yield shortened(candidate.model, _WIDTH)
    yield _scaled(candidate.parameters, _COUNTS)
    yield _scaled(candidate.float_bytes, _BYTES)
    yield _scaled(candidate.eightbit_bytes, _BYTES)
    yield _range(candidate.compressed_bytes, _BYTES)
    yield more + _scaled(candidate.flops, _COUNTS)
    best = candidate.best_seconds
    yield _NONE if best is None else more + _scaled(best * 1e6, _TIMES)
    likely = [seconds * 1e6 for seconds in candidate.likely_seconds]
    yield more + _range(likely, _TIMES) if likely else _NONE
    yield more + _scaled(candidate.ram_bytes, _BYTES)
    yield _NONE if candidate.reason else str(len(candidate.lacks))
    if metric:
        yield _NONE if candidate.metric is None else f"{candidate.metric:.4g}"


def _range(ends: Sequence[float], units: Sequence[str]) -> str:
    texts = list(dict.fromkeys(_scaled(end, units) for end in ends))
    return " to ".join(texts) or _NONE


def _scaled(amount: float | None, units: Sequence[str]) -> str:
    """Format an amount with three digits and a unit, each 1,000 times the one before."""
    if amount is None:
        return _NONE
    at = 0
    while amount >= 999.5 and at < len(units) - 1:
        amount, at = amount / 1000, at + 1
    digits = f"{amount:,.0f}" if amount >= 99.95 else f"{amount:.3g}"
    return f"{digits} {units[at]}".rstrip() if units[0] else f"{digits}{units[at]}"


def _remarks(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield the reasons, unsupported ops, and notes of each model, then the assumptions."""
    for candidate in candidates:
        if candidate.reason:
            yield f"{candidate.model} is not counted: {candidate.reason}"
        if candidate.lacks:
            yield f"{candidate.model} lacks {', '.join(candidate.lacks)}"
        yield from (f"{candidate.model}: {note}" for note in candidate.notes)
    yield from dict.fromkeys(line for c in candidates for line in c.assumptions)

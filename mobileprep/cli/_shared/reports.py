"""Reports on the standard output: for people, as wide as it is, or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from mobileprep.cli._shared.terminal import columns, is_terminal
from mobileprep.inspection.visible import plain
from mobileprep.report.collect import Report
from mobileprep.report.comparison.model import Comparison


def print_reports(
    reports: Iterable[Report], *, as_json: bool, beside: Sequence[Report] = ()
) -> None:
    """Print reports one after the other, or as a JSON list.

    Args:
        reports: the reports.
        as_json: whether as JSON.
        beside: of all targets, to be summed up after them.
    """
    if as_json:
        from mobileprep.report.json import report_data

        print(json.dumps([report_data(r) for r in reports], sort_keys=True, indent=1))
        return
    from mobileprep.report.summary import summary_text
    from mobileprep.report.text import USUAL_WIDTH, report_text

    width, color = _terminal()
    for report in reports:
        print(report_text(report, color=color, width=width), end="")
    print(summary_text(beside, width or USUAL_WIDTH), end="")


def print_comparisons(comparisons: Iterable[Comparison]) -> None:
    """Print what targets differ in; what names of models hold does nothing to a terminal."""
    from mobileprep.cli._shared.terminal.plain import show
    from mobileprep.report.comparison.text import comparison_lines, comparison_title
    from mobileprep.report.text import BOLD, PLAIN

    width, color = _terminal()
    for one in comparisons:
        title = plain(comparison_title(one))
        print(f"{BOLD}{title}{PLAIN}" if color else title)
        show(comparison_lines(one, width))


def _terminal() -> tuple[int | None, bool]:
    """How wide the standard output's terminal is, None without one, and whether it has colors."""
    terminal = is_terminal(sys.stdout)
    return columns(sys.stdout) if terminal else None, terminal and not os.environ.get("NO_COLOR")

"""Reports on the standard output: for people, as wide as it is, or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from mobileprep.cli._shared.terminal import columns, is_terminal
from mobileprep.report.collect import Report


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

    terminal = is_terminal(sys.stdout)
    width = columns(sys.stdout) if terminal else None
    color = terminal and not os.environ.get("NO_COLOR")
    for report in reports:
        print(report_text(report, color=color, width=width), end="")
    print(summary_text(beside, width or USUAL_WIDTH), end="")

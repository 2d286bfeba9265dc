"""The report as JSON: the same facts, the same bytes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from mobileprep.report.collect import Report


def report_data(report: Report) -> dict[str, Any]:
    """The report as JSON-able data."""
    return dataclasses.asdict(report)


def report_json(report: Report) -> bytes:
    """The report as JSON text, keys sorted."""
    return (json.dumps(report_data(report), sort_keys=True, indent=1) + "\n").encode()

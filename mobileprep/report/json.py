"""The report as JSON: the same facts, the same bytes."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from mobileprep.frozen import fields_of
from mobileprep.report.collect import Report
from mobileprep.report.comparison.model import Comparison


def report_data(report: Report) -> dict[str, Any]:
    """The report as JSON-able data; JSON has no infinity and no NaN, so those are null."""
    data: dict[str, Any] = finite(report)
    return data


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON-able data; numbers that are not finite are null."""
    data: dict[str, Any] = finite(comparison)
    return data


def report_json(report: Report) -> bytes:
    """The report as JSON text, keys sorted."""
    text = json.dumps(report_data(report), sort_keys=True, indent=1, allow_nan=False)
    return f"{text}\n".encode()


def report_key(report: Report) -> bytes:
    """What is the same where ``report_json`` is, in a fifth of its time: for digests."""
    text = json.dumps(report_data(report), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def finite(value: Any) -> Any:  # noqa: ANN401 - a record, or JSON-able data
    """Records and data as JSON has them, null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {name: finite(item) for name, item in fields_of(value).items()}
    return value

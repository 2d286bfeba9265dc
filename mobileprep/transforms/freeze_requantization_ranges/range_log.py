"""Read ranges from the log of a graph with logging nodes."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Final, NamedTuple

from mobileprep.core.files import read_bytes

_LARGEST: Final = 1 << 28
_NAME_END: Final = "__print__"
_VALUES: Final = "__requant_min_max:"
_NUMBER: Final = r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf)\s*"
_BOTH: Final = re.compile(rf"\[{_NUMBER}\][^\[\]]*\[{_NUMBER}\][^\[\]]*\Z", re.IGNORECASE)
# Color codes of terminals and log viewers.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Range(NamedTuple):
    """Minimum and maximum of a tensor."""

    low: float
    high: float


def read_range_log(path: Path) -> dict[str, list[Range]]:
    """Return the ranges of a log by the name of the node that measured them.

    Lines look like ``...;NAME__print__;__requant_min_max:[-1.5][2.5]``; other lines are ignored. So
    are prefixes, such as TensorFlow's time and source file, suffixes, and color codes. UTF-16, as
    written by PowerShell, is supported.

    Source: ``ExtractMinMaxRecords`` of TensorFlow 1.15's graph transforms.
    """
    data = read_bytes(path, limit=_LARGEST)
    text = data.decode("utf-16" if data.startswith(_WIDE) else "utf-8", "replace")
    text = _COLOURS.sub("", text)
    ranges: dict[str, list[Range]] = {}
    for line in text.split("\n"):
        if f"{_NAME_END};{_VALUES}" in line:
            _read_line(line, ranges)
    return ranges


def _read_line(line: str, ranges: dict[str, list[Range]]) -> None:
    parts = line.split(";")
    at = max((i for i, part in enumerate(parts) if i and part.startswith(_VALUES)), default=0)
    if not at or not parts[at - 1].endswith(_NAME_END):
        return
    values = _BOTH.match(parts[at], len(_VALUES))
    if values is None:
        return
    low, high = float(values[1]), float(values[2])
    ranges.setdefault(parts[at - 1].removesuffix(_NAME_END), []).append(Range(low, high))

"""Reads what a page tells out of the page."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mobileprep.report.page.data import FORMAT

# No text of the data has such a sign: all that could end the element is escaped.
_DATA: Final = re.compile(rb'<script type="application/json" id="data">([^<]*)</script>')


def data_of_page(page: bytes) -> dict[str, Any]:
    """What a page tells, see ``page_data``.

    Raises:
        ValueError: it is no page, or one that another version of this program made.
        RecursionError: its data are nested too deeply.
    """
    found = _DATA.search(page)
    data = json.loads(found[1]) if found else {}
    known = data.get("format") if isinstance(data, dict) else None
    if known is None or not isinstance(data.get("recipe"), str):
        message = "it is no page of a build"
        raise ValueError(message)
    if known != FORMAT:
        message = "its data are of another version of mobileprep"
        raise ValueError(message)
    targets = data.get("targets")
    if not isinstance(targets, list) or not targets or not all(map(_is_target, targets)):
        message = "it tells of no target"
        raise ValueError(message)
    return data


def _is_target(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)

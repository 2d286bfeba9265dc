"""The one text of some data: what digests are made of."""

from __future__ import annotations

import json


def canonical(data: object) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

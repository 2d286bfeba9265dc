"""JSON under a line with its digest: what was damaged, or put under another key, counts as gone."""

from __future__ import annotations

import json

from mobileprep.building.plan.fingerprints import canonical
from mobileprep.core.files import sha256_bytes


def seal(key: str, data: object) -> bytes:
    """JSON-able data that is kept under a key: the sha256 of a JSON text of both, and the text."""
    body = canonical({"key": key, "data": data}).encode()
    return sha256_bytes(body).encode() + b"\n" + body


def unseal(key: str, text: bytes) -> object:
    """The data that ``seal`` was given with that key; None where the text is anything else."""
    digest, _, body = text.partition(b"\n")
    if digest != sha256_bytes(body).encode():
        return None
    try:
        found = json.loads(body)
        return found["data"] if found["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None

"""JSON that carries a digest of itself: what was damaged or moved to another key is gone."""

from __future__ import annotations

import json

from mobileprep.fsio import sha256_bytes
from mobileprep.plan.fingerprints import canonical


def seal(key: str, data: object) -> str:
    """The text of JSON-able data that is kept under a key, with the sha256 of both."""
    record = {"key": key, "data": data}
    return canonical({**record, "sha256": _digest(record)})


def unseal(key: str, text: bytes) -> object:
    """The data that ``seal`` wrote under that key; None where the text is anything else."""
    try:
        found = json.loads(text)
        data = found["data"]
        record = {"key": key, "data": data}
        whole = found == {**record, "sha256": _digest(record)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return data if whole else None


def _digest(record: object) -> str:
    return sha256_bytes(canonical(record).encode())

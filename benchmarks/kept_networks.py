"""Metadata of the frozen networks that benchmarks run: NAME.json describes NAME.pb."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def facts_of(folder: Path, name: str) -> dict[str, Any]:
    """Return the input, shape, and output of a network; exit if the network does not exist."""
    told = folder / f"{name}.json"
    if not told.exists():
        made = f"python -m tests.reference.networks {folder} {name}"
        sys.exit(f"{told}: not found; make it, in the checkout and with tensorflow-cpu: {made}")
    found: dict[str, Any] = json.loads(told.read_text())
    return found

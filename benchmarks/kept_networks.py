"""The frozen networks that benchmarks run: NAME.pb, and NAME.json about its input and output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def facts_of(folder: Path, name: str) -> dict[str, Any]:
    """The input, shape and output of a network; the program ends where it is not there."""
    told = folder / f"{name}.json"
    if not told.exists():
        made = f"python -m tests.reference.networks {folder} {name}"
        sys.exit(f"{told}: not found; make it, in the checkout and with tensorflow-cpu: {made}")
    found: dict[str, Any] = json.loads(told.read_text())
    return found

"""Devices, and what they can reach at best."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from mobileprep.errors import UsageError, nearest_hint


@dataclass(frozen=True)
class Device:
    """A device.

    Args:
        name: what it is called on the command line.
        title: what it is.
        gflops: billions of floating-point operations a second, in single precision.
        basis: what that number is: a rule of thumb, or the peak of the instructions.
        source, url: where it was published.
    """

    name: str
    title: str
    gflops: float
    basis: str
    source: str
    url: str

    def seconds(self, flops: int) -> float:
        """The least time that many operations can take."""
        return flops / (self.gflops * 1e9)


@lru_cache(maxsize=1)
def devices() -> dict[str, Device]:
    """All devices by name."""
    file = resources.files("mobileprep.runtime.accounting") / "data" / "devices.json"
    listed = json.loads(file.read_text(encoding="utf-8"))["devices"]
    return {entry["name"]: Device(**entry) for entry in listed}


def find_device(name: str) -> Device:
    """The device of that name.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    found = devices().get(name)
    if found is None:
        message = f"there is no device {name!r}"
        hint = nearest_hint(name, devices()) or f"choose one of {', '.join(devices())}"
        raise UsageError(message, hint)
    return found

"""Devices, and what they can reach at best."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.frozen import dataclass
from mobileprep.options.declare import Option

_LIST: Final = Path(__file__).with_name("devices.json")
DEVICE_FILES: Final = (".yaml", ".yml")
"""How the names of files with profiles end; no device of the list is called so."""


@dataclass(frozen=True)
class Device:
    """A device; its options are the keys of a profile of one's own.

    Args:
        name: what it is called on the command line and in recipes.
    """

    name: str
    title: Annotated[str, Option("What it is, for reports. Required.", min_length=1)]
    gflops: Annotated[
        float,
        Option(
            "Billions of floating-point operations a second, in single precision. Required.",
            minimum=1e-6,
            maximum=1e9,
        ),
    ]
    source: Annotated[
        str,
        Option("Where the rate is from: who measured it, and how. Required.", min_length=1),
    ]
    basis: Annotated[
        str,
        Option("What the rate is: what networks reach, or a peak that none reaches.", min_length=1),
    ] = "what its profile says"
    url: Annotated[str, Option("Where that was published.")] = ""

    def seconds(self, flops: int) -> float:
        """The least time that many operations can take."""
        return flops / (self.gflops * 1e9)


@lru_cache(maxsize=1)
def devices() -> dict[str, Device]:
    """All devices by name."""
    listed = json.loads(_LIST.read_text(encoding="utf-8"))["devices"]
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

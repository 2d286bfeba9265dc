"""How the public functions take paths, and how they warn."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

from mobileprep.errors import MobileprepWarning

_PACKAGE = __name__.split(".")[0]

FilePath: TypeAlias = str | os.PathLike[str]

Warn: TypeAlias = Callable[[str], None]
"""Told in a sentence what the user should know."""


def as_warning(sentence: str) -> None:
    """Warn at the line of the user's that called a public function, however deep this is."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_own(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, MobileprepWarning, stacklevel=level)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE

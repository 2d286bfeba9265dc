"""Arguments and warnings of the public functions."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TypeAlias

from mobileprep.errors import MobileprepWarning

# doit calls functions of this package, so its frames are not part of the user's code either.
_PASSED_OVER = frozenset({__name__.split(".")[0], "doit"})

FilePath: TypeAlias = str | os.PathLike[str]

Warn: TypeAlias = Callable[[str], None]
"""Function to call with a warning for the user."""


def names_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; a single string is one name, not a list of characters."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_warning(sentence: str) -> None:
    """Issue a warning at the line of the user's code that called a public function."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_own(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, MobileprepWarning, stacklevel=level)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in _PASSED_OVER

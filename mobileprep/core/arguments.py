"""How the public functions take paths and names, and how they warn."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TypeAlias

from mobileprep.errors import MobileprepWarning

# doit calls our functions, so its frames are not the user's either.
_PASSED_OVER = frozenset({__name__.split(".")[0], "doit"})

FilePath: TypeAlias = str | os.PathLike[str]

Warn: TypeAlias = Callable[[str], None]
"""Called with a message for the user."""


def names_of(names: Iterable[str]) -> tuple[str, ...]:
    """Names as a tuple; a text by itself is one name, and no list of its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_warning(sentence: str) -> None:
    """Warn at the line of the user's that called a public function, however deep this is."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_own(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, MobileprepWarning, stacklevel=level)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in _PASSED_OVER

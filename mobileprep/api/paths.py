"""How the public functions take paths, and how they warn."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypeAlias

from mobileprep.errors import MobileprepWarning

FilePath: TypeAlias = str | os.PathLike[str]

Warn: TypeAlias = Callable[[str], None]
"""Told in a sentence what the user should know."""


def as_warning(sentence: str) -> None:
    """Warn the caller of a public function."""
    warnings.warn(sentence, MobileprepWarning, stacklevel=3)

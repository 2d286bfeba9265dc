"""Importing the libraries of engines, which need not be installed."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

from mobileprep.errors import UnsupportedError


def import_library(module: str, title: str, install: str) -> Any:  # noqa: ANN401 - anything
    """A module of an optional library.

    Args:
        module: its name.
        title: what the library is called.
        install: the command that installs it.

    Raises:
        UnsupportedError: it is not installed, or cannot be imported.
    """
    # Their logging keeps the standard error that it finds, which a stage has for a time only.
    lasting = sys.__stderr__ or sys.stderr
    try:
        with contextlib.redirect_stderr(lasting):
            return importlib.import_module(module)
    except ImportError as error:
        if error.name == module.partition(".")[0] or error.name == module:
            message = f"{title} is not installed"
        else:
            message = f"{title} cannot be imported: {error}"
        raise UnsupportedError(message, install) from error

"""Gives memory that is free back to the system."""

from __future__ import annotations

import sys


def return_free_memory() -> None:
    """Return what the C library keeps for later, where it can be asked to.

    After a large stage glibc keeps as much as the stage took at most, for each thread apart; stages
    that run at the same time would take that much each.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # slow to import, and small builds need it never

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

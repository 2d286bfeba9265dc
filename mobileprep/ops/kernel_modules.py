"""Imports the module that an op's kernel is in, and no other: they are many, a graph needs few."""

from __future__ import annotations

import importlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.registry import import_all

PACKAGE: Final = "mobileprep.ops.kernels"
INDEX: Final = Path(__file__).parent / "data" / "kernel_modules.json"


def import_kernel(op: str) -> None:
    """Import the module of an op's kernel; all modules, where the index does not know the op.

    The index only saves time: a kernel that is not in it yet is found all the same.
    """
    module = _index().get(op)
    if module is None:
        import_kernels()
    else:
        importlib.import_module(f"{PACKAGE}.{module}")


@lru_cache(maxsize=1)
def import_kernels() -> None:
    """Import every module of kernels."""
    import_all(PACKAGE)


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    modules: dict[str, list[str]] = json.loads(INDEX.read_text(encoding="utf-8"))
    return {op: module for module, ops in modules.items() for op in ops}

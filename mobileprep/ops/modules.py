"""Imports the module that an op is in, and no other: they are many, a graph needs few."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.core.loading import import_on_demand

_PACKAGE: Final = "mobileprep.ops"
INDEX: Final = Path(__file__).parent / "data" / "op_modules.json"
_ARITHMETIC: Final = "numerics"
"""The package of arithmetic that ops share, which is not a family of ops."""


def import_op(op: str) -> None:
    """Import the module of an op; all modules, where the index does not know the op.

    The index only saves time: an op that is not in it yet is found all the same.
    """
    module = _index().get(op)
    if module is None:
        import_ops()
    else:
        import_on_demand(f"{_PACKAGE}.{module}")


@lru_cache(maxsize=1)
def import_ops() -> None:
    """Import every family of ops."""
    for module in family_modules():
        import_on_demand(module)


def family_modules() -> Iterator[str]:
    """The modules of all families, by file name, none of them imported."""
    root = Path(__file__).parent
    packages = (p.name for p in root.iterdir() if (p / "__init__.py").is_file())
    for family in sorted(name for name in packages if name != _ARITHMETIC):
        for module in pkgutil.iter_modules([str(root / family)]):
            yield f"{_PACKAGE}.{family}.{module.name}"


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    modules: dict[str, list[str]] = json.loads(INDEX.read_text(encoding="utf-8"))
    return {op: module for module, ops in modules.items() for op in ops}


def family_of(op: str) -> str:
    """The family that an op is in, such as ``nn``; empty where the index does not know the op."""
    return _index().get(op, "").partition(".")[0]

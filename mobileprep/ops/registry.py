"""Registries of ops, whose modules are imported when an op is first needed."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from mobileprep.core.loading import Registry, import_on_demand

T = TypeVar("T")

_PACKAGE: Final = "mobileprep.ops"

INDEX: Final = Path(__file__).parent / "data" / "op_modules.json"

_ARITHMETIC: Final = "numerics"
"""The package of shared arithmetic, which is not a family of ops."""


class OpRegistry(Registry[T]):
    """A registry with entries by op."""

    def find(self, op: str) -> T | None:
        """Return the entry of an op, or None."""
        if op not in self:
            import_op(op)
        return self.get(op)

    def names(self) -> list[str]:
        """Return all ops with an entry, sorted."""
        import_ops()
        return list(self)


def import_op(op: str) -> None:
    """Import the module of an op, or all modules if the index does not contain the op.

    The index only saves time: ops that are not in it yet are found, too.
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
    """Yield the modules of all families, by file name, without importing them."""
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
    """Return the family of an op, such as ``nn``; empty if the index does not contain the op."""
    return _index().get(op, "").partition(".")[0]

"""The registry of lowerings: one function for each TensorFlow op that LiteRT can express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mobileprep.core.loading import Registry, import_on_demand, module_names
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value

if TYPE_CHECKING:
    from mobileprep.litert.scope import Scope

_PACKAGE: Final = "mobileprep.litert.ops"

Lowered = Value | tuple[Value, ...]
Lowering = Callable[["Scope", Node, Sequence[Value]], Lowered]
"""``lowering(scope, node, inputs) -> output or tuple of outputs``.

Raises:
    CannotExpressError: LiteRT has nothing that computes the same.
"""

registry: Registry[Lowering] = Registry("lowering")


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """A decorator that makes a function the lowering of the named ops."""
    return registry.register(*names)


def find_lowering(op: str) -> Lowering | None:
    """The lowering of an op, or None."""
    _import_all()
    return registry.get(op)


def lowered_ops() -> list[str]:
    """The ops that can be lowered, sorted."""
    _import_all()
    return list(registry)


@lru_cache(maxsize=1)
def _import_all() -> None:
    for module in module_names(_PACKAGE):
        import_on_demand(f"{_PACKAGE}.{module}")

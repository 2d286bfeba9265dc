"""Classes of ops whose effective rates differ on a device, and the cost of a model by class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from mobileprep.runtime.accounting.costs import NodeCost

OP_CLASSES: Final = ("convolution", "depthwise", "product", "activation", "other")
"""Dense convolutions, depthwise convolutions, matrix products, the ops that runtimes fuse into
them (biases, batch norms, and ReLUs), and all others."""

HEAVY_CLASSES: Final = OP_CLASSES[:3]
"""Classes whose ops take most of the time of a network."""
MIN_RATE: Final = 1e-6
MAX_RATE: Final = 1e12
"""Bounds of the rates of a profile, and the maximum overhead."""

_DEPTHWISE: Final = ("depthwise", "dwconv")
_CONVOLUTIONS: Final = ("conv", "winograd")
_PRODUCTS: Final = ("matmul", "fullyconnected", "gemm", "einsum", "lstm", "rnn", "gru", "svdf")
_ACTIVATIONS: Final = ("biasadd", "batchnorm", "relu")
_MAX: Final = 1 << 62


class ClassCost(Struct, frozen=True):
    """Costs of the nodes of a class in one run.

    Args:
        kind: one of `OP_CLASSES`.
        nodes: number of executions.
        flops: operations.
        bytes: bytes that the nodes read and write.
    """

    kind: Annotated[str, Meta(max_length=100)]
    nodes: Annotated[int, Meta(ge=0, le=_MAX)]
    flops: Annotated[int, Meta(ge=0, le=_MAX)]
    bytes: Annotated[int, Meta(ge=0, le=_MAX)]


class ClassRate(Struct, frozen=True):
    """Effective rates of a device for a class of ops.

    Args:
        kind: one of `OP_CLASSES`.
        gflops: billions of operations a second; None if operations take no time.
        gbytes: billions of bytes read and written a second; None if moving them takes no time.
        overhead_us: microseconds of each op.
    """

    kind: str
    gflops: float | None = None
    gbytes: float | None = None
    overhead_us: float = 0.0

    def seconds(self, cost: ClassCost) -> float:
        """Return the time of the nodes of the class, in seconds."""
        computed = cost.flops / (self.gflops * 1e9) if self.gflops else 0.0
        moved = cost.bytes / (self.gbytes * 1e9) if self.gbytes else 0.0
        return computed + moved + cost.nodes * self.overhead_us / 1e6


def op_class(op: str) -> str:
    """Return the class of an op, by its name in TensorFlow, LiteRT, or a delegate's profile."""
    name = "".join(c for c in op.lower() if c.isalnum())
    if any(part in name for part in _DEPTHWISE):
        return "depthwise"
    if any(part in name for part in _CONVOLUTIONS) and "convert" not in name:
        return "convolution"
    if any(part in name for part in _PRODUCTS):
        return "product"
    return "activation" if any(part in name for part in _ACTIVATIONS) else "other"


def class_costs(nodes: Iterable[NodeCost]) -> tuple[ClassCost, ...]:
    """Return the costs of the nodes of each class, in the order of `OP_CLASSES`."""
    sums = {kind: [0, 0, 0] for kind in OP_CLASSES}
    for node in nodes:
        total = sums[op_class(node.op)]
        total[0] += node.calls
        total[1] += node.flops or 0
        total[2] += node.moved
    return tuple(ClassCost(kind, *total) for kind, total in sums.items() if total[0])

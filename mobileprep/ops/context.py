"""What kernels that are more than functions of their inputs may ask of the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import ITERATIONS_VARIABLE, iteration_limit, spend
from mobileprep.core.loading import Registry
from mobileprep.errors import LoopLimitError
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Outputs, import_op, import_ops


class Observer(Protocol):
    """Receives every step of a run."""

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """Take note of a step.

        Args:
            nodes: the nodes whose work was done; several where they were done together.
            start: when the step began, in seconds of ``time.perf_counter``.
        """


Watcher = Callable[[Edge, Array], None]
"""Given each watched tensor as it is computed; the array is not to be written to nor kept."""


STREAMS: Final = ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")
"""Where a graph may print, besides ``file://PATH``."""


class Printed(Struct, frozen=True):
    """What a node of a graph prints.

    Args:
        node: the node's name.
        stream: one of ``STREAMS``, or ``file://PATH``, which the printer may ignore.
        text: what, its end of line included.
    """

    node: str
    stream: str
    text: str


Printer = Callable[[Printed], None]


@dataclass(slots=True)
class RunContext:
    """The interpreter's side of a run.

    Args:
        resources: what nodes keep between runs, such as tables, by a name of their choice.
        seed: of the run's random numbers, or None where the user gave none.
        observer: told of every step.
        printer: given what the graph prints; without it nothing is printed.
        watcher: given the tensors that the plan watches.
    """

    resources: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    observer: Observer | None = None
    printer: Printer | None = None
    watcher: Watcher | None = None
    _iterations: int = field(default=0, init=False)
    _random: np.random.Generator | None = field(default=None, init=False)

    def count_iteration(self, name: str, where: str) -> None:
        """Count an iteration of a loop."""
        self._iterations += 1
        if self._iterations > iteration_limit():
            message = f"the loop of {name!r} goes on after {self._iterations - 1:,} iterations"
            hint = f"allow more by --max_iterations or {ITERATIONS_VARIABLE}"
            raise LoopLimitError(message, hint, where)

    def random(self) -> np.random.Generator | None:
        """The source of the run's random numbers; None where the user gave no seed."""
        if self._random is None and self.seed is not None:
            # Only now: few graphs draw numbers, and numpy's module for them is slow to import.
            self._random = np.random.default_rng(self.seed)
        return self._random


ContextKernel = Callable[..., Outputs]
"""``kernel(context, node, *inputs) -> output or tuple of outputs``, called in every run."""


registry: Registry[ContextKernel] = Registry("op kernel with context")


def context_kernel(*ops: str) -> Callable[[ContextKernel], ContextKernel]:
    """A decorator that makes a function the kernel of ops with side effects or state."""
    return registry.register(*ops)


def find_context_kernel(op: str) -> ContextKernel | None:
    """The kernel with context of an op, or None."""
    if op not in registry:
        import_op(op)
    return registry.get(op)


def context_kernel_names() -> list[str]:
    """The ops that have a kernel with context, sorted."""
    import_ops()
    return list(registry)


# Operations that take as long as reading a byte, or making one by some function.
_READ: Final = 2


_MADE: Final = 64


# And as handling a text, which is an object of its own.
_TEXT: Final = 1 << 16


# These ops read only a small part of their inputs.
_PARTIAL: Final = frozenset(
    {
        *("Enter", "Exit", "ExpandDims", "Gather", "GatherNd", "GatherV2", "Identity", "IdentityN"),
        *("LoopCond", "Merge", "NextIteration", "Rank", "Reshape", "Shape", "ShapeN", "Size"),
        *("Slice", "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Switch"),
        *("TensorArrayReadV2", "TensorArrayReadV3", "TensorListGetItem", "Unpack"),
    }
)


def charge(op: str, inputs: Sequence[object], results: Sequence[object]) -> None:
    """Count the inputs and results of a node; results that share an input's memory are free."""
    total = 0
    is_partial = op in _PARTIAL
    # Loops, as this is done at each step of a run.
    if not is_partial:
        for x in inputs:
            if isinstance(x, np.ndarray):
                total += x.size * _TEXT if x.dtype.hasobject else x.nbytes * _READ
    for x in results:
        if isinstance(x, np.ndarray) and x.base is None and not (is_partial and _given(x, inputs)):
            total += x.nbytes * _MADE
    spend(total, "reading and writing")


def _given(made: Array, inputs: Sequence[object]) -> bool:
    return any(made is x for x in inputs)

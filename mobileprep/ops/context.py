"""The interpreter's interface for kernels with side effects or state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import ITERATIONS_VARIABLE, iteration_limit, spend
from mobileprep.errors import LoopLimitError
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.cost import FlopRule
from mobileprep.ops.kernel import Outputs, declare
from mobileprep.ops.registry import OpRegistry
from mobileprep.ops.shape_function import ShapeFn


class Observer(Protocol):
    """Receives every step of a run."""

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """Record a step.

        Args:
            nodes: the nodes of the step; several if they were combined.
            start: when the step began, in seconds of ``time.perf_counter``.
            seconds: duration of the step.
            outputs: the results of the step.
        """


Watcher = Callable[[Edge, Array], None]
"""Receives each watched tensor when it is computed; must not modify or keep the array."""


STREAMS: Final = ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")
"""Where a graph can print, besides ``file://PATH``."""


class Printed(Struct, frozen=True):
    """The output of a node that prints.

    Args:
        node: the node's name.
        stream: one of ``STREAMS``, or ``file://PATH``, which the printer may ignore.
        text: the printed text, including its line end.
    """

    node: str
    stream: str
    text: str


Printer = Callable[[Printed], None]


@dataclass(slots=True)
class RunContext:
    """The interpreter's state during a run.

    Args:
        resources: objects that nodes keep between runs, such as tables, by a name of their choice.
        seed: of the run's random numbers, or None if the user did not set one.
        observer: receives every step.
        printer: receives the graph's printed output; without it, nothing is printed.
        watcher: receives the tensors that the plan watches.
    """

    resources: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    observer: Observer | None = None
    printer: Printer | None = None
    watcher: Watcher | None = None
    _iterations: int = field(default=0, init=False)
    _random: np.random.Generator | None = field(default=None, init=False)

    def count_iteration(self, name: str, where: str) -> None:
        """Count an iteration of a loop, and raise an error above the limit."""
        self._iterations += 1
        if self._iterations > iteration_limit():
            message = f"the loop of {name!r} goes on after {self._iterations - 1:,} iterations"
            hint = f"allow more by --max_iterations or {ITERATIONS_VARIABLE}"
            raise LoopLimitError(message, hint, where)

    def random(self) -> np.random.Generator | None:
        """Return the generator of the run's random numbers; None if the user did not set a seed."""
        if self._random is None and self.seed is not None:
            # Create it late: few graphs draw numbers, and numpy's random module is slow to import.
            self._random = np.random.default_rng(self.seed)
        return self._random


ContextKernel = Callable[..., Outputs]
"""``kernel(context, node, *inputs) -> output or tuple of outputs``, called in every run."""


registry: OpRegistry[ContextKernel] = OpRegistry("op kernel with context")
find_context_kernel = registry.find
context_kernel_names = registry.names


def context_kernel(
    *ops: str, shape: ShapeFn | None = None, flops: FlopRule | None = None
) -> Callable[[ContextKernel], ContextKernel]:
    """Register a function as the kernel of ops with side effects or state, like ``kernel``."""
    declare(ops, shape, flops)
    return registry.register(*ops)


# Operations equivalent to reading a byte, and to writing one.
_READ: Final = 2


_WRITE: Final = 64


# Operations equivalent to handling a string, which is a separate object.
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
    # Plain loops for speed, as this runs at each step of a run.
    if not is_partial:
        for x in inputs:
            if isinstance(x, np.ndarray):
                total += x.size * _TEXT if x.dtype.hasobject else x.nbytes * _READ
    for x in results:
        if (
            isinstance(x, np.ndarray)
            and x.base is None
            and not (is_partial and _is_input(x, inputs))
        ):
            total += x.nbytes * _WRITE
    spend(total, "reading and writing")


def _is_input(result: Array, inputs: Sequence[object]) -> bool:
    return any(result is x for x in inputs)

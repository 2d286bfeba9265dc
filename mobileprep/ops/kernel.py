"""Kernels and costs of ops, and the interface for kernels with effects or state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import ITERATIONS_VARIABLE, iteration_limit, spend
from mobileprep.errors import InvalidGraphError, LoopLimitError
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.registry import OpRegistry
from mobileprep.ops.shape_function import ShapeFn, shape_fn

Outputs = Array | tuple[Array, ...]


Kernel = Callable[..., Outputs]
"""``kernel(node, *inputs) -> output or tuple of outputs``.

Inputs are arrays that must not be modified, with strings as object arrays of bytes, and quantized
types as plain integers (distinguished by the node's type attributes). A kernel may return views of
its inputs.
"""


registry: OpRegistry[Kernel] = OpRegistry("op kernel")
find_kernel = registry.find
kernel_names = registry.names


def kernel(
    *ops: str, shape: ShapeFn | None = None, flops: FlopRule | None = None
) -> Callable[[Kernel], Kernel]:
    """Register a function as the kernel of the named ops.

    Args:
        shape: their shape function, unless ``shape_fn`` registers it.
        flops: their flop rule, unless ``flop_rule`` registers it.
    """
    declare(ops, shape, flops)
    return registry.register(*ops)


def declare(ops: tuple[str, ...], shape: ShapeFn | None, flops: FlopRule | None) -> None:
    """Register the shape function and the flop rule of ops."""
    if shape is not None:
        shape_fn(*ops)(shape)
    if flops is not None:
        flop_rule(*ops)(flops)


def call_kernel(run: Kernel, node: Node, inputs: list[Array]) -> tuple[Array, ...]:
    """Run a kernel and return its outputs as a tuple."""
    outputs = run(node, *inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


class UnknownCostError(Exception):
    """The shapes do not determine the cost of an op."""


class Sizes(Struct, frozen=True):
    """The arguments of a flop rule.

    Args:
        node: the node.
        inputs, outputs: the shapes of its tensors, None if unknown.
    """

    node: Node
    inputs: Sequence[TensorShape]
    outputs: Sequence[TensorShape]

    def input(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            UnknownCostError: the shape is unknown.
        """
        return _known_shape(self.inputs, index)

    def output(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an output; raises as ``input`` does."""
        return _known_shape(self.outputs, index)

    def input_elements(self, index: int = 0) -> int:
        """Return the number of an input's elements."""
        return math.prod(self.input(index))

    def output_elements(self, index: int = 0) -> int:
        """Return the number of an output's elements."""
        return math.prod(self.output(index))


def _known_shape(shapes: Sequence[TensorShape], index: int) -> tuple[int, ...]:
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or min(shape, default=0) < 0:
        raise UnknownCostError
    return shape


FlopRule = Callable[[Sizes], float]

flop_rules: OpRegistry[FlopRule] = OpRegistry("flop rule")
flop_rule = flop_rules.register
counted_ops = flop_rules.names


def count_flops(sizes: Sizes) -> int | None:
    """Count the operations of a node; None if its op or shapes do not determine them."""
    rule = flop_rules.find(sizes.node.op)
    if rule is None:
        return None
    try:
        return round(rule(sizes))
    except (UnknownCostError, InvalidGraphError, IndexError, ValueError, ArithmeticError):
        return None


def per_output(factor: float) -> FlopRule:
    """Create the rule of ops with a constant number of operations per output element."""
    if not factor:
        # Zero operations do not depend on the shape.
        return free

    def rule(sizes: Sizes) -> float:
        return factor * sizes.output_elements()

    return rule


def per_input(factor: float, index: int = 0) -> FlopRule:
    """Create the rule of ops with a constant number of operations per element of an input."""

    def rule(sizes: Sizes) -> float:
        return factor * sizes.input_elements(index)

    return rule


def free(sizes: Sizes) -> float:
    """Return 0, for ops that compute nothing."""
    return 0


def depends_on_values(sizes: Sizes) -> float:
    """Raise an error for ops whose cost depends on values instead of shapes."""
    raise UnknownCostError


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


context_kernels: OpRegistry[ContextKernel] = OpRegistry("op kernel with context")
find_context_kernel = context_kernels.find
context_kernel_names = context_kernels.names


def context_kernel(
    *ops: str, shape: ShapeFn | None = None, flops: FlopRule | None = None
) -> Callable[[ContextKernel], ContextKernel]:
    """Register a function as the kernel of ops with side effects or state, like ``kernel``."""
    declare(ops, shape, flops)
    return context_kernels.register(*ops)


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

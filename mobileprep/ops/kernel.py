"""Kernels of ops: a numpy function for each op that can be run."""

from __future__ import annotations

from collections.abc import Callable

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.cost import FlopRule, flop_rule
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

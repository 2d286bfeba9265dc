"""The registry of op kernels: one numpy function for each op that can be run."""

from __future__ import annotations

from collections.abc import Callable

from mobileprep.core.loading import Registry
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.modules import import_op, import_ops

Outputs = Array | tuple[Array, ...]
Kernel = Callable[..., Outputs]
"""``kernel(node, *inputs) -> output or tuple of outputs``.

Inputs are arrays that must not be written to, strings as object arrays of bytes, quantized types
as plain integers (the node's type attributes tell which). A kernel may return views of its inputs.
"""

registry: Registry[Kernel] = Registry("op kernel")


def kernel(*ops: str) -> Callable[[Kernel], Kernel]:
    """A decorator that makes a function the kernel of the named ops."""
    return registry.register(*ops)


def find_kernel(op: str) -> Kernel | None:
    """The kernel of an op, or None."""
    if op not in registry:
        import_op(op)
    return registry.get(op)


def kernel_names() -> list[str]:
    """The ops that can be run, sorted."""
    import_ops()
    return list(registry)


def call_kernel(run: Kernel, node: Node, inputs: list[Array]) -> tuple[Array, ...]:
    """A kernel's outputs, always as a tuple."""
    outputs = run(node, *inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)

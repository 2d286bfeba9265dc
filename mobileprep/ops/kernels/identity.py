"""Kernels of ops that pass tensors through, check them, or compute nothing."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel


@kernel(
    "DeepCopy",
    "EnsureShape",
    "GuaranteeConst",
    "Identity",
    "LoopCond",
    "PlaceholderWithDefault",
    "PreventGradient",
    "RefIdentity",
    "Snapshot",
    "StopGradient",
)
def identity(node: Node, x: Array, *rest: Array) -> Array:
    """The first input as it is."""
    if node.op == "EnsureShape":
        _check_shape(node, x)
    return x


@kernel("IdentityN")
def identity_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """All inputs as they are."""
    return inputs


@kernel("NoOp", "ControlTrigger")
def no_op(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """No outputs."""
    return ()


@kernel("CheckNumerics", "CheckNumericsV2")
def check_numerics(node: Node, x: Array) -> Array:
    """x as it is.

    Raises:
        InvalidGraphError: an element is infinite or no number.
    """
    if bool(np.isfinite(x).all()):
        return x
    found = "NaN" if bool(np.isnan(x).any()) else "Inf"
    message = f"node {node.name!r} ({node.op}) found {found}: {node.attr_str('message', '')}"
    raise InvalidGraphError(message, "check the values that are fed")


def _check_shape(node: Node, x: Array) -> None:
    shape = node.attr_shape("shape")
    if shape is None:
        return
    fits = len(shape) == x.ndim and all(
        wanted in (-1, given) for wanted, given in zip(shape, x.shape, strict=True)
    )
    if not fits:
        message = f"the shape {list(x.shape)} does not fit {list(shape)}"
        raise ValueError(message)

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
    "Print",
    "RefIdentity",
    "Snapshot",
    "StopGradient",
)
def identity(node: Node, x: Array, *rest: Array) -> Array:
    """The first input as it is; nothing is printed."""
    if node.op == "EnsureShape":
        _check_shape(node, x)
    return x


@kernel("IdentityN")
def identity_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """All inputs as they are."""
    return inputs


@kernel("NoOp", "ControlTrigger", "PrintV2")
def no_op(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """No outputs."""
    return ()


@kernel("Assert")
def assert_true(node: Node, condition: Array, *data: Array) -> tuple[Array, ...]:
    """No outputs.

    Raises:
        InvalidGraphError: the condition is false; the message shows the data.
    """
    if bool(np.all(condition)):
        return ()
    count = node.attr_int("summarize", 3)
    shown = " ".join(_summary(x, count) for x in data)
    message = f"the assertion {node.name!r} does not hold: {shown}"
    raise InvalidGraphError(message, "check the shapes and values that are fed")


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


def _summary(x: Array, count: int) -> str:
    first = x.ravel()[: max(count, 0)].tolist()
    return "[" + " ".join(_text(value) for value in first) + ("...]" if x.size > count else "]")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

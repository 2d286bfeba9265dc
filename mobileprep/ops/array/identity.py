"""Ops that pass tensors through, check them, or compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import declared_shape, no_outputs, unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import merge
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Up to this graph version an unknown shape could not be told from a scalar's.
_LAST_AMBIGUOUS_PRODUCER = 21


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


shape_fn("PlaceholderWithDefault")(declared_shape)


@shape_fn("EnsureShape")
def ensure_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape merged with the one that it is checked against."""
    return [merge(args.shapes[0], args.node.attr_shape("shape"))]


@shape_fn("LoopCond")
def loop_cond_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


shape_fn(
    "DeepCopy",
    "GuaranteeConst",
    "Identity",
    "PreventGradient",
    "RefIdentity",
    "Snapshot",
    "StopGradient",
)(unchanged)


flop_rule(
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
)(free)


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


shape_fn("ImmutableConst")(declared_shape)


@kernel("IdentityN")
def identity_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """All inputs as they are."""
    return inputs


@shape_fn("IdentityN")
def unchanged_all_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each output has its input's shape."""
    return args.shapes


flop_rule("IdentityN")(free)


@kernel("NoOp", "ControlTrigger")
def no_op(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """No outputs."""
    return ()


shape_fn("ControlTrigger", "NoOp")(no_outputs)


flop_rule("ControlTrigger", "NoOp")(free)


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


shape_fn("CheckNumerics", "CheckNumericsV2")(unchanged)


flop_rule("CheckNumerics", "CheckNumericsV2")(free)


shape_fn("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3")(unchanged)


@shape_fn("Const", "HostConst")
def const_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The value's shape."""
    return [args.node.attr_tensor("value").shape]


flop_rule("Const")(free)


@shape_fn("Placeholder", "PlaceholderV2")
def declared_once_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the node declares; a scalar, in old graphs, stands for any shape."""
    shape = args.node.attr_shape("shape")
    ambiguous = args.node.op == "Variable" or args.producer <= _LAST_AMBIGUOUS_PRODUCER
    return [None if shape == () and ambiguous else shape]


flop_rule("Placeholder", "PlaceholderV2")(free)

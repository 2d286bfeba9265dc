"""Ops that pass tensors through, check them, or compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import no_outputs, scalars_only, unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import merge
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel(
    *("DeepCopy", "GuaranteeConst", "Identity", "PreventGradient", "RefIdentity", "Snapshot"),
    "StopGradient",
)
def identity(node: Node, x: Array) -> Array:
    """x as it is."""
    return x


shape_fn(
    *("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "DeepCopy"),
    *("GuaranteeConst", "Identity", "PreventGradient", "RefIdentity", "Snapshot", "StopGradient"),
)(unchanged)


flop_rule(
    *("DeepCopy", "GuaranteeConst", "Identity", "PreventGradient", "RefIdentity", "Snapshot"),
    "StopGradient",
)(free)


@kernel("LoopCond")
def loop_cond(node: Node, condition: Array) -> Array:
    """The condition as it is."""
    return condition


shape_fn("LoopCond")(scalars_only)


flop_rule("LoopCond")(free)


@kernel("EnsureShape")
def ensure_shape(node: Node, x: Array) -> Array:
    """x as it is.

    Raises:
        ValueError: it does not have the shape that the attribute says.
    """
    shape = node.attr_shape("shape")
    if shape is None:
        return x
    fits = len(shape) == x.ndim and all(
        wanted in (-1, given) for wanted, given in zip(shape, x.shape, strict=True)
    )
    if not fits:
        message = f"the shape {list(x.shape)} does not fit {list(shape)}"
        raise ValueError(message)
    return x


@shape_fn("EnsureShape")
def ensure_shape_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape merged with the one that it is checked against."""
    return [merge(args.shapes[0], args.node.attr_shape("shape"))]


flop_rule("EnsureShape")(free)


@kernel("IdentityN")
def identity_n(node: Node, *inputs: Array) -> tuple[Array, ...]:
    """All inputs as they are."""
    return inputs


@shape_fn("IdentityN")
def identity_n_shape(args: ShapeArgs) -> Sequence[TensorShape]:
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

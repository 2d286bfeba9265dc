"""Computes one node whose inputs are constants, as TensorFlow does ahead of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mobileprep.core.limits import MEMORY_VARIABLE, OverWorkError
from mobileprep.errors import InvalidGraphError, MemoryLimitError, UnsupportedError, WorkLimitError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.numerics.allocation import OverBudgetError
from mobileprep.opdefs.definitions import any_op_def
from mobileprep.opdefs.signatures import output_types
from mobileprep.ops.effort import charge
from mobileprep.ops.kernel import Kernel, call_kernel, find_kernel
from mobileprep.ops.list_constants import constant_array, list_constant

# What numpy raises where sizes, indices or numbers do not go together.
_NUMERIC = (ValueError, IndexError, TypeError, ArithmeticError, MemoryError)

# The ops whose results the processor rounds; others only move numbers or compare them.
_ARITHMETIC = frozenset(
    {
        *("Add", "AddN", "AddV2", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd"),
        *("Conv2D", "Cumprod", "Cumsum", "DepthwiseConv2dNative", "Div", "DivNoNan", "Exp"),
        *("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "L2Loss", "MatMul", "Mean"),
        *("Mul", "MulNoNan", "Pow", "Prod", "RealDiv", "Rsqrt", "Sigmoid", "Softmax", "Sqrt"),
        *("Square", "SquaredDifference", "Sub", "Sum"),
    }
)


def evaluate_node(
    node: Node, inputs: Sequence[Tensor], *, tf115: Callable[[str], Kernel | None] | None = None
) -> tuple[Tensor, ...]:
    """The outputs of a node; an output that is an input unchanged is the same object.

    Arithmetic takes denormal numbers for zeros and makes none, as TensorFlow sets the processor.

    Args:
        node: the node.
        inputs: its inputs.
        tf115: the kernels of ops that TensorFlow 1.15 rounds in a way of its own, to do as it does.

    Raises:
        UnsupportedError: there is no kernel for the op, or none for what the node asks.
        InvalidGraphError: the inputs do not fit each other or the node.
        MemoryLimitError: the outputs would take more memory than there is to take.
        WorkLimitError: they would take more arithmetic than may be done.
    """
    if node.op == "Const":
        return (node.attr_tensor("value"),)
    run, definition = find_kernel(node.op), any_op_def(node.op)
    if tf115 is not None:
        run = tf115(node.op) or run
    if run is None or definition is None:
        message = f"node {node.name!r}: there is no kernel for {node.op}"
        raise UnsupportedError(message)
    arrays = [constant_array(t) for t in inputs]
    rounds = node.op in _ARITHMETIC
    try:
        with np.errstate(all="ignore"):
            outputs = call_kernel(run, node, list(map(_flushed, arrays)) if rounds else arrays)
        charge(node.op, arrays, outputs)
    except OverBudgetError as error:
        message = f"node {node.name!r} ({node.op}): {error}"
        hint = f"allow more by --memory or {MEMORY_VARIABLE}, or leave it out of what is folded"
        raise MemoryLimitError(message, hint) from error
    except OverWorkError as error:
        message = f"node {node.name!r} ({node.op}): {error}"
        raise WorkLimitError(message, "leave it out of what is folded") from error
    except _NUMERIC as error:
        message = f"node {node.name!r} ({node.op}) cannot be computed: {error}"
        raise InvalidGraphError(message, "its inputs do not fit each other") from error
    types = output_types(node, definition)
    _check_outputs(node, outputs, types)
    if rounds:
        return tuple(Tensor.of(_flushed(a), t) for a, t in zip(outputs, types, strict=True))
    if tf115 is not None and DType.VARIANT in types:
        return tuple(list_constant(node, a) for a in outputs)
    given = {id(a): t for a, t in zip(arrays, inputs, strict=True)}
    return tuple(_shared(a, t, given) for a, t in zip(outputs, types, strict=True))


def _check_outputs(node: Node, outputs: Sequence[Array], types: Sequence[DType]) -> None:
    """Refuse what contradicts a node's attributes, as texts behind a constant that says numbers."""
    if len(outputs) != len(types):
        message = f"node {node.name!r} ({node.op}) gives {len(outputs)} outputs, not {len(types)}"
        raise InvalidGraphError(message, "export the graph again")
    for array, dtype in zip(outputs, types, strict=True):
        if array.dtype == object and dtype.numpy is not None:
            message = f"node {node.name!r} ({node.op}) gives no {dtype.short}, as it says"
            raise InvalidGraphError(message, "export the graph again")


def _shared(array: Array, dtype: DType, given: dict[int, Tensor]) -> Tensor:
    same = given.get(id(array))
    return same if same is not None and same.dtype is dtype else Tensor.of(array, dtype)


def _flushed(array: Array) -> Array:
    """The array with zeros for its denormal numbers."""
    if array.dtype.kind != "f":
        return array
    denormal = np.abs(array) < np.finfo(array.dtype).tiny
    # Nearly no array has any.
    return np.where(denormal, np.copysign(0, array), array) if denormal.any() else array

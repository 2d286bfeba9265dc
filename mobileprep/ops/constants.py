"""Computes one node whose inputs are constants."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array, Tensor
from mobileprep.ops.kernel import call_kernel, find_kernel
from mobileprep.ops.opdefs import any_op_def
from mobileprep.ops.signature import output_types

# What numpy raises where sizes, indices or numbers do not go together.
_NUMERIC = (ValueError, IndexError, TypeError, ArithmeticError, MemoryError)


def evaluate_node(node: Node, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of a node; an output that is an input unchanged is the same object.

    Raises:
        UnsupportedError: there is no kernel for the op, or none for what the node asks.
        InvalidGraphError: the inputs do not fit each other or the node.
    """
    run, definition = find_kernel(node.op), any_op_def(node.op)
    if node.op == "Const":
        return (node.attr_tensor("value"),)
    if run is None or definition is None:
        message = f"node {node.name!r}: there is no kernel for {node.op}"
        raise UnsupportedError(message)
    arrays = [t.array() for t in inputs]
    try:
        outputs = call_kernel(run, node, arrays)
    except _NUMERIC as error:
        message = f"node {node.name!r} ({node.op}) cannot be computed: {error}"
        raise InvalidGraphError(message, "its inputs do not fit each other") from error
    types = output_types(node, definition)
    given = {id(a): t for a, t in zip(arrays, inputs, strict=True)}
    return tuple(_shared(out, t, given) for out, t in zip(outputs, types, strict=True))


def _shared(array: Array, dtype: DType, given: dict[int, Tensor]) -> Tensor:
    same = given.get(id(array))
    if same is not None and same.dtype is dtype:
        return same
    return Tensor.of(array, dtype)

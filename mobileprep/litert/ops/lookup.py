"""Lookup tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.initializers import TABLE
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import reshaped
from mobileprep.litert.tables import table_name
from mobileprep.litert.texts import FINDS, SIZES
from mobileprep.litert.types import NAMES

_PAIRS: Final = ((DType.STRING, DType.INT64), (DType.INT64, DType.STRING))


@lowering("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")
def table(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """HASHTABLE, with its entries as constants; one for all nodes of one name."""
    made = [op for op in scope.ops if op.code == TABLE and op.node is not None]
    for op in made:
        if op.node is not None and table_name(op.node) == table_name(node):
            return op.outputs[0]
    kinds = node.attr_dtype("key_dtype"), node.attr_dtype("value_dtype")
    if kinds not in _PAIRS:
        reason = (
            "LiteRT has tables from string to int64 and from int64 to string, "
            f"not from {kinds[0].short} to {kinds[1].short}"
        )
        raise CannotExpressError(reason, "look up in the app, and feed what its look-ups give")
    keys, values = scope.tables.contents(node)
    entries = [scope.constant(keys, "keys"), scope.constant(values, "values")]
    return scope.emit(
        TABLE,
        entries,
        (1,),
        DType.RESOURCE,
        "HashtableOptions",
        table_id=len(made),
        key_dtype=NAMES[kinds[0]],
        value_dtype=NAMES[kinds[1]],
    )


@lowering(*FINDS)
def find(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """HASHTABLE_FIND."""
    handle, keys, default = inputs
    _check_handle(handle)
    if default.shape != ():
        reason = "what missing keys have is no single value"
        raise CannotExpressError(reason, "make the default a scalar")
    shape, kind = keys.shape, node.attr_dtype("Tout")
    taken = (handle, keys, default)
    return scope.emit("HASHTABLE_FIND", taken, shape, kind, "HashtableFindOptions")


@lowering(*SIZES)
def size(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """HASHTABLE_SIZE, whose number LiteRT puts into a vector."""
    _check_handle(inputs[0])
    options = "HashtableSizeOptions"
    return reshaped(scope, scope.emit("HASHTABLE_SIZE", inputs, (1,), DType.INT64, options), ())


def _check_handle(handle: Value) -> None:
    if handle.name or handle.dtype is not DType.RESOURCE:
        reason = "its table is given to it"
        raise CannotExpressError(reason, "look up outside of loops and branches")

"""The nodes of a hash table that holds a column of mostly zeros, and of a look-up in it."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array, Tensor

# Elements below this are taken for zeros.
_LEAST: Final = 1.0e-5


def table_nodes(weights: Node, column: Array) -> tuple[str, list[Node]]:
    """The name of the table for a column, and the nodes that make and fill it, the filling last.

    Args:
        weights: the node that held the column.
        column: float32 of shape [N, 1].
    """
    flat = column.ravel()
    keys = np.flatnonzero(np.abs(flat.astype(np.float64)) >= _LEAST).astype(np.int64)
    values = flat[keys]
    if not len(keys):
        # A table cannot be filled from nothing.
        keys, values = np.zeros(1, np.int64), np.zeros(1, np.float32)
    indices = _constant(f"{weights.name}/indices", keys, DType.INT64)
    contents = _constant(f"{weights.name}/values", values, DType.FLOAT)
    types = {"key_dtype": attr.dtype(DType.INT64), "value_dtype": attr.dtype(DType.FLOAT)}
    table = Node(f"{weights.name}/HashTable", "HashTable", attrs=types)
    fill = Node(
        f"{weights.name}/InitializeTable",
        "InitializeTable",
        (Ref(table.name), Ref(indices.name), Ref(contents.name)),
        attrs={"Tkey": attr.dtype(DType.INT64), "Tval": attr.dtype(DType.FLOAT)},
    )
    return table.name, [indices, contents, table, fill]


def lookup_nodes(gather: Node, table: str) -> list[Node]:
    """The nodes that look up in a table what ``gather`` gathered, the last one under its name.

    Keys are int64; ids of another type are cast, which the original leaves out.
    """
    ids = gather.data_inputs[1]
    nodes = []
    ids_type = gather.attr_dtype("Tindices", DType.INT64)
    if ids_type is not DType.INT64:
        types = {"SrcT": attr.dtype(ids_type), "DstT": attr.dtype(DType.INT64)}
        nodes.append(Node(f"{gather.name}/Cast", "Cast", (ids,), attrs=types))
        ids = Ref(nodes[0].name)
    default = _constant(f"{gather.name}/Const", np.zeros((), np.float32), DType.FLOAT)
    lookup = Node(
        f"{gather.name}/LookupTableFind",
        "LookupTableFind",
        (Ref(table), ids, Ref(default.name)),
        attrs={"Tin": attr.dtype(DType.INT64), "Tout": attr.dtype(DType.FLOAT)},
    )
    axis = _constant(f"{gather.name}/ExpandDims/Const", np.int32(-1), DType.INT32)
    expand = Node(
        gather.name,
        "ExpandDims",
        (Ref(lookup.name), Ref(axis.name)),
        attrs={"T": attr.dtype(DType.FLOAT)},
    )
    return [*nodes, lookup, default, axis, expand]


def _constant(name: str, value: Array | np.int32, dtype: DType) -> Node:
    return constant(name, Tensor.of(value, dtype))

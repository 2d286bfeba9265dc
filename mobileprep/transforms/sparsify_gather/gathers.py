"""Find the lookups in a graph that hash tables can replace, and the contents of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.reachability import closure, nodes_of
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, refuse
from mobileprep.transforms.sparsify_gather.leftovers import Restored

_NAME: Final = "sparsify_gather"
_INPUTS: Final = {"Gather": 2, "GatherV2": 3}
_WEIGHTS: Final = frozenset({"Const", "Variable", "VariableV2"})
# Nodes of a variable besides its readers; none of them is part of a frozen model.
_SERVICES: Final = frozenset({"Assign", "SaveV2", "IsVariableInitialized"})
_NOT_FLOAT: Final = "its weights are not float32"
_NO_COLUMN: Final = "its weights have not the shape [N, 1]"
_OTHER_AXIS: Final = "it gathers along another axis than the first"
_USED_ELSEWHERE: Final = "its weights are used elsewhere too"


class _Gather(Struct, frozen=True):
    node: Node
    read: Node
    weights: Node


class Gathers:
    """The lookups of a graph that tables can replace.

    Args:
        graph: the graph.
        context: its outputs determine the needed nodes; with ``tf115``, a lookup that the original
            rejects is an error.
        restored: the values of its variables.

    Raises:
        TransformError: the original rejects a lookup, or the value of a variable is unavailable.
    """

    def __init__(self, graph: Graph, context: Context, restored: Restored) -> None:
        self._graph = graph
        self._context = context
        self._restored = restored
        self.skipped: Counter[str] = Counter()
        self.values: dict[str, Array] = {}
        """The elements of each weights node, float32 of shape [N, 1]."""
        fitting = [g for g in self._all() if self._fits(g)]
        alone = self._used_by_none_else(fitting)
        self.skipped.update(_USED_ELSEWHERE for g in fitting if g.weights.name not in alone)
        self.weights_of: Mapping[str, str] = {
            g.node.name: g.weights.name for g in fitting if g.weights.name in alone
        }
        """The weights node of each replaceable lookup."""
        self.count: Mapping[str, int] = Counter(self.weights_of.values())

    def _all(self) -> Iterator[_Gather]:
        for node in self._graph:
            tensors = node.data_inputs
            if len(tensors) != _INPUTS.get(node.op):
                continue
            read = self._graph[tensors[0].node]
            if read.op != "Identity" or len(read.data_inputs) != 1:
                continue
            weights = self._graph[read.data_inputs[0].node]
            if weights.op not in _WEIGHTS:
                continue
            if len(tensors) < 3 or self._graph[tensors[2].node].op == "Const":
                yield _Gather(node, read, weights)

    def _fits(self, gather: _Gather) -> bool:
        reason = self._misfit(gather)
        if not reason:
            return True
        if self._context.tf115:
            hint = "ignore_errors skips the step; in a recipe, the others are replaced"
            raise refuse(_NAME, f"node {gather.node.name!r}: {reason}", hint)
        self.skipped[reason] += 1
        return False

    def _misfit(self, gather: _Gather) -> str:
        node, weights = gather.node, gather.weights
        if node.op == "GatherV2":
            axis = self._graph[node.data_inputs[2].node].attr_tensor("value").array()
            if axis.size != 1 or axis.item() != 0 or node.attr_int("batch_dims", 0):
                return _OTHER_AXIS
        if weights.attr_dtype("dtype") is not DType.FLOAT:
            return _NOT_FLOAT
        if weights.name not in self.values:
            self.values[weights.name] = self._restored.value(weights)
        shape = self.values[weights.name].shape
        return "" if len(shape) == 2 and shape[1] == 1 else _NO_COLUMN

    def _used_by_none_else(self, gathers: list[_Gather]) -> frozenset[str]:
        """Return the weights that only these lookups need."""
        replaced = {g.node.name for g in gathers}
        reads = {g.read.name for g in gathers}
        weights = {g.weights.name for g in gathers}
        needed = self._needed(replaced)
        shared: set[str] = set(weights & self._context.protected)
        for gather in gathers:
            users = [c for c in self._users(gather.weights) if c.name not in reads]
            users += [c for c in self._users(gather.read) if c.name not in replaced]
            if gather.read.name in self._context.protected:
                shared.add(gather.weights.name)
            if any(c.name in needed and c.op not in _SERVICES for c in users):
                shared.add(gather.weights.name)
        return frozenset(weights - shared)

    def _needed(self, replaced: set[str]) -> set[str]:
        """Return the nodes that the outputs need, ignoring the weights of lookups."""
        if not self._context.outputs:
            return set(self._graph.by_name)

        def inputs(name: str) -> Iterator[str]:
            node = self._graph.get(name)
            refs = () if node is None else node.inputs[name in replaced :]
            return (r.node for r in refs)

        return closure(nodes_of(self._context.outputs), inputs)

    def _users(self, node: Node) -> list[Node]:
        return self._graph.consumers.get(node.name, [])


# Smaller elements are treated as zeros.
_LEAST: Final = 1.0e-5


def table_nodes(weights: Node, column: Array) -> tuple[str, list[Node]]:
    """Return the name of a column's table, and the nodes that create and fill it, filling last.

    Args:
        column: float32 of shape [N, 1].
    """
    flat = column.ravel()
    keys = np.flatnonzero(np.abs(flat.astype(np.float64)) >= _LEAST).astype(np.int64)
    values = flat[keys]
    if not len(keys):
        # A table cannot be filled from empty tensors.
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
    """Return the nodes that replace ``gather`` with a table lookup; the last one has its name.

    Keys are int64; ids of another type are cast, which the original omits.
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

"""Lookup tables of a graph: the keys and values that its nodes fill them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import FILLERS, TABLES
from mobileprep.graph.reachability import reachable
from mobileprep.graph.tensor import Array
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.ops.kernel import RunContext, find_context_kernel
from mobileprep.ops.numerics.texts import as_texts
from mobileprep.transforms.base import Context, make_transform

_READERS: Final = frozenset(
    f"LookupTable{what}{version}" for what in ("Find", "Size", "Export") for version in ("", "V2")
)
_MOST_BYTES: Final = 1 << 28
_IN_THE_APP: Final = "look up in the app, and feed what its look-ups give"


class Tables:
    """The lookup tables of a graph, evaluated on demand.

    Args:
        graph: the tables and the nodes that fill them.
        fillers: the nodes that fill each table, by ``table_name``.
        changing: the names of tables that other nodes may modify.
    """

    def __init__(
        self, graph: Graph, fillers: Mapping[str, Sequence[Node]], changing: frozenset[str]
    ) -> None:
        self._graph = graph
        self._fillers = fillers
        self._changing = changing

    def filling(self, graph: Graph) -> Graph:
        """Add the nodes that fill tables to a graph that was cut out of the whole one."""
        lacking = [node for node in self._graph if node.name not in graph]
        return graph.with_nodes([*graph, *lacking]) if lacking else graph

    def contents(self, table: Node) -> tuple[Array, Array]:
        """Return keys and values of a table, ``[count]`` each; strings are object arrays.

        Raises:
            CannotExpressError: the table is empty, or its contents are not constant.
        """
        name = table_name(table)
        fillers = self._fillers.get(name, ())
        if not fillers:
            reason = "nothing fills it before the graph runs"
            raise CannotExpressError(reason, "freeze the model with its tables")
        if table.op.startswith("Mutable") and (name in self._changing or len(fillers) > 1):
            reason = "its entries change while the graph runs"
            raise CannotExpressError(reason, _IN_THE_APP)
        context = RunContext()
        for filler in fillers:
            self._fill(context, table, filler)
        (resource,) = context.resources.values()
        if not resource.entries:
            reason = "it has no entries"
            raise CannotExpressError(reason, _IN_THE_APP)
        kinds = table.attr_dtype("key_dtype"), table.attr_dtype("value_dtype")
        keys, values = list(resource.entries), list(resource.entries.values())
        return _array(keys, kinds[0]), _array(values, kinds[1])

    def _fill(self, context: RunContext, table: Node, filler: Node) -> None:
        make, fill = find_context_kernel(table.op), find_context_kernel(filler.op)
        assert make is not None
        assert fill is not None
        constants = self._constants(filler)
        try:
            fill(context, filler, make(context, table), *constants)
        except CorruptFileError as error:
            name = Path(error.where).name
            hint = f"put {name!r} next to the model, or in a directory `assets` there"
            reason = f"{error.where} {error.message}"
            raise CannotExpressError(reason, hint) from error

    def _constants(self, filler: Node) -> list[Array]:
        """Return the constant inputs of a node that fills a table."""
        refs = filler.data_inputs[1:]
        fetches = tuple(dict.fromkeys(map(str, refs)))
        limit = {"max_constant_size_in_bytes": _MOST_BYTES}
        try:
            fold = make_transform("fold_constants", limit)
            graph = fold.apply(self._graph, Context((), fetches)).graph
        except TransformError:
            graph = self._graph
        nodes = [graph.get(ref.node) for ref in refs]
        constants = [
            n.attr_tensor("value").array() for n in nodes if n is not None and n.op == "Const"
        ]
        if len(constants) < len(refs):
            reason = f"{filler.name!r} fills it with values that are not constant"
            raise CannotExpressError(reason, _IN_THE_APP)
        return constants


def tables_of(graph: Graph) -> Tables:
    """Return the tables of a whole graph, before it is cut."""
    tables = {node.name: table_name(node) for node in graph if node.op in TABLES}
    fillers: dict[str, list[Node]] = {}
    changing = set()
    for node in graph if tables else ():
        for place, ref in enumerate(node.data_inputs):
            name = tables.get(ref.node)
            if name is not None and node.op in FILLERS and not place:
                fillers.setdefault(name, []).append(node)
            elif name is not None and node.op not in _READERS:
                changing.add(name)
    roots = [node.name for nodes in fillers.values() for node in nodes]
    needed = reachable(graph, roots, through_control=False)
    retained = [node.with_inputs(node.data_inputs) for node in graph if node.name in needed]
    return Tables(graph.with_nodes(retained), fillers, frozenset(changing))


def no_tables() -> Tables:
    """Return the tables of a graph without any."""
    return Tables(Graph([]), {}, frozenset())


def table_name(table: Node) -> str:
    """Return the name that identifies a table; nodes with the same name share one."""
    return table.attr_str("shared_name", "") or table.name


def _array(elements: Sequence[bytes | int], kind: DType) -> Array:
    if kind is DType.STRING:
        return as_texts([e for e in elements if isinstance(e, bytes)], (len(elements),))
    array = np.array(elements)
    if array.dtype != kind.numpy:
        message = f"its entries are of {array.dtype}, not of {kind.short}"
        raise ValueError(message)
    return array

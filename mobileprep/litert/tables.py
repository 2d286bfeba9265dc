"""What a graph's lookup tables hold, from the nodes that fill them before the graph runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import reachable
from mobileprep.ir.tensor import Array
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.numerics.texts import as_texts
from mobileprep.opdefs.table_ops import FILLERS, TABLES
from mobileprep.ops.context import RunContext, find_context_kernel
from mobileprep.transforms.base import Context, make_transform

_READERS: Final = frozenset(
    f"LookupTable{what}{version}" for what in ("Find", "Size", "Export") for version in ("", "V2")
)
_MOST_BYTES: Final = 1 << 28
_IN_THE_APP: Final = "look up in the app, and feed what its look-ups give"


class Tables:
    """The tables of a graph, filled when they are asked for.

    Args:
        graph: tables and all that fills them.
        fillers: the nodes that fill each table, by ``table_name``.
        changing: the names of tables that other nodes may change, if they can be changed.
    """

    def __init__(
        self, graph: Graph, fillers: Mapping[str, Sequence[Node]], changing: frozenset[str]
    ) -> None:
        self._graph = graph
        self._fillers = fillers
        self._changing = changing

    def filling(self, graph: Graph) -> Graph:
        """A graph that was cut out of the whole one, with what fills its tables, too."""
        lacking = [node for node in self._graph if node.name not in graph]
        return graph.with_nodes([*graph, *lacking]) if lacking else graph

    def contents(self, table: Node) -> tuple[Array, Array]:
        """Keys and values of a table, ``[count]`` each; texts are arrays of objects.

        Raises:
            CannotExpressError: they are not constant, or there are none, or their file is missing.
            InvalidGraphError: a line of their file does not fit the table.
            ValueError: a key has two values.
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
        (found,) = context.resources.values()
        if not found.entries:
            reason = "it has no entries"
            raise CannotExpressError(reason, _IN_THE_APP)
        kinds = table.attr_dtype("key_dtype"), table.attr_dtype("value_dtype")
        keys, values = list(found.entries), list(found.entries.values())
        return _array(keys, kinds[0]), _array(values, kinds[1])

    def _fill(self, context: RunContext, table: Node, filler: Node) -> None:
        make, fill = find_context_kernel(table.op), find_context_kernel(filler.op)
        assert make is not None
        assert fill is not None
        given = self._constants(filler)
        try:
            fill(context, filler, make(context, table), *given)
        except CorruptFileError as error:
            name = Path(error.where).name
            mend = f"put {name!r} beside the model, or in a directory `assets` there"
            reason = f"{error.where} {error.message}"
            raise CannotExpressError(reason, mend) from error

    def _constants(self, filler: Node) -> list[Array]:
        """What a node puts into a table."""
        taken = filler.data_inputs[1:]
        wanted = tuple(dict.fromkeys(map(str, taken)))
        limit = {"max_constant_size_in_bytes": _MOST_BYTES}
        try:
            fold = make_transform("fold_constants", limit)
            graph = fold.apply(self._graph, Context((), wanted)).graph
        except TransformError:
            graph = self._graph
        nodes = [graph.get(ref.node) for ref in taken]
        known = [n.attr_tensor("value").array() for n in nodes if n is not None and n.op == "Const"]
        if len(known) < len(taken):
            reason = f"{filler.name!r} fills it with what is no constant"
            raise CannotExpressError(reason, _IN_THE_APP)
        return known


def tables_of(graph: Graph) -> Tables:
    """The tables of a whole graph, before what its outputs do not need is cut off.

    Raises:
        InvalidGraphError: what fills one needs a node that is not there.
    """
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
    kept = [node.with_inputs(node.data_inputs) for node in graph if node.name in needed]
    return Tables(graph.with_nodes(kept), fillers, frozenset(changing))


def no_tables() -> Tables:
    """The tables of a graph that has none."""
    return Tables(Graph([]), {}, frozenset())


def table_name(table: Node) -> str:
    """What tells a table from others: nodes of one name share it."""
    return table.attr_str("shared_name", "") or table.name


def _array(elements: Sequence[bytes | int], kind: DType) -> Array:
    if kind is DType.STRING:
        return as_texts([e for e in elements if isinstance(e, bytes)], (len(elements),))
    made = np.array(elements)
    if made.dtype != kind.numpy:
        message = f"its entries are of {made.dtype}, not of {kind.short}"
        raise ValueError(message)
    return made

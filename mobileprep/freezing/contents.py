"""The contents of mutable lookup tables, which lie in the checkpoint as values of variables do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.freezing.model import LoadedSource
from mobileprep.freezing.restore import SavedValue, TableSource, imported_from
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.table_ops import TABLES

_MUTABLE: Final = frozenset(op for op in TABLES if op.startswith("Mutable"))
# The other kinds store whole buckets, or several values a key.
_PLAIN: Final = frozenset({"MutableHashTable", "MutableHashTableV2"})


@dataclass(frozen=True)
class Imported:
    """A graph with ops that import the contents of tables, and the names of those ops."""

    graph: Graph
    ops: tuple[str, ...] = ()


def with_contents(
    graph: Graph, roots: Iterable[str], filled: Sequence[str], source: LoadedSource, saver: str
) -> Imported:
    """The graph with the saved contents of each mutable table as constants, and ops to import them.

    Args:
        graph: functions taken apart.
        roots: node names; only tables that they need are looked at.
        filled: the ops that fill tables already; theirs are left alone.
        source: the model.
        saver: the op that restores a checkpoint in the graph.

    Raises:
        InvalidGraphError: the checkpoint lacks the contents of a table.
        UnsupportedError: a table is of another kind than MutableHashTable.
    """
    done = {graph[name].inputs[0].node for name in filled}
    needed = reachable(graph, roots)
    tables = [n for n in graph if n.op in _MUTABLE and n.name in needed and n.name not in done]
    if not tables or source.checkpoint is None:
        return Imported(graph)
    saved = imported_from(source.graph, saver)
    added: list[Node] = []
    ops: list[str] = []
    for table in tables:
        if table.name in saved:
            made = _import(graph, table, saved[table.name], source)
            added += made
            ops.append(made[-1].name)
    return Imported(graph.with_nodes([*graph, *added]), tuple(ops)) if added else Imported(graph)


def _import(graph: Graph, table: Node, saved: TableSource, source: LoadedSource) -> list[Node]:
    if table.op not in _PLAIN:
        message = f"the contents of the table {table.name!r} ({table.op}) lie in the checkpoint"
        hint = "export the model with a MutableHashTable or a StaticHashTable"
        raise UnsupportedError(message, hint, source.where)
    name = f"{table.name}/contents"
    while any(f"{name}/{part}" in graph for part in ("keys", "values", "import")):
        name += "_"
    keys, values = (_read(s, table, source) for s in (saved.keys, saved.values))
    inputs = Ref(table.name), Ref(f"{name}/keys"), Ref(f"{name}/values")
    return [
        constant(f"{name}/keys", keys),
        constant(f"{name}/values", values),
        Node(f"{name}/import", saved.op, inputs, "", saved.attrs),
    ]


def _read(place: SavedValue, table: Node, source: LoadedSource) -> Tensor:
    if source.checkpoint is None or place.key not in source.checkpoint:
        message = f"the checkpoint lacks the contents of the table {table.name!r} ({place.key!r})"
        raise InvalidGraphError(message, "graph and checkpoint are of different models")
    return Tensor.of(source.checkpoint.read(place.key, place.slice_spec))

"""Lookup tables: the ops that fill those that the outputs use, and the files they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.freezing.follow import upstream
from mobileprep.freezing.model import Asset
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Tensor
from mobileprep.opdefs.table_ops import FILLERS, READERS, TABLES

_INITIALIZERS: Final = READERS | {"InitializeTable", "InitializeTableV2"}
_IMMUTABLE: Final = frozenset({"HashTable", "HashTableV2"})


def has_tables(graph: Graph) -> bool:
    """Whether any node is a lookup table."""
    return any(n.op in TABLES for n in graph)


def filling_ops(graph: Graph, roots: Iterable[str], init_ops: Iterable[str]) -> tuple[str, ...]:
    """The ops that fill a table which the roots use, in graph order.

    They are those below ``init_ops``; for a table that these leave empty, its one initializer,
    wherever it is.

    Args:
        graph: functions taken apart.
        roots: node names.
        init_ops: the ops that a loader runs.
    """
    needed = reachable(graph, roots)
    tables = {name for name in needed if graph[name].op in TABLES}
    if not tables:
        return ()
    run = reachable(graph, init_ops)
    fillers = {
        node.name: node.inputs[0].node
        for node in graph
        if node.op in FILLERS and node.inputs and node.inputs[0].node in tables
    }
    filled = {table for name, table in fillers.items() if name in run}
    found = []
    for name, table in fillers.items():
        if name in run or (table not in filled and _fills_for_good(graph, graph[name])):
            filled.add(table)
            found.append(name)
    return tuple(found)


def initializers_of(graph: Graph) -> list[str]:
    """The ops at the top of a graph that fill a table for good."""
    return [n.name for n in graph if _fills_for_good(graph, n)]


def _fills_for_good(graph: Graph, node: Node) -> bool:
    if node.op not in FILLERS or not node.inputs:
        return False
    table = graph.get(node.inputs[0].node)
    return node.op in _INITIALIZERS or (table is not None and table.op in _IMMUTABLE)


def read_elsewhere(graph: Graph, ops: Iterable[str], assets: Sequence[Asset]) -> tuple[str, ...]:
    """The paths of files that ops read and that no asset is."""
    known = {parse_ref(a.tensor).node for a in assets}
    paths = []
    for name in ops:
        node = graph[name]
        if node.op not in READERS or len(node.data_inputs) < 2:
            continue
        file = next((n for n, _ in upstream(graph, node.inputs[1]) if n.op != "Identity"), None)
        if file is not None and file.op == "Const" and file.name not in known:
            held = file.attr_tensor("value").array().ravel()
            paths += [s.decode("utf-8", "replace") for s in held if isinstance(s, bytes)]
    return tuple(dict.fromkeys(paths))


def used_assets(graph: Graph, assets: Sequence[Asset]) -> tuple[Asset, ...]:
    """The assets whose tensors are in the graph.

    Raises:
        CorruptFileError: the file of one is missing.
    """
    found = tuple(a for a in assets if parse_ref(a.tensor).node in graph)
    for asset in found:
        if not asset.path.is_file():
            message = f"the asset {asset.name!r} is missing"
            raise CorruptFileError(message, "copy the whole folder of the model", str(asset.path))
    return found


def with_plain_paths(graph: Graph, assets: Sequence[Asset]) -> Graph:
    """The graph with the name of each asset as its path.

    Before, that path is a place where the model was trained, or missing.
    """
    names = {parse_ref(a.tensor).node: a.name for a in assets}
    if not names:
        return graph
    return graph.with_nodes([_named(n, names[n.name]) if n.name in names else n for n in graph])


def _named(node: Node, name: str) -> Node:
    value = Tensor.of(np.array(name.encode(), dtype=object))
    if node.op == "Const":
        return constant(node.name, value.reshaped(node.attr_tensor("value").shape), node.device)
    return constant(node.name, value, node.device) if node.op == "Placeholder" else node

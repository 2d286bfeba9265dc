"""Lookup tables: the ops that fill those that the outputs use, and the files they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.freeze.model import Asset
from mobileprep.freeze.subgraph import reachable
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Tensor

_TABLES: Final = frozenset(
    {
        "HashTable",
        "HashTableV2",
        "MutableHashTable",
        "MutableHashTableV2",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
    }
)
_FILL: Final = frozenset(
    {
        "InitializeTable",
        "InitializeTableV2",
        "InitializeTableFromTextFile",
        "InitializeTableFromTextFileV2",
        "LookupTableImport",
        "LookupTableImportV2",
        "LookupTableInsert",
        "LookupTableInsertV2",
    }
)


def has_tables(graph: Graph) -> bool:
    """Whether any node is a lookup table."""
    return any(n.op in _TABLES for n in graph)


def filling_ops(graph: Graph, roots: Iterable[str], init_ops: Iterable[str]) -> tuple[str, ...]:
    """The ops below ``init_ops`` that fill a table which the roots use, in graph order.

    Args:
        graph: functions taken apart.
        roots: node names.
        init_ops: the ops that a loader runs.
    """
    needed = reachable(graph, roots)
    tables = {name for name in needed if graph[name].op in _TABLES}
    if not tables:
        return ()
    run = reachable(graph, init_ops)
    return tuple(
        node.name
        for node in graph
        if node.op in _FILL and node.name in run and node.inputs and node.inputs[0].node in tables
    )


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

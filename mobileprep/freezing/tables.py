"""Lookup tables: the ops that fill those that the outputs use, and the files that they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.freezing.model import Asset, LoadedSource, SavedValue, TableSource, imported_from
from mobileprep.freezing.trace import upstream
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import FILLERS, READERS, TABLES
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.lookup.tables import Table, fill_from_file

_INITIALIZERS: Final = READERS | {"InitializeTable", "InitializeTableV2"}
_IMMUTABLE: Final = frozenset({"HashTable", "HashTableV2"})


def has_tables(graph: Graph) -> bool:
    return any(n.op in TABLES for n in graph)


def filling_ops(graph: Graph, roots: Iterable[str], init_ops: Iterable[str]) -> tuple[str, ...]:
    """Return the ops that fill a table that the roots use, in graph order.

    These are the fillers among the dependencies of ``init_ops``. A table that these do not fill
    gets its only initializer from anywhere in the graph.
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
    ops = []
    for name, table in fillers.items():
        if name in run or (table not in filled and _fills_for_good(graph, graph[name])):
            filled.add(table)
            ops.append(name)
    return tuple(ops)


def initializers_of(graph: Graph) -> list[str]:
    """Return the ops outside of functions that permanently fill a table."""
    return [n.name for n in graph if _fills_for_good(graph, n)]


def _fills_for_good(graph: Graph, node: Node) -> bool:
    if node.op not in FILLERS or not node.inputs:
        return False
    table = graph.get(node.inputs[0].node)
    return node.op in _INITIALIZERS or (table is not None and table.op in _IMMUTABLE)


def paths_elsewhere(graph: Graph, assets: Sequence[Asset]) -> dict[str, str]:
    """Return paths that ops read and that are not assets, by the constant with the path."""
    asset_nodes = {parse_ref(a.tensor).node for a in assets}
    paths = {}
    for node in graph:
        source = _path_source(graph, node)
        if source is not None and source.op == "Const" and source.name not in asset_nodes:
            value = source.attr_tensor("value").array()
            if value.size == 1 and isinstance(value.item(), bytes):
                paths[source.name] = value.item().decode("utf-8", "replace")
    return paths


def matching_assets(graph: Graph, assets: Sequence[Asset], files: Sequence[Path]) -> list[Asset]:
    """Return the files that ops read under another path as assets.

    A file matches a path with the same name; if several match, the one with the most similar
    directories is used.

    Raises:
        InvalidGraphError: if two files match equally well.
    """
    matches = []
    for name, path in paths_elsewhere(graph, assets).items():
        parts = path.replace("\\", "/").split("/")
        ranked = sorted(((_common_parts(parts, file), file) for file in files), reverse=True)
        if not ranked or not ranked[0][0]:
            continue
        if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
            message = f"both {ranked[1][1]} and {ranked[0][1]} match the path {path!r} of {name!r}"
            hint = "keep the files in directories of the same names as in the graph's paths"
            raise InvalidGraphError(message, hint)
        matches.append(Asset(f"{name}:0", ranked[0][1].name, ranked[0][1]))
    return matches


def _common_parts(parts: Sequence[str], file: Path) -> int:
    """Return the number of equal names at the ends of two paths."""
    equal = [a == b for a, b in zip(reversed(parts), reversed(file.parts), strict=False)]
    return next((i for i, same in enumerate(equal) if not same), len(equal))


def used_assets(graph: Graph, assets: Sequence[Asset]) -> tuple[Asset, ...]:
    """Return the assets whose tensors are in the graph.

    Raises:
        CorruptFileError: if the file of an asset does not exist.
    """
    graph_assets = tuple(a for a in assets if parse_ref(a.tensor).node in graph)
    for asset in graph_assets:
        if not asset.path.is_file():
            message = f"the asset {asset.name!r} is missing"
            raise CorruptFileError(message, "copy the whole folder of the model", str(asset.path))
    return graph_assets


def with_inlined_files(graph: Graph, assets: Sequence[Asset]) -> Graph:
    """Replace ops that read assets with constants of the contents of the files.

    An ``InitializeTable`` with the name of the op that read the file then fills the table, so that
    the app needs no file and no path. The nodes with the paths are kept.
    """
    paths = {parse_ref(a.tensor).node: a.path for a in assets}
    nodes: list[Node] = []
    for node in graph:
        source = _path_source(graph, node)
        if source is None or source.name not in paths:
            nodes.append(node)
        elif node.op == "ReadFile":
            content = Tensor.of(np.array(read_bytes(paths[source.name]), dtype=object))
            controls = tuple(ref for ref in node.inputs if ref.is_control)
            nodes.append(constant(node.name, content, node.device, controls))
        else:
            nodes += _filled_by_constants(graph, node, paths[source.name])
    return graph.with_nodes(nodes)


def _path_source(graph: Graph, node: Node) -> Node | None:
    """Return the node with the path that an op reads a file from; None for other ops."""
    if node.op not in (*READERS, "ReadFile") or not node.data_inputs:
        return None
    path = node.data_inputs[-1]
    return next((node for node, _ in upstream(graph, path) if node.op != "Identity"), None)


def _filled_by_constants(graph: Graph, reader: Node, path: Path) -> list[Node]:
    handle, *rest = reader.inputs
    node = graph.get(handle.node)
    if node is None or node.op not in TABLES:
        return [reader]
    table = Table(node.attr_dtype("key_dtype"), node.attr_dtype("value_dtype"))
    try:
        fill_from_file(table, reader, path)
        keys, values = table.contents()
    except (ValueError, OverflowError) as error:
        hint = "use the vocabulary that the model was trained with"
        raise InvalidGraphError(str(error), hint, str(path)) from error
    name = reader.name
    while any(f"{name}/{part}" in graph for part in ("keys", "values")):
        name += "_"
    filler = Node(
        reader.name,
        reader.op.replace("FromTextFile", ""),
        (
            handle,
            Ref(f"{name}/keys"),
            Ref(f"{name}/values"),
            *(ref for ref in rest if ref.is_control),
        ),
        reader.device,
        {
            **{key: value for key, value in reader.attrs.items() if key.startswith("_")},
            "Tkey": attr.dtype(table.key),
            "Tval": attr.dtype(table.value),
        },
    )
    return [
        constant(f"{name}/keys", Tensor.of(keys), reader.device),
        constant(f"{name}/values", Tensor.of(values), reader.device),
        filler,
    ]


def with_plain_paths(graph: Graph, assets: Sequence[Asset]) -> Graph:
    """Replace the path of each asset with its name.

    The original path exists only on the training machine, or is missing.
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


_MUTABLE: Final = frozenset(op for op in TABLES if op.startswith("Mutable"))
# Other kinds store whole buckets, or several values for each key.
_PLAIN: Final = frozenset({"MutableHashTable", "MutableHashTableV2"})


class Imported(Struct, frozen=True):
    """A graph with ops that import the contents of tables, and the names of these ops."""

    graph: Graph
    ops: tuple[str, ...] = ()


def with_contents(
    graph: Graph, roots: Iterable[str], filled: Sequence[str], source: LoadedSource, saver: str
) -> Imported:
    """Add the saved contents of each mutable table as constants, with import ops."""
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
            nodes = _import(graph, table, saved[table.name], source)
            added += nodes
            ops.append(nodes[-1].name)
    return Imported(graph.with_nodes([*graph, *added]), tuple(ops)) if added else Imported(graph)


def _import(graph: Graph, table: Node, saved: TableSource, source: LoadedSource) -> list[Node]:
    if table.op not in _PLAIN:
        message = f"the contents of the table {table.name!r} ({table.op}) are in the checkpoint"
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

"""Parts that engines share: extracted graphs, libraries, and lookup tables."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError, UsageError, nearest_hint
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import FILLERS, READERS, output_types, signature_of
from mobileprep.graph.refs import FreshNames, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.ops.numerics.texts import one_text
from mobileprep.runtime.interpreter import checked_feed
from mobileprep.runtime.selection import needed_nodes


class Subgraph(Struct, frozen=True):
    """A graph whose placeholders have the fed shapes, and whose last nodes are the fetches.

    Args:
        graph: the graph.
        inputs: the placeholder for each feed, in their order.
        outputs: the last node for each fetch, in their order.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def known_ref(graph: Graph, name: str, what: str, where: str) -> Ref:
    """Parse the name of a tensor and check that it is in the graph."""
    ref = parse_ref(name)
    if ref.node not in graph or ref.is_control:
        message = f"the {what} {name!r} is not in the graph"
        raise UsageError(message, nearest_hint(ref.node, graph.by_name), where)
    return ref


def checked_feeds(graph: Graph, feeds: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Check the names, types, and shapes of feeds."""
    return {
        name: checked_feed(graph, known_ref(graph, name, "feed", where), array, where)
        for name, array in feeds.items()
    }


def cut_out(
    graph: Graph, fetches: Sequence[str], feeds: Mapping[str, Array], where: str
) -> Subgraph:
    """Extract the part of a graph that computes ``fetches`` from ``feeds``.

    Args:
        feeds: checked arrays, of which only types and shapes are used.
    """
    fetch_refs = [known_ref(graph, name, "fetch", where) for name in fetches]
    feed_refs = [known_ref(graph, name, "feed", where) for name in feeds]
    nodes = nodes_to_run(graph, fetch_refs, feed_refs, where)
    names = FreshNames(n.name for n in nodes)
    inputs = {edge(r): names.name(f"feed_{i}") for i, r in enumerate(feed_refs)}
    outputs = tuple(names.name(f"fetch_{i}") for i in range(len(fetch_refs)))

    there = {n.name for n in nodes}

    def moved(ref: Ref) -> Ref:
        name = None if ref.is_control else inputs.get(edge(ref))
        return ref if name is None else Ref(name, 0)

    def inputs_of(node: Node) -> tuple[Ref, ...]:
        # Control dependencies on fed nodes are dropped.
        return tuple(moved(r) for r in node.inputs if not r.is_control or r.node in there)

    placeholders = [
        _placeholder(inputs[edge(r)], array)
        for r, array in zip(feed_refs, feeds.values(), strict=True)
    ]
    body = [replace(n, inputs=inputs_of(n)) for n in nodes]
    ends = [
        Node(name, "Identity", (moved(r),), attrs={"T": attr.dtype(_type(graph, r, where))})
        for name, r in zip(outputs, fetch_refs, strict=True)
    ]
    return Subgraph(
        graph.with_nodes([*placeholders, *body, *ends]), tuple(inputs.values()), outputs
    )


def nodes_to_run(
    graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str
) -> list[Node]:
    """Return the nodes that compute ``fetches`` from ``feeds``; all placeholders must be fed."""
    nodes = needed_nodes(graph, fetches, {edge(r) for r in feeds}, where)
    unfed = [n.name for n in nodes if n.op in PLACEHOLDERS]
    if unfed:
        message = f"nothing is fed to the placeholder {unfed[0]!r}"
        raise UsageError(message, "feed every placeholder that the outputs need", where)
    return nodes


def _placeholder(name: str, array: Array) -> Node:
    dtype = dtype_from_numpy(array.dtype) or DType.INVALID
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(array.shape)}
    return Node(name, "Placeholder", attrs=attrs)


def _type(graph: Graph, ref: Ref, where: str) -> DType:
    node = graph[ref.node]
    definition = signature_of(node, graph.library)
    types = output_types(node, definition) if definition is not None else []
    if ref.index >= len(types):
        message = f"the fetch {str(ref)!r} is not in the graph"
        raise UsageError(message, f"{ref.node!r} has {len(types)} outputs", where)
    return types[ref.index].base


def import_library(module: str, title: str, install: str) -> Any:  # noqa: ANN401 - anything
    """Import an optional library."""
    # Their logging keeps the stderr of the import, which a stage redirects only temporarily.
    lasting = sys.__stderr__ or sys.stderr
    try:
        with contextlib.redirect_stderr(lasting):
            return importlib.import_module(module)
    except ImportError as error:
        if error.name == module.partition(".")[0] or error.name == module:
            message = f"{title} is not installed"
        else:
            message = f"{title} cannot be imported: {error}"
        raise UnsupportedError(message, install) from error


class TableFiller:
    """Finds the nodes that must run once before a computation to fill lookup tables.

    Insertions while the graph runs, such as the words of its inputs, do not count.

    Args:
        graph: the graph.
        where: its name in messages.
    """

    def __init__(self, graph: Graph, where: str) -> None:
        self._graph = graph
        self._where = where
        self._pending = {n.name: n for n in graph if n.op in FILLERS and n.data_inputs}

    def due(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> Collection[str]:
        """Return the nodes that fill tables that are needed for the first time."""
        if not self._pending:
            return ()
        refs = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {edge(known_ref(self._graph, name, "feed", self._where)) for name in feeds}
        needed = {n.name for n in needed_nodes(self._graph, refs, fed, self._where)}
        due = [n for n in self._pending.values() if n.data_inputs[0].node in needed]
        for node in due:
            del self._pending[node.name]
        return [n.name for n in due if self._is_ready(n)]

    def _is_ready(self, node: Node) -> bool:
        """Return whether a node does not depend on placeholders."""
        needed = needed_nodes(self._graph, [Ref(node.name, 0)], set(), self._where)
        return not any(n.op in PLACEHOLDERS for n in needed)


_FOLDER = "assets"


_PASSING = frozenset({"Identity", "StopGradient", "Snapshot"})


def folders_near(path: Path) -> tuple[Path, ...]:
    """Return the directories where a graph's files may be: its own, and ``assets`` in it."""
    return path.parent, path.parent / _FOLDER


def with_found_assets(graph: Graph, folders: Sequence[Path]) -> Graph:
    """Replace each file name that a graph reads by the path of the file.

    Relative paths are searched in the directories. Paths that do not exist, such as absolute paths
    of the machine that trained the model, are searched by file name alone.

    Args:
        folders: directories to search, in this order. Files that are not found keep their names,
            which the engine resolves from the working directory.
    """
    paths = {
        node.name: path
        for node in _named_files(graph)
        if (path := _asset_path(node, folders)) is not None
    }
    if not paths:
        return graph
    return graph.with_nodes([_at(n, paths[n.name]) if n.name in paths else n for n in graph])


def _named_files(graph: Graph) -> list[Node]:
    """Return the constants that name files to read."""
    named = [
        _origin(graph, node.data_inputs[1])
        for node in graph
        if node.op in READERS and len(node.data_inputs) > 1
    ]
    return [node for node in named if node is not None and node.op == "Const"]


def _origin(graph: Graph, ref: Ref) -> Node | None:
    """Return the node that a tensor comes from, behind identities."""
    seen: set[str] = set()
    node = graph.get(ref.node)
    while node is not None and node.op in _PASSING and node.data_inputs:
        if node.name in seen:
            return None
        seen.add(node.name)
        node = graph.get(node.data_inputs[0].node)
    return node


def _asset_path(node: Node, folders: Sequence[Path]) -> Path | None:
    value = node.attr_tensor("value").array()
    if value.size != 1 or value.dtype != object:
        return None
    name = one_text(value).decode("utf-8", "surrogateescape")
    base = re.split(r"[/\\]", name)[-1]
    if "\0" in name or not base:
        return None
    try:
        if PurePath(name).is_absolute() and Path(name).is_file():
            return None
        # An absolute name replaces the directory.
        paths = (folder / part for part in (name, base) for folder in folders)
        return next((path for path in paths if path.is_file()), None)
    except OSError:  # not a valid file name, such as a very long one
        return None


def _at(node: Node, path: Path) -> Node:
    text = np.array(str(path.absolute()).encode("utf-8", "surrogateescape"), dtype=object)
    shape = node.attr_tensor("value").shape
    return constant(node.name, Tensor.of(text).reshaped(shape), node.device)

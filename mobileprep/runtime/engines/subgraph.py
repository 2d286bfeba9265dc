"""What engines share: cut graphs, libraries, and lookup tables."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError, UsageError, nearest_hint
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.opdefs.definitions import FILLERS, output_types, signature_of
from mobileprep.graph.refs import FreshNames, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import checked_feed
from mobileprep.runtime.selection import needed_nodes


class Subgraph(Struct, frozen=True):
    """A graph whose placeholders have the fed shapes, and whose ends are the fetches.

    Args:
        graph: the graph.
        inputs: the placeholder for each feed, in their order.
        outputs: the last node for each fetch, in their order.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def known_ref(graph: Graph, name: str, what: str, where: str) -> Ref:
    """The reference to a tensor of the graph."""
    ref = parse_ref(name)
    if ref.node not in graph or ref.is_control:
        message = f"the {what} {name!r} is not in the graph"
        raise UsageError(message, nearest_hint(ref.node, graph.by_name), where)
    return ref


def checked_feeds(graph: Graph, feeds: Mapping[str, Array], where: str) -> dict[str, Array]:
    """The fed arrays, their names, types and shapes checked."""
    return {
        name: checked_feed(graph, known_ref(graph, name, "feed", where), array, where)
        for name, array in feeds.items()
    }


def cut_out(
    graph: Graph, fetches: Sequence[str], feeds: Mapping[str, Array], where: str
) -> Subgraph:
    """What has to run for ``fetches`` when ``feeds`` are given.

    Args:
        feeds: arrays for tensors, checked, of which only types and shapes are looked at.
    """
    wanted = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = [known_ref(graph, name, "feed", where) for name in feeds]
    nodes = nodes_to_run(graph, wanted, fed, where)
    names = FreshNames(n.name for n in nodes)
    inputs = {edge(r): names.name(f"feed_{i}") for i, r in enumerate(fed)}
    outputs = tuple(names.name(f"fetch_{i}") for i in range(len(wanted)))

    there = {n.name for n in nodes}

    def moved(ref: Ref) -> Ref:
        name = None if ref.is_control else inputs.get(edge(ref))
        return ref if name is None else Ref(name, 0)

    def inputs_of(node: Node) -> tuple[Ref, ...]:
        # What waits for a node that is fed has nothing to wait for.
        return tuple(moved(r) for r in node.inputs if not r.is_control or r.node in there)

    placeholders = [
        _placeholder(inputs[edge(r)], array) for r, array in zip(fed, feeds.values(), strict=True)
    ]
    body = [replace(n, inputs=inputs_of(n)) for n in nodes]
    ends = [
        Node(name, "Identity", (moved(r),), attrs={"T": attr.dtype(_type(graph, r, where))})
        for name, r in zip(outputs, wanted, strict=True)
    ]
    return Subgraph(
        graph.with_nodes([*placeholders, *body, *ends]), tuple(inputs.values()), outputs
    )


def nodes_to_run(
    graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str
) -> list[Node]:
    """The nodes that ``fetches`` need besides ``feeds``, which include every placeholder."""
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
    """A module of an optional library."""
    # Their logging keeps the standard error that it finds, which a stage has for a time only.
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
    """Tells which nodes have to run once before a computation; none in a graph without tables.

    What a graph enters while it runs, such as the words that it is fed, does not count.

    Args:
        graph: the graph.
        where: what it is called, for messages.
    """

    def __init__(self, graph: Graph, where: str) -> None:
        self._graph = graph
        self._where = where
        self._left = {n.name: n for n in graph if n.op in FILLERS and n.data_inputs}

    def due(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> Collection[str]:
        """The nodes that fill tables which are needed now and were not needed before."""
        if not self._left:
            return ()
        wanted = [known_ref(self._graph, name, "fetch", self._where) for name in fetches]
        fed = {edge(known_ref(self._graph, name, "feed", self._where)) for name in feeds}
        needed = {n.name for n in needed_nodes(self._graph, wanted, fed, self._where)}
        due = [n for n in self._left.values() if n.data_inputs[0].node in needed]
        for node in due:
            del self._left[node.name]
        return [n.name for n in due if self._is_ready(n)]

    def _is_ready(self, node: Node) -> bool:
        """Whether nothing has to be fed for it."""
        needed = needed_nodes(self._graph, [Ref(node.name, 0)], set(), self._where)
        return not any(n.op in PLACEHOLDERS for n in needed)

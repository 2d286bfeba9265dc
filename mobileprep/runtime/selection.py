"""Selection and order of the nodes that a run needs, and a survey of them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UnsupportedError, UsageError, nearest_hint
from mobileprep.graph.frames import Frame, Frames
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import MERGES, NEXT_ITERATIONS, PLACEHOLDERS
from mobileprep.graph.refs import CONTROL, Edge, Ref, edge

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "VarIsInitializedOp"})


def needed_nodes(graph: Graph, fetches: Iterable[Ref], fed: set[Edge], where: str) -> list[Node]:
    """Return the nodes that have to run for ``fetches``, each after its inputs, depth first.

    Depth first, because tensors of one branch should not wait for another branch. Edges that close
    while loops do not count: their sources may come later.
    """
    # Control dependencies on fed nodes are fulfilled.
    fed = fed | {(name, CONTROL) for name, _ in fed}
    order: dict[str, Node] = {}
    entered: set[str] = set()
    roots = [r.node for r in reversed(list(fetches)) if (r.node, r.index) not in fed]
    stack = [(graph[name], False) for name in roots]
    closing: list[Node] = []
    while stack or closing:
        if not stack:
            stack.append((closing.pop(), False))
        node, inputs_done = stack.pop()
        if inputs_done:
            order[node.name] = node
            continue
        if node.name in entered:
            continue
        entered.add(node.name)
        stack.append((node, True))
        for ref in reversed(node.inputs):
            if (ref.node, ref.index) in fed or ref.node in order:
                continue
            producer = _producer(graph, node, ref, where)
            if closes_loop(node, producer):
                closing.append(producer)
            else:
                stack.append((producer, False))
    _check_order(order, fed, where)
    return list(order.values())


def closes_loop(consumer: Node, producer: Node) -> bool:
    """Return whether a tensor returns to the head of a while loop."""
    return consumer.op in MERGES and producer.op in NEXT_ITERATIONS


def _producer(graph: Graph, node: Node, ref: Ref, where: str) -> Node:
    producer = graph.get(ref.node)
    if producer is None:
        message = f"node {node.name!r} ({node.op}) takes {str(ref)!r}, which does not exist"
        raise InvalidGraphError(message, nearest_hint(ref.node, graph.by_name), where)
    return producer


def _check_order(order: dict[str, Node], fed: set[Edge], where: str) -> None:
    """Check that every input comes before its consumer, which a cycle prevents."""
    done: set[str] = set()
    for node in order.values():
        for ref in node.inputs:
            if ref.node in done or (ref.node, ref.index) in fed:
                continue
            if not closes_loop(node, order[ref.node]):
                message = f"nodes {node.name!r} and {ref.node!r} feed each other in a circle"
                raise InvalidGraphError(message, "export the graph again", where)
        done.add(node.name)


def refuse(lacking: Sequence[Node], where: str) -> None:
    """Raise an error if nodes that may have to run have no kernel."""
    unfed = [n for n in lacking if n.op in PLACEHOLDERS]
    if unfed:
        names = ", ".join(repr(n.name) for n in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {names}"
        raise UsageError(message, "feed every placeholder that the outputs need", where)
    if lacking:
        raise _unsupported(lacking, where)


def _unsupported(lacking: Sequence[Node], where: str) -> UnsupportedError:
    first = lacking[0]
    message = f"node {first.name!r} has the op {first.op!r}, which cannot be run here"
    if len(lacking) > 1:
        ops = ", ".join(sorted({n.op for n in lacking}))
        message += f" (of the {len(lacking)} nodes that cannot, the ops are {ops})"
    hint = (
        "use an engine that has the op, feed the output of the node, or leave out the steps of a "
        "build that run the model (`check`, `validation`, `calibration`)"
    )
    if any(n.op in _VARIABLES for n in lacking):
        hint = "turn variables into constants first: mobileprep freeze"
    return UnsupportedError(message, hint, where)


Unit = Node | Frame


def ordered_units(frame: Frame, frames: Frames, where: str) -> Sequence[Unit]:
    """Return a frame's nodes and its direct loops, each after its inputs."""
    if not frame.children:
        return frame.nodes
    nodes = {n.name: n for f in (frame, *_within(frame)) for n in f.nodes}
    units: list[Unit] = [*frame.nodes, *frame.children]
    number = {id(unit): i for i, unit in enumerate(units)}

    def unit_of(name: str) -> int | None:
        """Return the unit of this frame that contains a node, or None for a node outside."""
        node = nodes.get(name)
        if node is None:
            return None
        inner = frames.of_node[name]
        if inner is frame:
            return number[id(node)]
        while inner.parent is not frame:
            inner = inner.parent or frame
        return number[id(inner)]

    needs: list[set[int]] = []
    for i, unit in enumerate(units):
        producers = {unit_of(r.node) for r in unit_inputs(unit, nodes)}
        needs.append({n for n in producers if n is not None and n != i})
    return [units[i] for i in _sorted(needs, where)]


def unit_inputs(unit: Unit, nodes: dict[str, Node]) -> Iterable[Ref]:
    """Yield the inputs of a node, or of all nodes of a loop, without edges that close a loop."""
    members = (
        [unit] if isinstance(unit, Node) else [n for f in (unit, *_within(unit)) for n in f.nodes]
    )
    for node in members:
        for ref in node.inputs:
            producer = nodes.get(ref.node)
            if producer is None or not closes_loop(node, producer):
                yield ref


def _within(frame: Frame) -> list[Frame]:
    """Return all loops within a frame, at any depth."""
    return [f for child in frame.children for f in (child, *_within(child))]


def _sorted(needs: Sequence[set[int]], where: str) -> list[int]:
    """Sort indices topologically, with the smallest first among the ready ones."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        message = "a while loop depends on its own output"
        raise InvalidGraphError(message, "export the graph again", where) from error
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        sorter.done(i)
        for after in sorter.get_ready():
            heapq.heappush(ready, after)
    return order


class Survey(Struct, frozen=True):
    """Nodes and their relations.

    Args:
        nodes: the nodes by name.
        frames: the frame of each node.
        readers: the consumers of each node's tensors.
        indices: for each node, the outputs that are read and not fed.
        controls: the nodes that are control inputs of others.
        fed: the fed tensors.
        combine: whether to compute constants ahead.
        watched: tensors to report when they are computed.
        where: the graph's name, for messages.
    """

    nodes: dict[str, Node]
    frames: Frames
    readers: dict[str, list[Node]]
    indices: dict[str, list[int]]
    controls: Collection[str]
    fed: Collection[Edge]
    combine: bool
    watched: Collection[Edge]
    where: str

    def is_head(self, node: Node) -> bool:
        """Return whether a node is a Merge at the head of a loop."""
        return any(
            closes_loop(node, self.nodes[r.node]) for r in node.data_inputs if r.node in self.nodes
        )


def survey(
    nodes: Sequence[Node],
    fed: Collection[Edge],
    fetches: Collection[Edge],
    where: str,
    *,
    combine: bool,
    watched: Collection[Edge],
) -> Survey:
    """Survey nodes, each of which comes after its inputs."""
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in {r.node for r in node.data_inputs}:
            readers.setdefault(name, []).append(node)
    read = {edge(r) for n in nodes for r in n.data_inputs} | set(fetches)
    indices: dict[str, list[int]] = {}
    for name, index in sorted(read - set(fed)):
        indices.setdefault(name, []).append(index)
    return Survey(
        {n.name: n for n in nodes},
        Frames(nodes, fed, where),
        readers,
        indices,
        {r.node for n in nodes for r in n.control_inputs},
        fed,
        combine,
        watched,
        where,
    )


def malformed_head(node: Node, where: str) -> InvalidGraphError:
    """Create the error for a Merge with a loop edge that is not the head of a loop."""
    message = (
        f"node {node.name!r} ({node.op}) does not join the first value of a loop with later ones"
    )
    return InvalidGraphError(message, "export the graph again", where)

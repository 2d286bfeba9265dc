"""The order of a frame's nodes and of the loops within it, each loop taken as a whole."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.frames import Frame, Frames
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.runtime.selection import closes_loop

Unit = Node | Frame


def ordered_units(frame: Frame, frames: Frames, where: str) -> Sequence[Unit]:
    """A frame's nodes and the loops directly within, each after what it needs.

    Raises:
        InvalidGraphError: a loop needs what comes out of it.
    """
    if not frame.children:
        return frame.nodes
    nodes = {n.name: n for f in (frame, *_within(frame)) for n in f.nodes}
    units: list[Unit] = [*frame.nodes, *frame.children]
    number = {id(unit): i for i, unit in enumerate(units)}

    def unit_of(name: str) -> int | None:
        """The unit of this frame that a node belongs to, or None for a node outside."""
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
        found = {unit_of(r.node) for r in unit_inputs(unit, nodes)}
        needs.append({n for n in found if n is not None and n != i})
    return [units[i] for i in _sorted(needs, where)]


def unit_inputs(unit: Unit, nodes: dict[str, Node]) -> Iterable[Ref]:
    """What a node, or any node of a loop, takes; edges that close a loop left out."""
    members = (
        [unit] if isinstance(unit, Node) else [n for f in (unit, *_within(unit)) for n in f.nodes]
    )
    for node in members:
        for ref in node.inputs:
            producer = nodes.get(ref.node)
            if producer is None or not closes_loop(node, producer):
                yield ref


def _within(frame: Frame) -> list[Frame]:
    """All loops within a frame, at any depth."""
    return [f for child in frame.children for f in (child, *_within(child))]


def _sorted(needs: Sequence[set[int]], where: str) -> list[int]:
    """Numbers in an order that meets their needs, the smallest first where there is a choice."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        message = "a while loop needs what comes out of it"
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

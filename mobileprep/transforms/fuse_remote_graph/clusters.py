"""Parts of a graph that become one node, and the tensors that go into and out of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import VARINT, delimited, encode_varint
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Ref
from mobileprep.graph.serde import graph_to_bytes


class Cluster(Struct, frozen=True):
    """A part of a graph; its tensors are spelt as the user or, with all numbers, the tool does.

    Args:
        nodes: the names of its nodes.
        inputs: the tensors that its nodes take from others.
        outputs: the tensors that others, or nobody, take from its nodes.
    """

    nodes: frozenset[str]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


def connected_parts(graph: Graph, chosen: Collection[str]) -> list[Cluster]:
    """The chosen nodes, those that feed each other together, in stored order."""
    place = {n.name: i for i, n in enumerate(graph)}
    done: set[str] = set()
    parts: list[Cluster] = []
    for node in graph:
        if node.name in chosen and node.name not in done:
            members = _component(graph, node.name, chosen)
            done |= members
            parts.append(_with_borders(graph, sorted(members, key=place.__getitem__)))
    return parts


def part_between(graph: Graph, inputs: Sequence[Ref], outputs: Sequence[Ref]) -> Cluster:
    """All nodes that the outputs need, up to the inputs."""
    nodes, _ = needed(graph, inputs, outputs)
    return Cluster(frozenset(nodes), tuple(inputs), tuple(outputs))


def needed(
    graph: Graph, inputs: Sequence[Ref], outputs: Sequence[Ref]
) -> tuple[set[str], set[str]]:
    """The nodes that the outputs need, and those of the inputs that they come down to."""
    given = set(inputs)
    waiting = [r.node for r in outputs]
    seen, borders = set(waiting), set[str]()
    while waiting:
        for ref in graph[waiting.pop()].inputs:
            if ref in given:
                borders.add(ref.node)
            if ref.node in seen:
                continue
            seen.add(ref.node)
            if ref not in given:
                waiting.append(ref.node)
    return seen - borders, borders


def _component(graph: Graph, start: str, chosen: Collection[str]) -> set[str]:
    def around(name: str) -> Iterator[str]:
        beside = [r.node for r in graph[name].inputs]
        beside += [n.name for n in graph.consumers.get(name, ())]
        return (other for other in beside if other in chosen)

    return closure([start], around)


def _with_borders(graph: Graph, names: Sequence[str]) -> Cluster:
    members = frozenset(names)
    inputs: dict[Ref, None] = {}
    outputs: dict[Ref, None] = {}
    for node in map(graph.by_name.__getitem__, names):
        inputs.update((_explicit(r), None) for r in node.data_inputs if r.node not in members)
        outputs.update((_explicit(r), None) for r in _taken(graph, node, members))
    return Cluster(members, tuple(inputs), tuple(outputs))


def _taken(graph: Graph, node: Node, members: Collection[str]) -> list[Ref]:
    consumers = graph.consumers.get(node.name, ())
    if not consumers:
        return [Ref(node.name)]
    outside = (c for c in consumers if c.name not in members)
    return [r for c in outside for r in c.data_inputs if r.node == node.name]


def _explicit(ref: Ref) -> Ref:
    return Ref(ref.node, ref.index, explicit=True)


Record = tuple[DType, tuple[int, ...]]
"""A tensor's type and shape."""


def execute_info(
    part: Graph,
    executor: str,
    inputs: Sequence[tuple[str, Record | None]],
    outputs: Sequence[tuple[str, Record | None]],
) -> bytes:
    """The serialized message.

    Args:
        inputs: the tensors that go in, with their types and shapes where they are recorded.
    """
    return b"".join(
        [
            delimited(1, graph_to_bytes(part)),
            *(delimited(2, name.encode()) for name, _ in inputs),
            *(delimited(3, name.encode()) for name, _ in outputs),
            delimited(4, executor.encode()),
            *(delimited(6, _type_and_shape(record)) for _, record in inputs if record),
            *(delimited(7, _type_and_shape(record)) for _, record in outputs if record),
        ]
    )


def _type_and_shape(record: Record) -> bytes:
    dtype, shape = record
    sizes = b"".join(delimited(2, _number(1, size) if size else b"") for size in shape)
    return _number(1, dtype) + delimited(2, sizes)


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3 | VARINT) + encode_varint(value)

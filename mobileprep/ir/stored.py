"""Graphs whose large tensors lie in files of their own, named by their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mobileprep.formats.parts import GRAPH, Part, between_bytes, index_bytes, read_index
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import CONTENT_FIELD, Buffer, Cursor, Payload, encode_varint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.node_reader import node_from_proto, parsed
from mobileprep.ir.serde import graph_from_bytes, graph_to_chunks, node_to_proto
from mobileprep.ir.serde_tensor import is_large, tensor_to_proto
from mobileprep.ir.tensor import Tensor

APART: Final = 16 << 10
"""Tensors of so many bytes or more get a file of their own; many small files would cost time."""

_DAMAGED: Final = "is damaged: its large nodes have no place"

Keep = Callable[[Tensor], Part]
"""Makes sure that a tensor's content lies in a file of its own; which one."""


def graph_index(graph: Graph, keep: Keep) -> bytes:
    """An index of a graph: what it is without its large tensors, and which those are.

    Nodes with such tensors stand apart, each with its position: numbers of parts stand for the
    contents. Contents in the bodies of functions stay where they are. Equal graphs give equal
    bytes.
    """
    parts: list[Part] = []
    positions: list[int] = []
    large, others = pb.GraphDef(), []
    for position, node in enumerate(graph.nodes):
        names = _apart(node)
        if not names:
            others.append(node)
            continue
        positions.append(position)
        proto = large.node.add()
        node_to_proto(node, proto, names)
        for name in sorted(names):
            tensor = node.attrs[name].value
            parts.append(keep(tensor))
            target = proto.attr[name].tensor
            tensor_to_proto(tensor, target, with_content=False)
            target.payload = len(parts)
    numbers = b"".join(map(encode_varint, (len(positions), *positions)))
    message = large.SerializeToString(deterministic=True)
    rest = graph_to_chunks(graph.with_nodes(others) if positions else graph)
    return index_bytes(GRAPH, parts, [numbers, encode_varint(len(message)), message, *rest])


def graph_from_index(data: Buffer, find: Callable[[Part], memoryview], file: str) -> Graph:
    """The graph of an index.

    Args:
        data: the index.
        find: gives the content of a part, of just its size.
        file: a name for messages.

    Raises:
        CorruptFileError: the index is damaged.
    """
    parts, body = read_index(data, file, GRAPH)
    cursor = Cursor(body, file=file)
    count = cursor.varint()
    if count > len(parts):
        raise cursor.corrupt(_DAMAGED)
    positions = [cursor.varint() for _ in range(count)]
    start = cursor.position + len(encode_varint(length := cursor.varint()))
    cursor.skip(length)
    payloads = [Payload(CONTENT_FIELD, find(part), part.sha256) for part in parts]
    message = parsed(pb.GraphDef, bytes(body[start : cursor.position]), file)
    large = [node_from_proto(proto, payloads, file) for proto in message.node]
    graph = graph_from_bytes(body[cursor.position :], file)
    places = dict(zip(positions, large, strict=False))
    total = len(graph) + len(large)
    if not len(places) == len(large) == count or any(place >= total for place in places):
        raise cursor.corrupt(_DAMAGED)
    others = iter(graph.nodes)
    return graph.with_nodes(places.get(i) or next(others) for i in range(total))


def tensors_apart(graph: Graph) -> list[Tensor]:
    """The tensors that ``graph_index`` asks to keep, each once."""
    found = (node.attrs[name].value for node in graph.nodes for name in _apart(node))
    return list({id(tensor): tensor for tensor in found}.values())


def lies_apart(tensor: Tensor) -> bool:
    """Whether a tensor of a graph gets a file of its own."""
    return tensor.nbytes >= APART and is_large(tensor)


def _apart(node: Node) -> frozenset[str]:
    """The attributes whose tensors get a file of their own."""
    return frozenset(
        name
        for name, value in node.attrs.items()
        if value.kind == "tensor" and lies_apart(value.value)
    )


def file_index(pieces: Iterable[bytes | Tensor], keep: Keep) -> bytes:
    """An index of the file that pieces make: the bytes between large tensors."""

    def piece(item: bytes | Tensor) -> Buffer | Part:
        if not isinstance(item, Tensor):
            return item
        return keep(item) if item.nbytes >= APART else memoryview(item.raw()).cast("B")

    return between_bytes(piece(item) for item in pieces)

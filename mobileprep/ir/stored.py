"""Graphs whose large tensors lie in files of their own, named by their digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mobileprep.formats.cursor import Buffer
from mobileprep.formats.parts import GRAPH, Part, between_bytes, index_bytes, read_index
from mobileprep.formats.wire import CONTENT_FIELD, Payload
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_from_skeleton, graph_to_pieces, graph_to_skeleton
from mobileprep.ir.tensor import Tensor

APART: Final = 16 << 10
"""Tensors of so many bytes or more get a file of their own; many small files would cost time."""

Keep = Callable[[Tensor], Part]
"""Makes sure that a tensor's content lies in a file of its own; which one."""


def graph_index(graph: Graph, keep: Keep) -> bytes:
    """An index of a graph: what it is without its large tensors, and which those are.

    Equal graphs give equal bytes.
    """
    parts: list[Part] = []

    def number(tensor: Tensor) -> int:
        parts.append(keep(tensor))
        return len(parts)

    body = list(graph_to_skeleton(graph, APART, number))
    return index_bytes(GRAPH, parts, body)


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
    payloads = [Payload(CONTENT_FIELD, find(part), part.sha256) for part in parts]
    return graph_from_skeleton(bytes(body), payloads, file)


def file_index(graph: Graph, keep: Keep) -> bytes:
    """An index of the file that a graph's serialized form is: the bytes between large tensors."""

    def piece(item: bytes | Tensor) -> Buffer | Part:
        if not isinstance(item, Tensor):
            return item
        return keep(item) if item.nbytes >= APART else memoryview(item.raw()).cast("B")

    return between_bytes(piece(item) for item in graph_to_pieces(graph))

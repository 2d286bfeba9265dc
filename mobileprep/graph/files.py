"""Read and write graph files: map files, detect text by content, and write atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath
from mobileprep.core.files import atomic_writer, map_file, write_text
from mobileprep.errors import ArtifactError, CorruptFileError, InvalidGraphError, MobileprepError
from mobileprep.formats.kinds import expect_kind, looks_like_text
from mobileprep.formats.memmapped import (
    ALIGNMENT,
    GRAPH_REGION,
    Directory,
    PackageRegion,
    ends_as_package,
    is_encrypted,
    read_package,
)
from mobileprep.formats.parts import GRAPH, Part, between_bytes, index_bytes, read_index
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import CONTENT_FIELD, Buffer, Cursor, Payload, encode_varint
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import node_from_proto, parsed
from mobileprep.graph.serde import (
    graph_from_bytes,
    graph_to_bytes,
    graph_to_chunks,
    graph_to_pieces,
    node_to_proto,
    serialized_size,
)
from mobileprep.graph.tensor import Tensor, check_shape, is_large, tensor_to_proto

_PROTOBUF_LIMIT = (1 << 31) - 1


def read_graph(path: Path) -> Graph:
    """Read a binary, text, or memory-mapped GraphDef file with any file extension.

    The regions of a memory-mapped model become constants that are views of the file.
    """
    graph, regions = _read(path)
    return with_constants(graph, regions, str(path)) if regions else graph


def read_shipped_graph(path: Path) -> Graph:
    """Read a graph as the app loads it: ImmutableConst nodes stay unchanged."""
    graph, regions = _read(path)
    if regions:
        with_constants(graph, regions, str(path))  # Raises an error for nodes without a region.
    return graph


def _read(path: Path) -> tuple[Graph, Mapping[str, PackageRegion]]:
    """Return the graph in a file, and the regions of a memory-mapped model."""
    data = map_file(path)
    if not data:
        msg = "is empty"
        raise CorruptFileError(msg, "export the graph again", str(path))
    if is_encrypted(data):
        msg = "is an encrypted model"
        raise CorruptFileError(msg, "give the model of a target without 'encrypt'", str(path))
    if ends_as_package(data):
        return _packaged(data, str(path))
    return parse_graph(data, str(path)), {}


def parse_graph(data: Buffer, file: str) -> Graph:
    """Parse a binary or text GraphDef."""
    expect_kind(data, "GraphDef", file)
    if looks_like_text(data):
        from mobileprep.formats.text_proto import wire_of_text  # slow to import

        data = wire_of_text(data, file)
    return graph_from_bytes(data, file)


def _packaged(data: Buffer, file: str) -> tuple[Graph, Mapping[str, PackageRegion]]:
    try:
        regions = read_package(data, file)
    except CorruptFileError as damage:
        # A GraphDef that was extracted from a package also names regions.
        try:
            return parse_graph(data, file), {}
        except MobileprepError:
            raise damage from None
    return graph_from_bytes(regions[GRAPH_REGION].view, file), regions


def write_graph(path: Path, graph: Graph, *, as_text: bool = False) -> None:
    """Write a graph atomically, as binary or text protobuf."""
    if as_text:
        # Slow to import, and not needed for binary files.
        from mobileprep.formats.text_proto import text_of_wire

        write_text(path, text_of_wire(graph_to_bytes(graph)))
        return
    chunks = list(graph_to_chunks(graph))
    check_serialized_size(sum(len(c) for c in chunks), str(path))
    with atomic_writer(path) as stream:
        stream.writelines(chunks)


def check_serialized_size(size: int, where: str) -> None:
    """Check that a binary graph of this size can be read again.

    Raises:
        ArtifactError: if the size exceeds protobuf's limit of 2 GiB.
    """
    if size > _PROTOBUF_LIMIT:
        message = f"the graph would take {size} bytes, more than protobuf's limit of 2 GiB"
        raise ArtifactError(message, "quantize the weights first (quantize_weights)", where)


def load_graph(path: FilePath) -> Graph:
    """Read a graph.

    Large constants remain in the mapped file: do not overwrite it in place while the graph is in
    use. ``save_graph`` to the same path is safe.

    Args:
        path: a binary, text, or memory-mapped GraphDef with any file extension.

    Raises:
        CorruptFileError: if the file is missing, damaged, or contains another message type.
        InvalidGraphError: if a constant has an impossible shape.
    """
    return read_graph(Path(path))


def save_graph(graph: Graph, path: FilePath, *, as_text: bool = False) -> None:
    """Write a graph atomically.

    Args:
        graph: the graph.
        path: path of the file.
        as_text: whether to write text instead of binary protobuf.

    Raises:
        ArtifactError: if the file cannot be written, or would exceed protobuf's limit of 2 GiB.
    """
    write_graph(Path(path), graph, as_text=as_text)


def check_holds_nodes(graph: Graph, where: str) -> None:
    """Check that a graph has nodes, because some other files parse as a graph without nodes."""
    if not graph.nodes:
        message = "holds no nodes"
        raise InvalidGraphError(message, "name the frozen graphs of the app", where)


IMMUTABLE: Final = "ImmutableConst"
"""Op whose output is a region."""
REGION_NAME: Final = "memory_region_name"
"""Attribute of ``ImmutableConst`` with the name of the region."""


class MemmappedModel(Struct, frozen=True):
    """A graph and the regions that its ImmutableConst nodes name.

    Args:
        graph: the graph that the runtime reads.
        regions: name (with prefix) and tensor of each region, in the order of the nodes.
    """

    graph: Graph
    regions: Sequence[tuple[str, Tensor]]

    def pieces(self) -> Iterator[bytes | Tensor]:
        """Yield the pieces of the file in order; a tensor represents its raw content."""
        directory = Directory()
        for name, tensor in self.regions:
            yield directory.add(name, tensor.nbytes, aligned=True)
            yield tensor
        yield directory.add(GRAPH_REGION, serialized_size(self.graph), aligned=False)
        yield from graph_to_pieces(self.graph)
        yield directory.serialized()


def with_constants(graph: Graph, regions: Mapping[str, PackageRegion], file: str) -> Graph:
    """Replace the ImmutableConst nodes of a memory-mapped model with constants."""
    return graph.with_nodes(_constant(n, regions, file) if n.op == IMMUTABLE else n for n in graph)


def _constant(node: Node, regions: Mapping[str, PackageRegion], file: str) -> Node:
    where = f"{file}, node {node.name!r}"
    name = node.attr_str(REGION_NAME)
    dtype, dims = node.attr_dtype("dtype"), node.attr_shape("shape")
    if dtype.numpy is None or dims is None:
        message = f"an ImmutableConst of type {dtype.short} and shape {dims} has no region"
        raise InvalidGraphError(message, "write the model again from its graph", where)
    size = Tensor(dtype, check_shape(dims, where)).nbytes
    region = regions.get(name)
    fault = _fault(region, size)
    if region is None or fault:
        message = f"the region {name!r}, of which {size} bytes are needed, {fault}"
        raise CorruptFileError(message, "write the model again from its graph", where)
    value = Tensor(dtype, dims, content=region.view[:size])
    attrs = {"dtype": attr.dtype(dtype), "value": attr.tensor(value)}
    return replace(node, op="Const", attrs=attrs)


def _fault(region: PackageRegion | None, size: int) -> str:
    """Return the reason why TensorFlow's kernel would reject a region, or an empty string."""
    if region is None:
        return "does not exist"
    if len(region.view) < size:
        return f"has {len(region.view)} bytes"
    if region.offset % ALIGNMENT:
        return f"begins at byte {region.offset}, which is not a multiple of {ALIGNMENT}"
    return ""


APART: Final = 16 << 10
"""Minimum bytes of tensors with their own file; many small files would be slow."""

_DAMAGED: Final = "is damaged: its large nodes have no place"

Keep = Callable[[Tensor], Part]
"""Writes the content of a tensor to its own file, and returns its name."""


def graph_index(graph: Graph, keep: Keep) -> bytes:
    """Return an index of a graph: the graph without large tensors, and their digests.

    Nodes with such tensors are stored separately with their positions, and part numbers replace the
    contents. Tensors in function bodies are stored in place. Equal graphs have equal bytes.
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
    """Return the graph of an index."""
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
    """Return the tensors that ``graph_index`` stores separately, without duplicates."""
    tensors = (node.attrs[name].value for node in graph.nodes for name in _apart(node))
    return list({id(tensor): tensor for tensor in tensors}.values())


def lies_apart(tensor: Tensor) -> bool:
    """Return whether a tensor of a graph gets its own file."""
    return tensor.nbytes >= APART and is_large(tensor)


def _apart(node: Node) -> frozenset[str]:
    """Return the attributes whose tensors get their own file."""
    return frozenset(
        name
        for name, value in node.attrs.items()
        if value.kind == "tensor" and lies_apart(value.value)
    )


def file_index(pieces: Iterable[bytes | Tensor], keep: Keep) -> bytes:
    """Return an index of the file that consists of these pieces, with large tensors as parts."""

    def piece(item: bytes | Tensor) -> Buffer | Part:
        if not isinstance(item, Tensor):
            return item
        return keep(item) if item.nbytes >= APART else memoryview(item.raw()).cast("B")

    return between_bytes(piece(item) for item in pieces)

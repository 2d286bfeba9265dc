"""Graph files: mapped and read, text told from binary by content, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mobileprep.core.files import atomic_writer, map_file, write_text
from mobileprep.errors import ArtifactError, CorruptFileError, MobileprepError
from mobileprep.formats.kinds import expect_kind, looks_like_text
from mobileprep.formats.memmapped import (
    GRAPH_REGION,
    PackageRegion,
    ends_as_package,
    is_encrypted,
    read_package,
)
from mobileprep.formats.wire import Buffer
from mobileprep.ir.graph import Graph
from mobileprep.ir.memmapped import with_constants
from mobileprep.ir.serde import graph_from_bytes, graph_to_bytes, graph_to_chunks

_PROTOBUF_LIMIT = (1 << 31) - 1


def read_graph(path: Path) -> Graph:
    """Read a GraphDef file, binary, text or memory-mapped, whatever its name ends in.

    The regions of a memory-mapped model become constants, which are views on the file.

    Raises:
        CorruptFileError: missing, unreadable, damaged, or another kind of message.
        InvalidGraphError: a constant has an impossible shape.
    """
    graph, regions = _read(path)
    return with_constants(graph, regions, str(path)) if regions else graph


def read_shipped_graph(path: Path) -> Graph:
    """Read a graph as its app loads it: ImmutableConst nodes stay what they are.

    Raises:
        CorruptFileError: as ``read_graph``.
        InvalidGraphError: as ``read_graph``.
    """
    graph, regions = _read(path)
    if regions:
        with_constants(graph, regions, str(path))  # refuses what names no region
    return graph


def _read(path: Path) -> tuple[Graph, Mapping[str, PackageRegion]]:
    """A graph as it lies in its file, and the regions of a memory-mapped model."""
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
    """Parse a binary or text GraphDef.

    Args:
        data: the content of the file.
        file: its name, for messages.

    Raises:
        CorruptFileError: damaged, or another kind of message.
    """
    expect_kind(data, "GraphDef", file)
    if looks_like_text(data):
        from mobileprep.formats.text_proto import wire_of_text  # slow to import

        data = wire_of_text(data, file)
    return graph_from_bytes(data, file)


def _packaged(data: Buffer, file: str) -> tuple[Graph, Mapping[str, PackageRegion]]:
    try:
        regions = read_package(data, file)
    except CorruptFileError as damage:
        # A GraphDef that was taken out of a package names regions too.
        try:
            return parse_graph(data, file), {}
        except MobileprepError:
            raise damage from None
    return graph_from_bytes(regions[GRAPH_REGION].view, file), regions


def write_graph(path: Path, graph: Graph, *, as_text: bool = False) -> None:
    """Write a graph atomically, binary or as protobuf text.

    Raises:
        ArtifactError: the file cannot be written, or would pass protobuf's limit of 2 GiB.
    """
    if as_text:
        # Slow to import, and binary needs it never.
        from mobileprep.formats.text_proto import text_of_wire

        write_text(path, text_of_wire(graph_to_bytes(graph)))
        return
    chunks = list(graph_to_chunks(graph))
    check_serialized_size(sum(len(c) for c in chunks), str(path))
    with atomic_writer(path) as stream:
        stream.writelines(chunks)


def check_serialized_size(size: int, where: str) -> None:
    """Whether a binary graph of so many bytes can be read again.

    Raises:
        ArtifactError: it is longer than protobuf reads.
    """
    if size > _PROTOBUF_LIMIT:
        message = f"the graph would take {size} bytes, more than protobuf's limit of 2 GiB"
        raise ArtifactError(message, "quantize the weights first (quantize_weights)", where)

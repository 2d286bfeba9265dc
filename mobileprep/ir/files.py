"""Graph files: mapped and read, text told from binary by content, written atomically."""

from __future__ import annotations

from pathlib import Path

from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.kinds import expect_kind, looks_like_text
from mobileprep.formats.mapped_file import map_file
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.fsio import atomic_writer, write_text
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_from_bytes, graph_to_chunks, graph_to_proto

_PROTOBUF_LIMIT = (1 << 31) - 1


def read_graph(path: Path) -> Graph:
    """Read a GraphDef file, binary or text, whatever its name ends in.

    Raises:
        CorruptFileError: missing, unreadable, damaged, or another kind of message.
        InvalidGraphError: a constant has an impossible shape.
    """
    data = map_file(path)
    if not data:
        msg = "is empty"
        raise CorruptFileError(msg, "export the graph again", str(path))
    expect_kind(data, "GraphDef", str(path))
    if looks_like_text(data):
        from mobileprep.formats.text_proto import text_to_wire  # slow to import

        data = text_to_wire(data, pb.GraphDef, str(path))
    return graph_from_bytes(data, str(path))


def write_graph(path: Path, graph: Graph, *, as_text: bool = False) -> None:
    """Write a graph atomically, binary or as protobuf text.

    Raises:
        ArtifactError: the file cannot be written, or would pass protobuf's limit of 2 GiB.
    """
    if as_text:
        from google.protobuf import text_format  # slow to import, and binary needs it never

        write_text(path, text_format.MessageToString(graph_to_proto(graph)))
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

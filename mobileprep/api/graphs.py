"""Graph files."""

from __future__ import annotations

from pathlib import Path

from mobileprep.api.paths import FilePath
from mobileprep.errors import InvalidGraphError
from mobileprep.ir.files import read_graph, write_graph
from mobileprep.ir.graph import Graph


def load_graph(path: FilePath) -> Graph:
    """Read a graph.

    Large constants stay in the file, which is mapped: do not overwrite it in place while the graph
    is in use. ``save_graph`` to the same path is safe.

    Args:
        path: a GraphDef, binary, text or memory-mapped, whatever its name ends in.

    Raises:
        CorruptFileError: it is missing, damaged, or another kind of message.
        InvalidGraphError: a constant has an impossible shape.
    """
    return read_graph(Path(path))


def save_graph(graph: Graph, path: FilePath, *, as_text: bool = False) -> None:
    """Write a graph; the file is there whole or not at all.

    Args:
        graph: what to write.
        path: where.
        as_text: write protobuf text instead of binary.

    Raises:
        ArtifactError: the file cannot be written, or would pass protobuf's limit of 2 GiB.
    """
    write_graph(Path(path), graph, as_text=as_text)


def check_holds_nodes(graph: Graph, where: str) -> None:
    """Make sure that there is something to judge: of other files, too, some read as no nodes.

    Raises:
        InvalidGraphError: the graph holds no nodes.
    """
    if not graph.nodes:
        message = "holds no nodes"
        raise InvalidGraphError(message, "name the frozen graphs of the app", where)

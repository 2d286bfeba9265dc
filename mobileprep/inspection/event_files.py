"""Event files, in which TensorBoard finds graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from mobileprep.core.files import write_bytes
from mobileprep.formats.tf_record import framed
from mobileprep.formats.wire import delimited
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.serde import graph_to_bytes

FILE_NAME: Final = "events.out.tfevents.0.mobileprep"
"""Name of the file in a log directory. TensorBoard reads files with ``tfevents`` in their names."""

# TensorBoard does not show larger attributes.
_MOST_SHOWN: Final = 1024
_SHAPES: Final = "_output_shapes"
# Fields of `Event` in event.proto. The time, a double, comes first.
_TIME: Final = b"\x09" + bytes(8)
_VERSION, _GRAPH = 3, 4
_FORMAT: Final = b"brain.Event:2"


def write_event_file(
    folder: Path, graph: Graph, shapes: Mapping[str, Sequence[TensorShape]]
) -> Path:
    """Write a graph for TensorBoard, without the values of large constants.

    The attribute ``_output_shapes`` holds the shapes, which TensorBoard shows on edges. The time of
    the events is 0, so that the same graph gives the same bytes.

    Args:
        folder: log directory.
        shapes: shapes of each node's outputs, as far as they are known.

    Returns:
        The event file.

    Source: ``event.proto`` of TensorFlow, and its ``EventsWriter``, which writes the version first.
    """
    shown = graph.with_nodes(_shown(node, shapes.get(node.name, ())) for node in graph)
    events = (delimited(_VERSION, _FORMAT), delimited(_GRAPH, graph_to_bytes(shown)))
    path = folder / FILE_NAME
    write_bytes(path, b"".join(framed(_TIME + event) for event in events))
    return path


def _shown(node: Node, shapes: Sequence[TensorShape]) -> Node:
    attrs = {name: value for name, value in node.attrs.items() if not _is_large(value)}
    if shapes:
        attrs[_SHAPES] = AttrValue("list(shape)", tuple(shapes))
    return replace(node, attrs=attrs)


def _is_large(value: AttrValue) -> bool:
    return value.kind == "tensor" and value.value.nbytes > _MOST_SHOWN

"""Graphs as protobuf text, where what nodes carry through unread is spelt out.

TensorFlow reads no text that has these records as strings of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError, Message

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.protos import graph_text_pb2 as text
from mobileprep.formats.text_proto import text_to_wire


def text_of_wire(data: bytes) -> str:
    """A serialized graph as text; records that nobody can read are left out."""
    from google.protobuf import text_format  # slow to import, and reading needs it never

    try:
        spelt = text.GraphDef.FromString(data)
    except DecodeError:
        spelt = text.GraphDef.FromString(_readable(data))
    return text_format.MessageToString(spelt)


def wire_of_text(data: Buffer, file: str) -> memoryview:
    """The wire form of a graph given as text.

    Args:
        data: the text, as UTF-8.
        file: its name, for messages.

    Raises:
        CorruptFileError: what is not as the grammar or a GraphDef has it.
    """
    try:
        return text_to_wire(data, text.GraphDef, file)
    except CorruptFileError:
        # Records of a later release may have names that are not known here: without them, then.
        return text_to_wire(data, pb.GraphDef, file)


def _readable(data: bytes) -> bytes:
    """A serialized graph without the records that cannot be read."""
    proto = pb.GraphDef.FromString(data)
    for node in _nodes(proto):
        if not _is_one(text.NodeDef.ExperimentalDebugInfo, node.experimental_debug_info):
            node.ClearField("experimental_debug_info")
        if not _is_one(text.FullTypeDef, node.experimental_type):
            node.ClearField("experimental_type")
    for arg in _args(proto):
        if not all(_is_one(text.OpDef.ArgDef.DtypeAndShape, h) for h in arg.handle_data):
            arg.ClearField("handle_data")
    return proto.SerializeToString(deterministic=True)


def _nodes(proto: pb.GraphDef) -> Iterator[pb.NodeDef]:
    yield from proto.node
    for function in proto.library.function:
        yield from function.node_def


def _args(proto: pb.GraphDef) -> Iterator[pb.OpDef.ArgDef]:
    for function in proto.library.function:
        yield from function.signature.input_arg
        yield from function.signature.output_arg


def _is_one(kind: type[Message], data: bytes) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True

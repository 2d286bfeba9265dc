"""Serialized GraphDefs to graphs and back, large constants never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from sys import intern

from google.protobuf.message import DecodeError

from mobileprep.errors import CorruptFileError
from mobileprep.formats.cursor import Buffer
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    CONTENT_FIELD,
    GRAPH_LAYOUT,
    LARGE,
    Payload,
    delimited,
    field_header,
    split_payloads,
    split_runs,
)
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Function, Graph, Library, Versions
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref, parse_function_ref, parse_ref
from mobileprep.ir.serde_attrs import attr_from_proto, attr_to_proto
from mobileprep.ir.serde_opdef import opdef_from_proto, opdef_to_proto
from mobileprep.ir.serde_tensor import is_written_raw, tensor_to_proto
from mobileprep.ir.tensor import Tensor

_NODE_FIELD = 1
_LIBRARY_FIELD = 2
_ATTR_FIELD = 5
_TENSOR_FIELD = 8

_NONE = (b"", b"")

# Bytes of nodes that are parsed at once; parsed, they take about five times as much.
_PARSED_AT_ONCE = 1 << 20

# Nodes are encoded in runs of this many: fewer calls, and little memory at a time.
_RUN = 512


def graph_from_bytes(data: Buffer, file: str) -> Graph:
    """Read a serialized GraphDef.

    Args:
        data: the bytes; large constants stay views on them.
        file: their name, for messages.

    Raises:
        CorruptFileError: the bytes are no GraphDef.
        InvalidGraphError: a constant has an impossible shape.
    """
    return graph_from_skeleton(*split_payloads(data, GRAPH_LAYOUT, file), file)


def graph_from_skeleton(skeleton: bytes, payloads: list[Payload], file: str) -> Graph:
    """Read a serialized GraphDef in which numbers of ``payloads`` stand for large contents.

    Raises:
        CorruptFileError: the bytes are no GraphDef, or name other payloads than there are.
        InvalidGraphError: a constant has an impossible shape.
    """
    nodes: list[Node] = []
    others = b""
    for run, others_here in split_runs(skeleton, _NODE_FIELD, _PARSED_AT_ONCE, file):
        nodes += [_node_from_proto(n, payloads, file) for n in _parsed(run, file).node]
        others += others_here
    return _with_nodes(nodes, _parsed(others, file), payloads, file)


def graph_from_proto(proto: pb.GraphDef, payloads: list[Payload], file: str) -> Graph:
    """Read a parsed GraphDef, its large contents possibly among ``payloads``."""
    nodes = [_node_from_proto(n, payloads, file) for n in proto.node]
    return _with_nodes(nodes, proto, payloads, file)


def _parsed(data: bytes, file: str) -> pb.GraphDef:
    proto = pb.GraphDef()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        message = "is no binary GraphDef"
        hint = "a text graph ends in .pbtxt; a SavedModel is named by its folder"
        raise CorruptFileError(message, hint, file) from error
    return proto


def _with_nodes(nodes: list[Node], proto: pb.GraphDef, payloads: list[Payload], file: str) -> Graph:
    """A graph of nodes, all else as a message has it."""
    library = _library_from_proto(proto.library, payloads, file)
    versions = Versions(
        proto.versions.producer or proto.version,
        proto.versions.min_consumer,
        tuple(proto.versions.bad_consumers),
    )
    return Graph(nodes, library, versions)


def graph_to_chunks(graph: Graph) -> Iterator[bytes | memoryview]:
    """The pieces of the serialized graph in turn; large constants are views, not copies.

    Equal graphs give equal bytes.
    """
    for piece in graph_to_pieces(graph):
        yield memoryview(piece.raw()).cast("B") if isinstance(piece, Tensor) else piece


def graph_to_pieces(graph: Graph) -> Iterator[bytes | Tensor]:
    """The pieces of the serialized graph in turn; a tensor stands for its raw content."""
    yield from _nodes_to_pieces(graph.nodes, _NODE_FIELD)
    yield from _rest_to_pieces(graph)


def graph_to_skeleton(graph: Graph, least: int, number: Callable[[Tensor], int]) -> Iterator[bytes]:
    """The serialized graph with numbers in place of large contents, piece by piece.

    ``graph_from_skeleton`` reads it.

    Args:
        graph: the graph.
        least: how many bytes a content has at least that a number takes the place of; not below
            ``LARGE``. Contents in the bodies of functions stay where they are.
        number: gives the number that stands for a tensor's content, from 1 on, each once.
    """
    run = pb.GraphDef()
    for node in graph.nodes:
        large = _large_attrs(node, least)
        proto = run.node.add()
        _node_to_proto(node, proto, large)
        for name in sorted(large):
            tensor = node.attrs[name].value
            target = proto.attr[name].tensor
            tensor_to_proto(tensor, target, with_content=False)
            target.payload = number(tensor)
        if len(run.node) == _RUN:
            yield run.SerializeToString(deterministic=True)
            run.Clear()
    yield run.SerializeToString(deterministic=True)
    yield from _rest_to_pieces(graph)


def serialized_size(graph: Graph) -> int:
    """The length of the serialized graph in bytes."""
    return sum(map(_length, graph_to_pieces(graph)))


def _rest_to_pieces(graph: Graph) -> Iterator[bytes]:
    """What follows the nodes."""
    if graph.library:
        yield delimited(_LIBRARY_FIELD, _library_bytes(graph.library))
    if graph.versions != Versions():
        tail = pb.GraphDef()
        tail.versions.producer = graph.versions.producer
        tail.versions.min_consumer = graph.versions.min_consumer
        tail.versions.bad_consumers.extend(graph.versions.bad_consumers)
        yield tail.SerializeToString(deterministic=True)


def graph_to_bytes(graph: Graph) -> bytes:
    """The serialized graph in one piece."""
    return b"".join(graph_to_chunks(graph))


def graph_to_proto(graph: Graph) -> pb.GraphDef:
    """The graph as a message, every constant copied into it; for text output."""
    proto = pb.GraphDef()
    proto.MergeFromString(graph_to_bytes(graph))
    return proto


def _node_from_proto(proto: pb.NodeDef, payloads: list[Payload], file: str) -> Node:
    where = f"{file}, node {proto.name!r}"
    inputs = tuple([parse_ref(text) for text in proto.input])
    return _read_node(proto, inputs, payloads, where)


def _read_node(
    proto: pb.NodeDef, inputs: tuple[Ref, ...], payloads: list[Payload], where: str
) -> Node:
    # Ops, devices and attributes have few names: held once, they halve what a graph takes.
    values = proto.attr
    attrs = {intern(k): attr_from_proto(values[k], payloads, where) for k in sorted(values)}
    debug = (proto.experimental_debug_info, proto.experimental_type)
    device = intern(proto.device)
    return Node(proto.name, intern(proto.op), inputs, device, attrs, debug if any(debug) else _NONE)


def _nodes_to_pieces(nodes: Iterable[Node], number: int) -> Iterator[bytes | Tensor]:
    run = pb.GraphDef()
    for node in nodes:
        large = _large_attrs(node, LARGE)
        if large or len(run.node) == _RUN:
            yield run.SerializeToString(deterministic=True)
            run.Clear()
        if large:
            yield from _large_node(node, large, number)
        else:
            _node_to_proto(node, run.node.add(), frozenset())
    yield run.SerializeToString(deterministic=True)


def _large_attrs(node: Node, least: int) -> frozenset[str]:
    """The tensor attributes whose content is worth writing from where it lies."""
    return frozenset(
        name
        for name, value in node.attrs.items()
        if value.kind == "tensor" and is_written_raw(value.value) and value.value.nbytes >= least
    )


def _large_node(node: Node, large: frozenset[str], number: int) -> Iterator[bytes | Tensor]:
    head = pb.NodeDef()
    _node_to_proto(node, head, large)
    pieces: list[bytes | Tensor] = [head.SerializeToString(deterministic=True)]
    for name in sorted(large):
        pieces.extend(_large_attr(name, node.attrs[name]))
    yield field_header(number, sum(map(_length, pieces)))
    yield from pieces


def _length(piece: bytes | Tensor) -> int:
    return piece.nbytes if isinstance(piece, Tensor) else len(piece)


def _large_attr(name: str, value: AttrValue) -> list[bytes | Tensor]:
    """The map entry of a tensor attribute, with the content as its last field."""
    proto = pb.TensorProto()
    tensor_to_proto(value.value, proto, with_content=False)
    length = value.value.nbytes
    head = proto.SerializeToString(deterministic=True) + field_header(CONTENT_FIELD, length)
    for number in (_TENSOR_FIELD, 2):
        head = field_header(number, len(head) + length) + head
    key = delimited(1, name.encode())
    return [field_header(_ATTR_FIELD, len(key) + len(head) + length) + key + head, value.value]


def _node_to_proto(node: Node, proto: pb.NodeDef, omit: frozenset[str]) -> None:
    proto.name = node.name
    proto.op = node.op
    proto.input.extend([str(r) for r in node.inputs])
    proto.device = node.device
    for name, value in node.attrs.items():
        if name not in omit:
            attr_to_proto(value, proto.attr[name])
    proto.experimental_debug_info, proto.experimental_type = node.debug_info


def _library_from_proto(
    proto: pb.FunctionDefLibrary, payloads: list[Payload], file: str
) -> Library:
    functions = [_function_from_proto(f, payloads, file) for f in proto.function]
    return Library(
        {f.name: f for f in functions},
        tuple((g.function_name, g.gradient_func) for g in proto.gradient),
    )


def _function_from_proto(proto: pb.FunctionDef, payloads: list[Payload], file: str) -> Function:
    where = f"{file}, function {proto.signature.name!r}"

    def read(values: pb.FunctionDef.ArgAttrs | pb.FunctionDef) -> dict[str, AttrValue]:
        return {k: attr_from_proto(values.attr[k], payloads, where) for k in sorted(values.attr)}

    nodes = tuple(_body_node(n, payloads, where) for n in proto.node_def)
    return Function(
        opdef_from_proto(proto.signature, where),
        nodes,
        {k: parse_function_ref(proto.ret[k]) for k in sorted(proto.ret)},
        {k: proto.control_ret[k] for k in sorted(proto.control_ret)},
        read(proto),
        {k: read(proto.arg_attr[k]) for k in sorted(proto.arg_attr)},
        {k: proto.resource_arg_unique_id[k] for k in sorted(proto.resource_arg_unique_id)},
    )


def _body_node(proto: pb.NodeDef, payloads: list[Payload], where: str) -> Node:
    inputs = tuple(parse_function_ref(text) for text in proto.input)
    return _read_node(proto, inputs, payloads, where)


def _library_bytes(library: Library) -> bytes:
    proto = pb.FunctionDefLibrary()
    for name in library.functions:
        _function_to_proto(library.functions[name], proto.function.add())
    for function, gradient in library.gradients:
        proto.gradient.add(function_name=function, gradient_func=gradient)
    return proto.SerializeToString(deterministic=True)


def _function_to_proto(function: Function, proto: pb.FunctionDef) -> None:
    opdef_to_proto(function.signature, proto.signature)
    for node in function.nodes:
        _node_to_proto(node, proto.node_def.add(), frozenset())
    for name, ref in function.ret.items():
        proto.ret[name] = str(ref)
    for name, text in function.control_ret.items():
        proto.control_ret[name] = text
    for name, value in function.attrs.items():
        attr_to_proto(value, proto.attr[name])
    for index, values in function.arg_attrs.items():
        for name, value in values.items():
            attr_to_proto(value, proto.arg_attr[index].attr[name])
    for index, unique in function.resource_ids.items():
        proto.resource_arg_unique_id[index] = unique

"""Read and write serialized GraphDefs without copying large constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mobileprep.core import parallel
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import (
    GRAPH_LAYOUT,
    Buffer,
    Payload,
    delimited,
    field_header,
    split_fields,
    without_payloads,
)
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, OpDef
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import (
    attr_from_proto,
    attr_head,
    attr_to_proto,
    node_from_proto,
    parsed,
    read_node,
)
from mobileprep.graph.refs import parse_function_ref
from mobileprep.graph.tensor import Tensor, is_large

_NODE_FIELD = 1
_LIBRARY_FIELD = 2

# Bytes of nodes to read at once.
_READ_AT_ONCE = 1 << 20

# Number of nodes to write at once.
_WRITTEN_AT_ONCE = 512
# Maximum bytes of a serialized graph, without large constants, to cache.
_MOST_KEPT = 4 << 20


def graph_from_bytes(data: Buffer, file: str) -> Graph:
    """Parse a serialized GraphDef.

    Args:
        data: the bytes; large constants become views of them.
        file: name of the graph, for messages.
    """
    payloads: list[Payload] = []
    runs = list(split_fields(data, _READ_AT_ONCE, file))
    # Report a length beyond the end with its position before any message is parsed.
    parts = [without_payloads(run, GRAPH_LAYOUT, payloads) for run in runs]
    nodes: list[Node] = []
    others = pb.GraphDef()
    for run, part in zip(runs, parts, strict=True):
        parallel.report_progress(f"reading {file}", run.end, len(data), "bytes")
        proto = parsed(pb.GraphDef, part, file)
        nodes += [node_from_proto(n, payloads, file) for n in proto.node]
        proto.ClearField("node")
        others.MergeFrom(proto)
    return _with_nodes(nodes, others, payloads, file)


def graph_from_proto(proto: pb.GraphDef, payloads: list[Payload], file: str) -> Graph:
    """Convert a parsed GraphDef, whose large contents can be in ``payloads``."""
    nodes = [node_from_proto(n, payloads, file) for n in proto.node]
    return _with_nodes(nodes, proto, payloads, file)


def _with_nodes(nodes: list[Node], proto: pb.GraphDef, payloads: list[Payload], file: str) -> Graph:
    """Return a graph of these nodes with the library and versions of a message."""
    library = _library_from_proto(proto.library, payloads, file)
    versions = Versions(
        proto.versions.producer or proto.version,
        proto.versions.min_consumer,
        tuple(proto.versions.bad_consumers),
    )
    return Graph(nodes, library, versions)


def graph_to_chunks(graph: Graph) -> Iterator[bytes | memoryview]:
    """Yield the pieces of the serialized graph in order; large constants are views, not copies.

    Equal graphs have equal bytes.
    """
    return raw_chunks(graph_to_pieces(graph))


def raw_chunks(pieces: Iterable[bytes | Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of pieces in order; those of tensors as views."""
    for piece in pieces:
        yield memoryview(piece.raw()).cast("B") if isinstance(piece, Tensor) else piece


def graph_to_pieces(graph: Graph) -> Iterator[bytes | Tensor]:
    """Yield the pieces of the serialized graph in order; a tensor represents its raw content.

    Small results are cached in the graph, which is usually measured, hashed, and written.
    """
    if graph.pieces is not None:
        yield from graph.pieces
        return
    pieces: list[bytes | Tensor] = []
    size = 0
    for piece in _pieces(graph):
        yield piece
        size += 0 if isinstance(piece, Tensor) else len(piece)
        if size <= _MOST_KEPT:
            pieces.append(piece)
    if size <= _MOST_KEPT:
        graph.pieces = tuple(pieces)


def _pieces(graph: Graph) -> Iterator[bytes | Tensor]:
    yield from _nodes_to_pieces(graph.nodes)
    if graph.library:
        yield delimited(_LIBRARY_FIELD, _library_bytes(graph.library))
    if graph.versions != Versions():
        tail = pb.GraphDef()
        tail.versions.producer = graph.versions.producer
        tail.versions.min_consumer = graph.versions.min_consumer
        tail.versions.bad_consumers.extend(graph.versions.bad_consumers)
        yield tail.SerializeToString(deterministic=True)


def graph_to_bytes(graph: Graph) -> bytes:
    """Return the serialized graph as bytes."""
    return b"".join(graph_to_chunks(graph))


def serialized_size(graph: Graph) -> int:
    """Return the size of the serialized graph in bytes."""
    return pieces_size(graph_to_pieces(graph))


def pieces_size(pieces: Iterable[bytes | Tensor]) -> int:
    """Return the total length of pieces in bytes."""
    return sum(map(_length, pieces))


def _length(piece: bytes | Tensor) -> int:
    return piece.nbytes if isinstance(piece, Tensor) else len(piece)


def _nodes_to_pieces(nodes: Iterable[Node]) -> Iterator[bytes | Tensor]:
    run = pb.GraphDef()
    for node in nodes:
        large = _large_attrs(node)
        if not large:
            node_to_proto(node, run.node.add(), frozenset())
        if large or len(run.node) == _WRITTEN_AT_ONCE:
            yield run.SerializeToString(deterministic=True)
            run.Clear()
        if large:
            yield from _large_node(node, large)
    yield run.SerializeToString(deterministic=True)


def _large_attrs(node: Node) -> frozenset[str]:
    """Return the attributes with tensors that are large enough to write without a copy."""
    return frozenset(
        name
        for name, value in node.attrs.items()
        if value.kind == "tensor" and is_large(value.value)
    )


def _large_node(node: Node, large: frozenset[str]) -> Iterator[bytes | Tensor]:
    head = pb.NodeDef()
    node_to_proto(node, head, large)
    pieces: list[bytes | Tensor] = [head.SerializeToString(deterministic=True)]
    for name in sorted(large):
        tensor: Tensor = node.attrs[name].value
        pieces += [attr_head(name, tensor), tensor]
    yield field_header(_NODE_FIELD, pieces_size(pieces))
    yield from pieces


def node_to_proto(node: Node, proto: pb.NodeDef, omit: frozenset[str]) -> None:
    """Fill an empty NodeDef, without the omitted attributes."""
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
    return read_node(proto, inputs, payloads, where)


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
        node_to_proto(node, proto.node_def.add(), frozenset())
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


def opdef_from_proto(proto: pb.OpDef, where: str) -> OpDef:
    """Convert a signature, without descriptions."""
    return OpDef(
        proto.name,
        tuple(_arg_from_proto(a) for a in proto.input_arg),
        tuple(_arg_from_proto(a) for a in proto.output_arg),
        tuple(_attr_from_proto(a, where) for a in proto.attr),
        tuple(proto.control_output),
        proto.is_stateful,
        proto.is_commutative,
        proto.is_aggregate,
        proto.allows_uninitialized_input,
        proto.deprecation.version,
    )


def opdef_to_proto(opdef: OpDef, proto: pb.OpDef) -> None:
    """Fill an empty OpDef message."""
    proto.name = opdef.name
    for arg in opdef.inputs:
        _arg_to_proto(arg, proto.input_arg.add())
    for arg in opdef.outputs:
        _arg_to_proto(arg, proto.output_arg.add())
    for attr in opdef.attrs:
        _attr_to_proto(attr, proto.attr.add())
    proto.control_output.extend(opdef.control_outputs)
    proto.is_stateful = opdef.is_stateful
    proto.is_commutative = opdef.is_commutative
    proto.is_aggregate = opdef.is_aggregate
    proto.allows_uninitialized_input = opdef.allows_uninitialized_input
    if opdef.deprecated_at:
        proto.deprecation.version = opdef.deprecated_at


def _arg_from_proto(proto: pb.OpDef.ArgDef) -> ArgDef:
    return ArgDef(
        proto.name,
        DType(proto.type),
        proto.type_attr,
        proto.number_attr,
        proto.type_list_attr,
        proto.is_ref,
        tuple(proto.handle_data),
    )


def _arg_to_proto(arg: ArgDef, proto: pb.OpDef.ArgDef) -> None:
    proto.name = arg.name
    proto.type = arg.dtype.value  # type: ignore[assignment]
    proto.type_attr = arg.type_attr
    proto.number_attr = arg.number_attr
    proto.type_list_attr = arg.type_list_attr
    proto.is_ref = arg.is_ref
    proto.handle_data.extend(arg.handle_data)


def _attr_from_proto(proto: pb.OpDef.AttrDef, where: str) -> AttrDef:
    default = proto.default_value if proto.HasField("default_value") else None
    allowed = proto.allowed_values if proto.HasField("allowed_values") else None
    return AttrDef(
        proto.name,
        proto.type,
        None if default is None else attr_from_proto(default, [], where),
        None if allowed is None else attr_from_proto(allowed, [], where),
        proto.minimum if proto.has_minimum else None,
    )


def _attr_to_proto(attr: AttrDef, proto: pb.OpDef.AttrDef) -> None:
    proto.name = attr.name
    proto.type = attr.kind
    if attr.default is not None:
        attr_to_proto(attr.default, proto.default_value)
    if attr.allowed is not None:
        attr_to_proto(attr.allowed, proto.allowed_values)
    if attr.minimum is not None:
        proto.has_minimum = True
        proto.minimum = attr.minimum

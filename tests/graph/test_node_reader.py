"""Reading nodes from bytes gives the same result as parsing protobuf messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError, InvalidGraphError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import LARGE, VARINT, delimited, encode_varint
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import attr_from_proto, attr_to_proto
from mobileprep.graph.refs import CONTROL, Ref
from mobileprep.graph.serde import graph_from_bytes, graph_from_proto, graph_to_bytes
from mobileprep.graph.tensor import Tensor
from tests.graph.graphs import EVERY_ATTR

NAMES = st.sampled_from(["a", "block0/conv", "é" * 3, "n" * 127, "n" * 128, "n" * 300, ""])
INPUTS = st.lists(st.sampled_from(["a", "b:1", "c:0", "^d", "x" * 127, "x" * 130, ""]), max_size=4)


def by_message(data: bytes) -> Graph:
    return graph_from_proto(pb.GraphDef.FromString(data), [], "g")


def spelling(graph: Graph) -> list[object]:
    """Return the nodes with the spelling of their inputs and the order of their attributes."""
    return [(n, list(map(str, n.inputs)), list(n.attrs.items()), type(n)) for n in graph]


def scalar(number: int, kind: str = "float_val") -> pb.AttrValue:
    dtype = {"float_val": 1, "int_val": 3}[kind]
    value = pb.AttrValue()
    value.tensor.dtype = dtype  # type: ignore[assignment]
    value.tensor.tensor_shape.SetInParent()
    getattr(value.tensor, kind).append(number)
    return value


def content(sizes: Sequence[int], number: int) -> pb.AttrValue:
    value = pb.AttrValue()
    value.tensor.dtype = pb.DT_FLOAT
    value.tensor.tensor_shape.SetInParent()
    for size in sizes:
        value.tensor.tensor_shape.dim.add(size=size)
    count = int(np.prod(sizes))
    value.tensor.tensor_content = np.full(count, number, np.float32).tobytes()
    return value


VALUES = st.one_of(
    st.builds(lambda t: pb.AttrValue(type=t), st.sampled_from([1, 3, 101, 77])),
    st.builds(lambda i: pb.AttrValue(i=i), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda s: pb.AttrValue(s=s), st.binary(max_size=200)),
    st.builds(scalar, st.integers(0, 9)),
    st.builds(content, st.sampled_from([(2,), (1, 2), (2, 1), (300,), (0,)]), st.integers(0, 9)),
    st.just(pb.AttrValue()),
)
NODES = st.builds(
    lambda name, op, inputs, device, attrs: pb.NodeDef(
        name=name, op=op, input=inputs, device=device, attr=attrs
    ),
    NAMES,
    st.sampled_from(["Const", "Relu", "o" * 200, ""]),
    INPUTS,
    st.sampled_from(["", "/cpu:0", "d" * 130]),
    st.dictionaries(st.sampled_from(["T", "Tpaddings", "value", "dtype", "é", ""]), VALUES),
)


@given(st.lists(NODES, max_size=12))
def test_nodes_are_read_as_protobuf_reads_them(nodes: list[pb.NodeDef]) -> None:
    data = pb.GraphDef(node=nodes).SerializeToString(deterministic=True)
    assert spelling(graph_from_bytes(data, "g")) == spelling(by_message(data))


def parts_of(node: pb.NodeDef) -> list[bytes]:
    attrs = [
        delimited(5, delimited(1, k.encode()) + delimited(2, node.attr[k].SerializeToString()))
        for k in sorted(node.attr)
    ]
    head = [delimited(1, node.name.encode()), delimited(2, node.op.encode())]
    return [*head, *(delimited(3, text.encode()) for text in node.input), *attrs]


def padded_length(field: bytes) -> bytes:
    """Encode the length of a short field in two bytes instead of one."""
    return bytes([field[0], field[1] | 0x80, 0]) + field[2:]


OTHER_FORMS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "attributes in another order": lambda p: [*p[:4], *reversed(p[4:])],
    "attributes before the name": lambda p: [*p[4:], *p[:4]],
    "an attribute twice": lambda p: [*p, p[-1]],
    "an attribute again with another value": lambda p: [
        *p,
        delimited(5, delimited(1, b"value") + delimited(2, scalar(5).SerializeToString())),
    ],
    "an input behind the attributes": lambda p: [*p, delimited(3, b"late")],
    "a second name": lambda p: [*p, delimited(1, b"other")],
    "an empty name at the end": lambda p: [*p, delimited(1, b"")],
    "no name": lambda p: p[1:],
    "no op": lambda p: [p[0], *p[2:]],
    "a long length of the name": lambda p: [padded_length(p[0]), *p[1:]],
    "a long length of the op": lambda p: [p[0], padded_length(p[1]), *p[2:]],
    "a long length of an input": lambda p: [*p[:2], padded_length(p[2]), *p[3:]],
    "an empty device": lambda p: [*p[:4], delimited(4, b""), *p[4:]],
    "an unknown field": lambda p: [*p, encode_varint(99 << 3 | VARINT) + b"\x07"],
    "an unknown field before the inputs": lambda p: [
        *p[:2],
        encode_varint(99 << 3 | VARINT) + b"\x07",
        *p[2:],
    ],
    "an unknown group": lambda p: [*p, b"\xa3\x06\xa4\x06"],
    "debugging records": lambda p: [*p, delimited(6, b"debug"), delimited(7, b"type")],
    "nothing": lambda _: [],
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_unusual_encodings_are_read(form: str) -> None:
    nodes = []
    for number in range(6):
        node = pb.NodeDef(name=f"n{number}", op="Op", input=["a:0", "^b"])
        node.attr["T"].type = pb.DT_FLOAT
        node.attr["value"].CopyFrom(content((3,), number) if number % 2 else scalar(number))
        plain = parts_of(node)
        nodes += [b"".join(plain), b"".join(OTHER_FORMS[form](plain))]
    data = b"".join(delimited(1, node) for node in nodes)
    assert spelling(graph_from_bytes(data, "g")) == spelling(by_message(data))


def constants(count: int, change: Callable[[pb.TensorProto], None]) -> bytes:
    """Return a graph of similar constants, with a change in the last one."""
    graph = pb.GraphDef()
    for number in range(count):
        node = graph.node.add(name=f"c{number}", op="Const")
        node.attr["dtype"].type = pb.DT_FLOAT
        node.attr["value"].CopyFrom(content((3,), number))
    change(graph.node[-1].attr["value"].tensor)
    return graph.SerializeToString(deterministic=True)


def test_last_of_many_similar_constants_is_checked() -> None:
    def too_short(tensor: pb.TensorProto) -> None:
        tensor.tensor_content = tensor.tensor_content[:-1]

    def too_large(tensor: pb.TensorProto) -> None:
        tensor.tensor_shape.dim[0].size = 4

    def impossible(tensor: pb.TensorProto) -> None:
        tensor.tensor_shape.dim[0].size = -1

    for change in (too_short, too_large):
        with pytest.raises(CorruptFileError, match=r"node 'c4'.*bytes: \d+ found"):
            graph_from_bytes(constants(5, change), "g")
    with pytest.raises(InvalidGraphError, match="node 'c4'"):
        graph_from_bytes(constants(5, impossible), "g")


def test_similar_constants_keep_their_own_elements() -> None:
    graph = graph_from_bytes(constants(5, lambda _: None), "g")
    values = [node.attr_tensor("value").array().tolist() for node in graph]
    assert values == [[number] * 3 for number in range(5)]


def outcome(read: Callable[[bytes], Graph], data: bytes) -> object:
    try:
        return spelling(read(data))
    except MobileprepError as error:
        return type(error).__name__


def test_damaged_nodes_are_handled_as_protobuf_does() -> None:
    base = text_format.Parse(EVERY_ATTR, pb.GraphDef()).SerializeToString(deterministic=True)
    base += constants(4, lambda _: None)
    generator = random.Random(3)
    for _ in range(1500):
        damaged = bytearray(base)
        damaged[generator.randrange(len(base))] ^= 1 << generator.randrange(8)
        data = bytes(damaged)
        with_messages = outcome(lambda d: graph_from_proto(_proto(d), [], "g"), data)
        by_bytes = outcome(lambda d: graph_from_bytes(d, "g"), data)
        if by_bytes != with_messages:
            # Unlike protobuf, the reader refuses unknown fields of a GraphDef.
            assert by_bytes == "CorruptFileError"


def _proto(data: bytes) -> pb.GraphDef:
    try:
        return pb.GraphDef.FromString(data)
    except DecodeError as error:
        message = "no GraphDef"
        raise CorruptFileError(message, "", "g") from error


def test_nodes_around_the_size_limit_for_short_nodes() -> None:
    for length in range(LARGE - 40, LARGE + 8):
        node = pb.NodeDef(name="n", op="Op", input=["a"])
        node.attr["s"].s = b"x" * length
        data = pb.GraphDef(node=[node, node]).SerializeToString()
        assert spelling(graph_from_bytes(data, "g")) == spelling(by_message(data))


def node_writer_by_message(graph: Graph) -> bytes:
    proto = pb.GraphDef()
    for node in graph:
        message = proto.node.add(name=node.name, op=node.op, device=node.device)
        message.input.extend(map(str, node.inputs))
        for name, value in node.attrs.items():
            attr_to_proto(value, message.attr[name])
        message.experimental_debug_info, message.experimental_type = node.debug_info
    return proto.SerializeToString(deterministic=True)


TENSORS = [
    Tensor.of(np.float32(1.5)),
    Tensor.of(np.zeros((2, 3), np.int64)),
    Tensor.of(np.zeros((0, 3), np.float32)),
    Tensor.packed(np.float32(2)),
    Tensor.packed(np.zeros(0, np.float32)),
    Tensor.packed(np.arange(6, dtype=np.uint8), DType.QUINT8),
    Tensor.of(np.array([b"a", b"bc"], object)),
    Tensor(DType.STRING, (2,), content=b"\x01\x01ab"),
    Tensor(DType.FLOAT, (1 << 20,), values=np.array([2.5], np.float32)),
    Tensor(DType.RESOURCE, (), opaque=pb.TensorProto(dtype=pb.DT_RESOURCE).SerializeToString()),
]
NODE_WRITER_VALUES = st.one_of(
    st.sampled_from([attr.tensor(t) for t in TENSORS]),
    st.builds(attr.integer, st.integers(-(2**63), 2**63 - 1)),
    st.builds(attr.boolean, st.booleans()),
    st.builds(attr.floating, st.floats(width=32)),
    st.builds(attr.string, st.binary(max_size=200)),
    st.builds(attr.dtype, st.sampled_from([DType.FLOAT, DType(101), DType(77)])),
    st.builds(attr.shape, st.sampled_from([None, (), (-1, 3)])),
    st.builds(attr.integers, st.integers(0, 3)),
    st.sampled_from(
        [
            AttrValue("", None),
            AttrValue("list", ()),
            AttrValue("placeholder", "T"),
            AttrValue("func", FuncRef("f", {"T": attr.dtype(DType.FLOAT)})),
            AttrValue("list(bool)", (True, False)),
        ]
    ),
)
STRINGS = st.sampled_from(["", "a", "é", "n" * 127, "n" * 128, "n" * 500])
REFS = st.builds(
    Ref,
    STRINGS,
    st.sampled_from([0, 1, 300, CONTROL]),
    st.sampled_from(["", "out"]),
    st.booleans(),
)
NODE_WRITER_NODES = st.builds(
    Node,
    STRINGS,
    STRINGS,
    st.lists(REFS, max_size=3).map(tuple),
    STRINGS,
    st.dictionaries(st.text(alphabet="aTé\0b", max_size=3), NODE_WRITER_VALUES, max_size=6),
    st.tuples(st.binary(max_size=3), st.binary(max_size=3)),
)


@given(st.lists(NODE_WRITER_NODES, max_size=8))
def test_nodes_are_written_as_protobuf_writes_them(nodes: list[Node]) -> None:
    graph = Graph([*nodes, *nodes])
    assert graph_to_bytes(graph) == node_writer_by_message(graph)


@pytest.mark.parametrize("names", [("T", "Tpaddings", "Tp"), ("a", "a\0", "aé", "")])
def test_attributes_with_a_common_prefix_are_sorted(names: tuple[str, ...]) -> None:
    graph = Graph([Node("n", "Op", attrs=dict.fromkeys(names, attr.integer(1)))])
    assert graph_to_bytes(graph) == node_writer_by_message(graph)


@pytest.mark.parametrize("device", ["", "/cpu:0"])
def test_node_with_large_content_is_written_as_protobuf_writes_it(device: str) -> None:
    large = attr.tensor(Tensor.packed(np.zeros(LARGE, np.uint8)))
    node = Node("n", "Const", device=device, attrs={"value": large})
    assert graph_to_bytes(Graph([node])) == node_writer_by_message(Graph([node]))


EXAMPLES = {
    "string": (attr.string("NHWC"), b"NHWC"),
    "int": (attr.integer(-3), -3),
    "float": (attr.floating(0.5), 0.5),
    "bool": (attr.boolean(False), False),
    "type": (attr.dtype(DType.HALF), DType.HALF),
    "shape": (attr.shape((-1, 3)), (-1, 3)),
    "tensor": (attr.tensor(Tensor.of(np.int32(3))), Tensor.of(np.int32(3))),
    "list(int)": (attr.integers(1, 2), (1, 2)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_constructed_values_survive_serialization(kind: str) -> None:
    attr_value, value = EXAMPLES[kind]
    assert (attr_value.kind, attr_value.value) == (kind, value)
    proto = pb.AttrValue()
    attr_to_proto(attr_value, proto)
    assert attr_from_proto(proto, [], "test") == attr_value


def test_strings_are_stored_as_utf8() -> None:
    assert attr.string("\N{DEGREE SIGN}") == attr.string("\N{DEGREE SIGN}".encode())


def test_unknown_rank_is_not_a_scalar() -> None:
    assert attr.shape(None) != attr.shape(())


def test_empty_list_has_no_element_kind() -> None:
    proto = pb.AttrValue()
    attr_to_proto(attr.integers(), proto)
    assert attr_from_proto(proto, [], "test") == AttrValue("list", ())


def test_equal_values_of_different_kinds_differ() -> None:
    assert attr.integer(1) != attr.boolean(True)
    assert attr.integer(1) != attr.floating(1.0)
    assert attr.string("a") != AttrValue("placeholder", "a")


def test_functions_are_equal_by_name_and_bindings() -> None:
    f = FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f == FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f != FuncRef("f", {"T": attr.dtype(DType.HALF)})
    assert f != FuncRef("f")

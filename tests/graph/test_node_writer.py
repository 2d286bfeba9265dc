"""Nodes are written byte for byte like protobuf's deterministic serialization."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import LARGE
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import NodeWriter, attr_to_proto
from mobileprep.graph.refs import CONTROL, Ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.graph.tensor import Tensor


def by_message(graph: Graph) -> bytes:
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
VALUES = st.one_of(
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
NODES = st.builds(
    Node,
    STRINGS,
    STRINGS,
    st.lists(REFS, max_size=3).map(tuple),
    STRINGS,
    st.dictionaries(st.text(alphabet="aTé\0b", max_size=3), VALUES, max_size=6),
    st.tuples(st.binary(max_size=3), st.binary(max_size=3)),
)


@given(st.lists(NODES, max_size=8))
def test_nodes_are_written_as_protobuf_writes_them(nodes: list[Node]) -> None:
    graph = Graph([*nodes, *nodes])
    assert graph_to_bytes(graph) == by_message(graph)


@pytest.mark.parametrize("names", [("T", "Tpaddings", "Tp"), ("a", "a\0", "aé", "")])
def test_attributes_with_a_common_prefix_are_sorted(names: tuple[str, ...]) -> None:
    graph = Graph([Node("n", "Op", attrs=dict.fromkeys(names, attr.integer(1)))])
    assert graph_to_bytes(graph) == by_message(graph)


def test_attributes_freed_while_writing_are_not_confused() -> None:
    nodes = (Node(f"n{i}", "Op", attrs={"i": attr.integer(i)}) for i in range(3000))
    graph = Graph(nodes)
    assert graph_to_bytes(graph) == by_message(graph)


@pytest.mark.parametrize("device", ["", "/cpu:0"])
def test_node_with_large_content_has_no_record(device: str) -> None:
    large = attr.tensor(Tensor.packed(np.zeros(LARGE, np.uint8)))
    writer = NodeWriter(1)
    node = Node("n", "Const", device=device, attrs={"value": large})
    assert writer.record(node) is None
    assert graph_to_bytes(Graph([node])) == by_message(Graph([node]))

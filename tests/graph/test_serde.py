"""Serialization of graphs."""

from __future__ import annotations

import mmap
import random
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    UnsupportedError,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import LARGE, PAYLOAD_FIELD, delimited
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.serde import graph_from_bytes, graph_to_bytes
from mobileprep.graph.tensor import Tensor
from tests.graph.graphs import EVERY_ATTR, NUMBERS, const_proto


def parsed(text: str) -> pb.GraphDef:
    return text_format.Parse(text, pb.GraphDef())


def round_trip(graph: pb.GraphDef) -> pb.GraphDef:
    ours = graph_from_bytes(graph.SerializeToString(), "test")
    return pb.GraphDef.FromString(graph_to_bytes(ours))


def first_tensor(graph: pb.GraphDef) -> Tensor:
    return graph_from_bytes(graph.SerializeToString(), "g").nodes[0].attr_tensor("value")


def test_every_kind_of_attribute_and_function_survives() -> None:
    graph = parsed(EVERY_ATTR)
    assert round_trip(graph) == graph


@pytest.mark.parametrize("count", [1, 3, 2 * LARGE])
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.short)
def test_content_of_every_type_survives(dtype: DType, count: int) -> None:
    graph = const_proto(dtype, as_content=True, count=count)
    assert round_trip(graph) == graph
    array = first_tensor(graph).array()
    assert array.astype(np.complex128).tolist() == [i % 2 for i in range(count)]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("DT_FLOAT", "float_val: 1.5 float_val: 2", [1.5, 2, 2, 2]),
        ("DT_DOUBLE", "double_val: 1.5", [1.5] * 4),
        ("DT_INT32", "int_val: -1", [-1] * 4),
        ("DT_UINT8", "int_val: 255", [255] * 4),
        ("DT_INT8", "int_val: -3 int_val: 4 int_val: 5 int_val: 6", [-3, 4, 5, 6]),
        ("DT_QUINT8", "int_val: 200", [200] * 4),
        ("DT_INT64", "int64_val: -9000000000", [-9000000000] * 4),
        ("DT_UINT64", "uint64_val: 18446744073709551615", [2**64 - 1] * 4),
        ("DT_UINT32", "uint32_val: 7", [7] * 4),
        ("DT_BOOL", "bool_val: true bool_val: false", [True, False, False, False]),
        ("DT_HALF", "half_val: 15360", [1.0] * 4),
        ("DT_BFLOAT16", "half_val: 16256", [1.0] * 4),
        ("DT_COMPLEX64", "scomplex_val: 1 scomplex_val: 2", [1 + 2j] * 4),
        ("DT_COMPLEX128", "dcomplex_val: 1 dcomplex_val: 2", [1 + 2j] * 4),
        ("DT_STRING", 'string_val: "a" string_val: ""', [b"a", b"", b"", b""]),
        ("DT_FLOAT", "", [0.0] * 4),
        ("DT_STRING", "", [b""] * 4),
    ],
)
def test_last_listed_value_is_repeated(dtype: str, values: str, expected: list[object]) -> None:
    text = f"tensor {{ dtype: {dtype} tensor_shape {{ dim {{ size: 4 }} }} {values} }}"
    graph = parsed(f'node {{ name: "c" op: "Const" attr {{ key: "value" value {{ {text} }} }} }}')
    assert round_trip(graph) == graph
    assert first_tensor(graph).array().tolist() == expected


def test_splat_is_written_as_one_number() -> None:
    graph = const_proto(DType.FLOAT, as_content=False, count=1 << 20)
    graph.node[0].attr["value"].tensor.float_val.append(2.5)
    data = graph_to_bytes(graph_from_bytes(graph.SerializeToString(), "t"))
    assert len(data) < 100


def test_large_constants_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.pb"
    write_graph(path, Graph([constant("c", Tensor.of(np.arange(5000, dtype=np.float32)))]))
    with path.open("rb") as stream:
        mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    array = graph_from_bytes(mapped, "g").nodes[0].attr_tensor("value").array()
    assert np.shares_memory(array, np.frombuffer(mapped, np.uint8))
    assert array.tolist() == list(range(5000))


def test_large_float_values_are_views() -> None:
    graph = const_proto(DType.FLOAT, as_content=False, count=5000)
    graph.node[0].attr["value"].tensor.float_val.extend(range(5000))
    data = graph.SerializeToString()
    array = graph_from_bytes(data, "g").nodes[0].attr_tensor("value").array()
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert array.tolist() == list(range(5000))


def test_last_of_repeated_contents_wins_as_in_protobuf() -> None:
    first = pb.TensorProto(tensor_content=bytes(4 * LARGE)).SerializeToString()
    second = const_proto(DType.FLOAT, as_content=True, count=LARGE).node[0].attr["value"].tensor
    value = delimited(8, first + second.SerializeToString())
    node = delimited(1, b"c") + delimited(5, delimited(1, b"value") + delimited(2, value))
    array = graph_from_bytes(delimited(1, node), "g").nodes[0].attr_tensor("value").array()
    assert array.tolist() == [i % 2 for i in range(LARGE)]


def test_nan_bits_are_preserved() -> None:
    bits = np.array([0x7FC00001, 0xFF800001, 0x80000000], np.uint32)
    graph = const_proto(DType.FLOAT, as_content=True)
    graph.node[0].attr["value"].tensor.tensor_content = bits.tobytes()
    assert round_trip(graph).node[0].attr["value"].tensor.tensor_content == bits.tobytes()


def test_unknown_types_are_preserved() -> None:
    graph = pb.GraphDef()
    node = graph.node.add(name="a", op="Future")
    node.attr["T"].type = 77
    node.attr["value"].tensor.dtype = 77
    node.attr["value"].tensor.tensor_content = b"??"
    assert round_trip(graph) == graph


def test_resource_handles_are_preserved() -> None:
    graph = parsed(
        'node { name: "a" op: "Const" attr { key: "value" value { tensor { dtype: DT_RESOURCE '
        'tensor_shape { } resource_handle_val { name: "v" container: "c" } } } } }'
    )
    assert round_trip(graph) == graph


def test_equal_graphs_give_equal_bytes() -> None:
    data = parsed(EVERY_ATTR).SerializeToString()
    one, other = (graph_to_bytes(graph_from_bytes(data, name)) for name in "ab")
    assert one == other


@pytest.mark.parametrize("count", [3, LARGE])
def test_internal_payload_field_is_refused(count: int) -> None:
    graph = const_proto(DType.FLOAT, as_content=True, count=count)
    graph.node[0].attr["value"].tensor.payload = 1
    with pytest.raises(CorruptFileError, match="no TensorFlow writes"):
        graph_from_bytes(graph.SerializeToString(), "g")
    assert pb.TensorProto.DESCRIPTOR.fields_by_name["payload"].number == PAYLOAD_FIELD


def test_payload_field_cannot_refer_to_another_constant() -> None:
    graph = const_proto(DType.FLOAT, as_content=True, count=LARGE)
    graph.node.extend(const_proto(DType.FLOAT, as_content=False, count=LARGE).node)
    graph.node[1].attr["value"].tensor.payload = 1
    with pytest.raises(CorruptFileError, match="no TensorFlow writes"):
        graph_from_bytes(graph.SerializeToString(), "g")


@pytest.mark.parametrize("dtype", [DType.INT32, DType.DOUBLE, DType.STRING, DType.HALF])
def test_elements_in_the_field_of_another_type_are_ignored(dtype: DType) -> None:
    graph = const_proto(DType.FLOAT, as_content=False, count=LARGE)
    tensor = graph.node[0].attr["value"].tensor
    tensor.float_val.extend([7.0] * LARGE)
    tensor.dtype = dtype.value
    array = first_tensor(graph).array()
    assert array.dtype == (dtype.numpy or object)
    assert set(array.tolist()) == ({0} if dtype.numpy else {b""})


def test_large_tensors_of_unknown_types_are_preserved() -> None:
    graph = const_proto(DType.FLOAT, as_content=True, count=LARGE)
    graph.node[0].attr["value"].tensor.dtype = 77
    assert round_trip(graph) == graph


@pytest.mark.parametrize("rank", [33, 65, 254])
def test_too_many_axes_for_numpy_are_an_error(rank: int) -> None:
    graph = const_proto(DType.FLOAT, as_content=True, count=1)
    shape = graph.node[0].attr["value"].tensor.tensor_shape
    for _ in range(rank - 1):
        shape.dim.add(size=1)
    assert round_trip(graph) == graph
    tensor = first_tensor(graph)
    try:
        assert tensor.array().ndim == rank
    except UnsupportedError as error:
        assert f"{rank} axes" in error.message


def test_empty_tensor_with_a_huge_axis_is_an_error() -> None:
    graph = const_proto(DType.FLOAT, as_content=False, count=0)
    graph.node[0].attr["value"].tensor.tensor_shape.dim.add(size=1 << 62)
    tensor = first_tensor(graph)
    with pytest.raises(MobileprepError):
        tensor.array()


def test_content_of_the_wrong_length_is_refused() -> None:
    graph = const_proto(DType.FLOAT, as_content=True)
    graph.node[0].attr["value"].tensor.tensor_content = b"12345"
    with pytest.raises(CorruptFileError, match="needs 12 bytes: 5 found"):
        graph_from_bytes(graph.SerializeToString(), "g")


@pytest.mark.parametrize("sizes", [[-2], [1 << 40, 1 << 40], [-1]])
def test_impossible_shapes_are_refused(sizes: list[int]) -> None:
    graph = const_proto(DType.FLOAT, as_content=False)
    del graph.node[0].attr["value"].tensor.tensor_shape.dim[:]
    for size in sizes:
        graph.node[0].attr["value"].tensor.tensor_shape.dim.add(size=size)
    with pytest.raises(InvalidGraphError, match="cannot have the shape"):
        graph_from_bytes(graph.SerializeToString(), "g")


def test_huge_splat_is_not_expanded() -> None:
    graph = const_proto(DType.FLOAT, as_content=False)
    graph.node[0].attr["value"].tensor.tensor_shape.dim[0].size = 1 << 40
    tensor = first_tensor(graph)
    with pytest.raises(InvalidGraphError, match="would take 4398046511104"):
        tensor.array()


def damaged_graph() -> bytes:
    graph = parsed(EVERY_ATTR)
    graph.node.extend(const_proto(DType.FLOAT, as_content=True, count=LARGE).node)
    return graph.SerializeToString()


def read_or_refuse(data: bytes) -> None:
    """Read a graph and its constants. Only a MobileprepError may be raised."""
    try:
        graph = graph_from_bytes(data, "g")
        for node in graph:
            for value in node.attrs.values():
                if value.kind == "tensor" and value.value.dtype.numpy is not None:
                    value.value.array()
        graph_to_bytes(graph)
    except MobileprepError:
        return


def test_truncated_graphs_raise_only_our_errors() -> None:
    data = damaged_graph()
    for end in [*range(1600), *range(1600, len(data), 97)]:
        read_or_refuse(data[:end])


def test_flipped_bits_raise_only_our_errors() -> None:
    data = damaged_graph()
    generator = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(data)
        # Mostly in the structure, which comes first. The content of the constant is last.
        position = generator.randrange(1700 if generator.random() < 0.9 else len(data))
        damaged[position] ^= 1 << generator.randrange(8)
        read_or_refuse(bytes(damaged))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_invalid_utf8_in_a_node_is_refused(number: int) -> None:
    node = delimited(1, b"a") + delimited(number, b"\xff\xfe")
    with pytest.raises(CorruptFileError, match="not a binary GraphDef"):
        graph_from_bytes(delimited(1, node), "g")


def test_invalid_utf8_in_an_attribute_name_is_refused() -> None:
    value = delimited(2, pb.AttrValue(i=1).SerializeToString())
    entries = [delimited(5, delimited(1, key) + value) for key in (b"T", b"\xff\xfe")]
    with pytest.raises(CorruptFileError, match="not a binary GraphDef"):
        graph_from_bytes(delimited(1, delimited(1, b"a") + b"".join(entries)), "g")


def test_deep_nesting_is_an_error() -> None:
    value = pb.AttrValue(i=1).SerializeToString()
    for _ in range(2000):
        value = delimited(10, delimited(1, b"f") + delimited(2, delimited(2, value)))
    node = delimited(1, b"a") + delimited(5, delimited(1, b"k") + delimited(2, value))
    with pytest.raises(CorruptFileError):
        graph_from_bytes(delimited(1, node), "g")

"""Serialization of graphs."""

from __future__ import annotations

import hashlib
import mmap
import random
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from msgspec.structs import replace

from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    UnsupportedError,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.parts import Part, read_between, read_index
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.wire import LARGE, PAYLOAD_FIELD, delimited
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.files import APART, file_index, graph_from_index, graph_index, write_graph
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import (
    graph_from_bytes,
    graph_to_bytes,
    graph_to_pieces,
    serialized_size,
)
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.tensor_digests import tensor_digests
from tests.data.calibration.graphs import layer
from tests.graph.graphs import EVERY_ATTR, NUMBERS, const_proto
from tests.ops.graphs import c, n, p


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


RNG = np.random.default_rng(5)
BELOW = APART // 4 - 1


class ContentStore:
    """Store contents by digest, like the cache."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def add(self, tensor: Tensor) -> Part:
        data = bytes(tensor.raw())
        digest = hashlib.sha256(data).hexdigest()
        self.contents[digest] = data
        return Part(digest, len(data))

    def find(self, part: Part) -> memoryview:
        assert len(self.contents[part.sha256]) == part.size
        return memoryview(self.contents[part.sha256])


def floats(count: int) -> Tensor:
    return Tensor.of(RNG.standard_normal(count).astype(np.float32))


STORED_LARGE, OTHER = floats(APART), floats(APART)
TENSORS = {
    "large": STORED_LARGE,
    "same again": STORED_LARGE,
    "least": floats(APART // 4),
    "below": floats(BELOW),
    "scalar": Tensor.of(np.float32(3)),
    "filled": Tensor(DType.FLOAT, (1 << 20,), values=np.array([2.5], np.float32)),
    "listed": Tensor(DType.FLOAT, (APART,), values=np.arange(APART, dtype=np.float32)),
    "empty": Tensor.of(np.zeros((0, 3), np.int64)),
    "texts": Tensor.of(np.array([b"a" * APART, b""], object)),
    "halves": Tensor.of(RNG.standard_normal(APART).astype(np.float16)),
    "eighths": Tensor.of(np.arange(APART).astype(np.uint8), DType.QUINT8),
}


def large_graph() -> Graph:
    nodes = [constant(name.replace(" ", "_"), value) for name, value in TENSORS.items()]
    listed = Node("two", "Odd", attrs={"a": attr.tensor(STORED_LARGE), "b": attr.tensor(OTHER)})
    return Graph([*nodes, listed], versions=Versions(27, 3, (9,)))


def restored(graph: Graph) -> tuple[Graph, bytes, ContentStore]:
    store = ContentStore()
    data = graph_index(graph, store.add)
    return graph_from_index(data, store.find, "f"), data, store


def test_graph_survives_a_round_trip() -> None:
    result, _, _ = restored(large_graph())
    assert graph_to_bytes(result) == graph_to_bytes(large_graph())
    assert result.versions == large_graph().versions
    assert result["large"].attr_tensor("value") == STORED_LARGE


def test_contents_in_functions_are_not_separated() -> None:
    body = Function(OpDef("f"), (constant("inside", STORED_LARGE),))
    graph = Graph([], Library({"f": body}))
    result, data, store = restored(graph)
    assert graph_to_bytes(result) == graph_to_bytes(graph)
    assert store.contents == {}
    assert len(data) > STORED_LARGE.nbytes


def test_only_large_contents_are_separated_and_each_once() -> None:
    _, data, store = restored(large_graph())
    sizes = sorted(len(content) for content in store.contents.values())
    large = [STORED_LARGE.nbytes, APART, STORED_LARGE.nbytes, 2 * APART, APART, STORED_LARGE.nbytes]
    assert sizes == sorted(large)
    assert len(data) < BELOW * 4 + 2 * APART + 4096


def test_restored_tensors_have_digests() -> None:
    result, _, store = restored(large_graph())
    tensor = result["least"].attr_tensor("value")
    assert tensor.digest() == hashlib.sha256(store.contents[tensor.digest()]).hexdigest()
    assert graph_index(result, store.add) == graph_index(large_graph(), store.add)


def test_file_is_assembled_from_its_index() -> None:
    graph = large_graph()
    store = ContentStore()
    data = file_index(graph_to_pieces(graph), store.add)
    pieces = [store.find(p) if isinstance(p, Part) else p for p in read_between(data, "f")]
    assert b"".join(pieces) == graph_to_bytes(graph)
    assert serialized_size(graph) == len(graph_to_bytes(graph))


def test_renamed_graph_adds_little_to_the_store() -> None:
    graph = Graph([constant(f"w{i}", floats(100_000)) for i in range(3)])
    store = ContentStore()
    graph_index(graph, store.add)
    before = set(store.contents)
    renamed = Graph([constant(f"v{i}", n.attr_tensor("value")) for i, n in enumerate(graph)])
    assert len(graph_index(renamed, store.add)) < 1000
    assert set(store.contents) == before


def test_tensor_with_external_content_is_equal() -> None:
    values = RNG.standard_normal(1000).astype(np.float32)
    tensor = Tensor.of(values)
    tensor.lying_at(memoryview(values.tobytes()), tensor.digest())
    np.testing.assert_array_equal(tensor.array(), values)
    assert tensor == Tensor.of(values)


def test_damaged_index_is_refused() -> None:
    store = ContentStore()
    data = graph_index(large_graph(), store.add)
    parts, body = read_index(data, "f")
    for damaged in (data[:40], data[: len(data) - 3], b"", data[:19] + b"\xff" * 4 + data[23:]):
        with pytest.raises(CorruptFileError):
            graph_from_index(damaged, store.find, "f")
    assert len(parts) == 8
    assert graph_from_bytes(bytes(body)[:0], "f").nodes == ()


FED = [("x", 0)]
ALL = [("x", 0), ("product", 0), ("sum", 0), ("y", 0)]


def digests(graph: Graph) -> dict[str, str]:
    result = tensor_digests(graph, ALL, FED)
    assert all(len(digest) == 16 for digest in result.values())
    return {name: digest for (name, _), digest in result.items()}


def changed(graph: Graph) -> set[str]:
    before = digests(layer())
    return {name for name, digest in digests(graph).items() if digest != before[name]}


def with_node(node: Node) -> Graph:
    return layer().with_nodes(node if other.name == node.name else other for other in layer())


def test_digests_are_unique() -> None:
    assert len(set(digests(layer()).values())) == 4


def test_change_affects_all_dependent_tensors() -> None:
    bias = constant("b", Tensor.of(np.array([0.5, -1, 2.5], np.float32)))
    assert changed(with_node(bias)) == {"sum", "y"}
    product = layer()["product"].with_attrs(transpose_b=attr.boolean(True))
    assert changed(with_node(product)) == {"product", "sum", "y"}
    assert changed(with_node(replace(layer()["y"], op="Relu6"))) == {"y"}


def test_devices_node_names_and_constant_encodings_are_ignored() -> None:
    assert changed(with_node(replace(layer()["sum"], device="/cpu:0"))) == set()
    renamed = layer().with_nodes(
        replace(
            node,
            name={"w": "v"}.get(node.name, node.name),
            inputs=tuple(r.renamed("v") if r.node == "w" else r for r in node.inputs),
        )
        for node in layer()
    )
    assert changed(renamed) == set()
    assert changed(graph_from_bytes(graph_to_bytes(layer()), "graph")) == set()
    same = constant("b", Tensor.packed(np.array([0.5, -1, 2], np.float32)))
    assert changed(with_node(same)) == set()


def test_nodes_before_a_fed_tensor_are_ignored() -> None:
    first = tensor_digests(layer(), [("y", 0)], [("sum", 0)])
    bias = constant("b", Tensor.of(np.array([9, 9, 9], np.float32)))
    assert tensor_digests(with_node(bias), [("y", 0)], [("sum", 0)]) == first


@pytest.mark.parametrize("name", ["body", "y"])
def test_every_node_of_a_loop_counts(name) -> None:
    def loop(factor: float) -> Graph:
        frame = {"frame_name": "f"}
        return Graph(
            [
                p("x"),
                n("enter", "Enter", "x", **frame),
                n("head", "Merge", "enter", "next"),
                n("limit", "Enter", "hundred", **frame, is_constant=True),
                c("hundred", 100.0),
                n("more", "Less", "head", "limit"),
                n("cond", "LoopCond", "more"),
                n("switch", "Switch", "head", "cond"),
                n("body", "Identity", "switch:1"),
                c("factor", factor, "^body"),
                n("double", "Mul", "body", "factor"),
                n("next", "NextIteration", "double"),
                n("y", "Exit", "switch:0"),
            ]
        )

    tensor = parse_ref(name)
    two, again, three = (
        tensor_digests(loop(factor), [(tensor.node, 0)], FED) for factor in (2.0, 2.0, 3.0)
    )
    assert two == again
    assert two != three

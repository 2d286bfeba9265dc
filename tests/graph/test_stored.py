"""Graphs whose large tensors are stored in separate files."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.parts import Part, read_between, read_index
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import APART, file_index, graph_from_index, graph_index
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.serde import (
    graph_from_bytes,
    graph_to_bytes,
    graph_to_pieces,
    serialized_size,
)
from mobileprep.graph.tensor import Tensor

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


LARGE, OTHER = floats(APART), floats(APART)
TENSORS = {
    "large": LARGE,
    "same again": LARGE,
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
    listed = Node("two", "Odd", attrs={"a": attr.tensor(LARGE), "b": attr.tensor(OTHER)})
    return Graph([*nodes, listed], versions=Versions(27, 3, (9,)))


def restored(graph: Graph) -> tuple[Graph, bytes, ContentStore]:
    store = ContentStore()
    data = graph_index(graph, store.add)
    return graph_from_index(data, store.find, "f"), data, store


def test_graph_survives_a_round_trip() -> None:
    result, _, _ = restored(large_graph())
    assert graph_to_bytes(result) == graph_to_bytes(large_graph())
    assert result.versions == large_graph().versions
    assert result["large"].attr_tensor("value") == LARGE


def test_contents_in_functions_are_not_separated() -> None:
    body = Function(OpDef("f"), (constant("inside", LARGE),))
    graph = Graph([], Library({"f": body}))
    result, data, store = restored(graph)
    assert graph_to_bytes(result) == graph_to_bytes(graph)
    assert store.contents == {}
    assert len(data) > LARGE.nbytes


def test_only_large_contents_are_separated_and_each_once() -> None:
    _, data, store = restored(large_graph())
    sizes = sorted(len(content) for content in store.contents.values())
    large = [LARGE.nbytes, APART, LARGE.nbytes, 2 * APART, APART, LARGE.nbytes]
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

"""Graphs whose large tensors lie in files of their own."""

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


class Kept:
    """Contents by digest, as a store has them."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def keep(self, tensor: Tensor) -> Part:
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


def graph(library: Library | None = None) -> Graph:
    nodes = [constant(name.replace(" ", "_"), value) for name, value in TENSORS.items()]
    listed = Node("two", "Odd", attrs={"a": attr.tensor(LARGE), "b": attr.tensor(OTHER)})
    return Graph([*nodes, listed], library, Versions(27, 3, (9,)))


def restored(of: Graph) -> tuple[Graph, bytes, Kept]:
    kept = Kept()
    data = graph_index(of, kept.keep)
    return graph_from_index(data, kept.find, "f"), data, kept


def test_a_graph_comes_back_as_it_was() -> None:
    found, _, _ = restored(graph())
    assert graph_to_bytes(found) == graph_to_bytes(graph())
    assert found.versions == graph().versions
    assert found["large"].attr_tensor("value") == LARGE


def test_contents_in_functions_stay_where_they_are() -> None:
    body = Function(OpDef("f"), (constant("inside", LARGE),))
    of = Graph([], Library({"f": body}))
    found, data, kept = restored(of)
    assert graph_to_bytes(found) == graph_to_bytes(of)
    assert kept.contents == {}
    assert len(data) > LARGE.nbytes


def test_large_contents_lie_apart_each_once_and_small_ones_do_not() -> None:
    _, data, kept = restored(graph())
    sizes = sorted(len(content) for content in kept.contents.values())
    large = [LARGE.nbytes, APART, LARGE.nbytes, 2 * APART, APART, LARGE.nbytes]
    assert sizes == sorted(large)
    assert len(data) < BELOW * 4 + 2 * APART + 4096


def test_what_was_read_knows_its_digests() -> None:
    found, _, kept = restored(graph())
    tensor = found["least"].attr_tensor("value")
    assert tensor.digest() == hashlib.sha256(kept.contents[tensor.digest()]).hexdigest()
    again = graph_index(found, kept.keep)
    assert again == graph_index(graph(), kept.keep)


def test_the_file_is_put_together_from_its_index() -> None:
    of = graph()
    kept = Kept()
    data = file_index(graph_to_pieces(of), kept.keep)
    pieces = [kept.find(p) if isinstance(p, Part) else p for p in read_between(data, "f")]
    assert b"".join(pieces) == graph_to_bytes(of)
    assert serialized_size(of) == len(graph_to_bytes(of))


def test_a_renamed_graph_of_millions_of_weights_takes_little() -> None:
    of = Graph([constant(f"w{i}", floats(100_000)) for i in range(3)])
    kept = Kept()
    graph_index(of, kept.keep)
    before = set(kept.contents)
    renamed = Graph([constant(f"v{i}", n.attr_tensor("value")) for i, n in enumerate(of)])
    assert len(graph_index(renamed, kept.keep)) < 1000
    assert set(kept.contents) == before


def test_a_tensor_that_lies_elsewhere_is_the_same_tensor() -> None:
    values = RNG.standard_normal(1000).astype(np.float32)
    tensor = Tensor.of(values)
    tensor.lying_at(memoryview(values.tobytes()), tensor.digest())
    np.testing.assert_array_equal(tensor.array(), values)
    assert tensor == Tensor.of(values)


def test_a_damaged_index_is_refused() -> None:
    kept = Kept()
    data = graph_index(graph(), kept.keep)
    parts, body = read_index(data, "f")
    for damaged in (data[:40], data[: len(data) - 3], b"", data[:19] + b"\xff" * 4 + data[23:]):
        with pytest.raises(CorruptFileError):
            graph_from_index(damaged, kept.find, "f")
    assert len(parts) == 8
    assert graph_from_bytes(bytes(body)[:0], "f").nodes == ()

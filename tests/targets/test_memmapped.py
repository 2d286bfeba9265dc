"""Memory-mapped models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.kinds import file_kind
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.files import read_graph, read_shipped_graph, write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.targets.memmapped import MemmapResult, convert, write_memmapped


def op(name: str, kind: str, *inputs: str, **attrs: AttrValue) -> Node:
    refs = tuple(parse_ref(text) for text in inputs)
    return Node(name, kind, refs, attrs={"T": attr.dtype(DType.FLOAT), **attrs})


def weights(name: str, *shape: int, dtype: DType = DType.FLOAT) -> Node:
    return constant(name, Tensor.of(np.ones(shape), dtype))


def graph_of(*nodes: Node) -> Graph:
    feed = Node("x", "Placeholder", attrs={"dtype": attr.dtype(DType.FLOAT)})
    return Graph([feed, *nodes])


def mapped(done: MemmapResult) -> list[str]:
    return [n.name for n in done.model.graph if n.op == "ImmutableConst"]


def product(*nodes: Node) -> Graph:
    return graph_of(*nodes, op("y", "MatMul", "x", nodes[-1].name))


@pytest.mark.parametrize("size", [9999, 10_000])
def test_only_large_constants_are_mapped(size: int) -> None:
    graph = product(weights("w", size, dtype=DType.UINT8))
    assert mapped(convert(graph, quantized=False, safe=True)) == (["w"] if size == 10_000 else [])


@pytest.mark.parametrize("dtype", [DType.QUINT8, DType.QINT8, DType.QINT32, DType.QUINT16])
def test_quantized_constants_are_mapped_on_request(dtype: DType) -> None:
    graph = product(weights("w", 100, dtype=dtype))
    assert mapped(convert(graph, 1, quantized=True, safe=True)) == ["w"]
    result = convert(graph, 1, quantized=False, safe=True)
    assert (mapped(result), result.quantized) == ([], ("w",))
    assert result.model.graph.nodes == graph.nodes


def test_strings_are_not_mapped() -> None:
    strings = constant("w", Tensor.of([b"text"] * 100))
    done = convert(product(strings), 1, quantized=True, safe=False)
    assert (mapped(done), done.quantized, done.written) == ([], (), ())


@pytest.mark.parametrize("kind", ["Identity", "Reshape", "Enter"])
def test_constants_that_may_be_overwritten_are_not_mapped(kind: str) -> None:
    graph = graph_of(
        weights("read", 5), weights("w", 5), op("i", kind, "w"), op("j", "Identity", "i"),
        op("y", "MatMul", "j", "read"), op("z", "Relu", "j"),
    )  # fmt: skip
    done = convert(graph, 1, quantized=False, safe=True)
    assert mapped(done) == ["read"]
    assert done.written == (("w", "z"),)
    assert mapped(convert(graph, 1, quantized=False, safe=False)) == ["read", "w"]


@pytest.mark.parametrize(
    ("node", "written"),
    [
        (op("y", "BiasAdd", "x", "w"), False),
        (op("y", "BiasAdd", "w", "x"), True),
        (op("y", "Add", "x", "w"), True),
        (op("y", "Conv2D", "w", "w"), False),
        (op("y", "Unknown", "w"), True),
        (op("y", "Unknown", "x", "^w"), False),
    ],
)
def test_constants_are_mapped_if_the_op_only_reads_the_input(node: Node, written: bool) -> None:
    done = convert(graph_of(weights("w", 5), node), 1, quantized=False, safe=True)
    assert mapped(done) == ([] if written else ["w"])


def test_region_names_are_unique() -> None:
    names = ["a/b", "a-b", "a_b", "ü"]
    done = convert(graph_of(*(weights(n, 5) for n in names)), 1, quantized=False, safe=True)
    regions = [n.removeprefix("memmapped_package://") for n, _ in done.model.regions]
    assert regions == ["a_b", "a_b_", "a_b__", "__"]


def test_mapped_node_keeps_its_device_and_control_inputs() -> None:
    value = Tensor.of(np.ones(5, np.float32))
    node = constant("w", value, "/cpu:0", (parse_ref("^x"),))
    (_, mapped_node) = convert(graph_of(node), 1, quantized=False, safe=True).model.graph.nodes
    assert (mapped_node.device, mapped_node.inputs) == (node.device, node.inputs)
    assert mapped_node.attrs == {
        "dtype": attr.dtype(DType.FLOAT),
        "shape": attr.shape((5,)),
        "memory_region_name": attr.string("memmapped_package://w"),
    }


def written(folder: Path, graph: Graph) -> Path:
    path = folder / "m.pb"
    write_memmapped(path, convert(graph, 1, quantized=True, safe=True).model)
    return path


def every_kind() -> Graph:
    filled = Tensor(DType.FLOAT, (4, 5), values=np.array([2.5], np.float32))
    return graph_of(
        weights("a", 3, 7), weights("q", 9, dtype=DType.QUINT8), constant("f", filled),
        op("y", "MatMul", "x", "a"),
    )  # fmt: skip


def test_graphs_are_read_back_with_their_constants(tmp_path: Path) -> None:
    graph = every_kind()
    path = written(tmp_path, graph)
    assert file_kind(path) == "GraphDef"
    assert read_graph(path).nodes == graph.nodes
    assert [n.op for n in read_shipped_graph(path)].count("ImmutableConst") == 3
    assert isinstance(read_graph(path)["a"].attr_tensor("value").content, memoryview)


def test_file_kind_does_not_depend_on_the_first_tensor(tmp_path: Path) -> None:
    for first in (b"node {", b"\x08\x01", b"PK\x03\x04", b"BMxxxx\0\0\0\0"):
        value = Tensor(DType.UINT8, (600,), content=first.ljust(600, b" "))
        path = written(tmp_path, graph_of(constant("w", value)))
        assert file_kind(path) == "GraphDef"
        assert read_graph(path)["w"].attr_tensor("value") == value


def test_graph_without_its_package_is_read(tmp_path: Path) -> None:
    shipped = read_shipped_graph(written(tmp_path, every_kind()))
    for text in (False, True):
        write_graph(tmp_path / "g.pb", shipped, as_text=text)
        assert [n.op for n in read_graph(tmp_path / "g.pb")] == [n.op for n in shipped]


def test_truncated_package_is_refused_with_its_path(tmp_path: Path) -> None:
    path = written(tmp_path, every_kind())
    data = path.read_bytes()
    for length in range(1, len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(MobileprepError) as caught:
            read_graph(path)
        assert str(path) in str(caught.value)
    path.write_bytes(data[:-5])
    with pytest.raises(CorruptFileError, match="the last eight bytes refer to byte"):
        read_graph(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_region_name": attr.string("memmapped_package://other")}, "does not exist"),
        ({"memory_region_name": attr.string("/etc/passwd")}, "does not exist"),
        ({"shape": attr.shape((1 << 40,))}, "are needed, has"),
        ({"shape": attr.shape((-1,))}, "cannot have the shape"),
        ({"shape": attr.shape(None)}, "has no region"),
        ({"dtype": attr.dtype(DType.STRING)}, "has no region"),
        ({"memory_region_name": attr.string("memmapped_package://.")}, "not a multiple of 64"),
    ],
)
def test_invalid_regions_are_refused(
    change: dict[str, AttrValue], message: str, tmp_path: Path
) -> None:
    graph = graph_of(weights("w", 3), op("y", "MatMul", "x", "w"))
    model = convert(graph, 1, quantized=True, safe=True).model
    nodes = [n.with_attrs(**change) if n.name == "w" else n for n in model.graph]
    changed = type(model)(model.graph.with_nodes(nodes), model.regions)
    write_memmapped(tmp_path / "m.pb", changed)
    for read in (read_graph, read_shipped_graph):
        with pytest.raises(MobileprepError, match=message):
            read(tmp_path / "m.pb")

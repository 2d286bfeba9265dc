"""The text format of graphs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Function, Graph, Library, Versions
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.text import graph_text, parse_graph_text
from tests.litert.graphs import const, feed, op

DIGITS = Path(__file__).resolve().parents[2] / "recipes" / "digits" / "model" / "graph.pbtxt"


def read_back(graph: Graph) -> Graph:
    return parse_graph_text(graph_text(graph, full=True))


def same(one: Graph, other: Graph) -> bool:
    return (one.nodes, one.library, one.versions) == (other.nodes, other.library, other.versions)


def test_each_node_has_a_line() -> None:
    weights = const("weights", np.float32([[1, 0.5], [-0.1, 1e-20]]))
    product = op("y", "MatMul", ["x", "weights", "^start"], T=DType.FLOAT, transpose_a=False)
    graph = Graph([feed("x", (-1, 2)), weights, product], versions=Versions(1482))
    assert str(graph).splitlines() == [
        "graph producer=1482",
        "x = Placeholder() dtype=float32 shape=<?x2>",
        "weights = Const() dtype=float32 value=float32<2x2>[1.0, 0.5, -0.1, 1.0e-20]",
        "y = MatMul(x, weights, ^start) T=float32 transpose_a=false",
    ]


def test_large_tensors_and_strings_are_abbreviated() -> None:
    long = Node("s", "Op", (), "", {"text": attr.string("a" * 100)})
    graph = Graph([const("w", np.arange(100, dtype=np.int32)), long])
    lines = str(graph).splitlines()
    digest = "...sha256 "
    assert lines[1].startswith(
        "w = Const() dtype=int32 value=int32<100>[0, 1, 2, 3, 4, 5, 6, 7, " + digest
    )
    assert lines[2].startswith('s = Op() text="' + "a" * 40 + '"...100 bytes, sha256 ')
    with pytest.raises(CorruptFileError, match=r"graph:2"):
        parse_graph_text(str(graph))
    assert same(read_back(graph), graph)


ATTRIBUTES = {
    "text": attr.string('quoted " and \n broken'),
    "bytes": attr.string(b"\xff\x00"),
    "int": attr.integer(-(1 << 40)),
    "float": attr.floating(float(np.float32(0.1))),
    "inf": attr.floating(float("-inf")),
    "flag": attr.boolean(True),
    "type": attr.dtype(DType.QINT8),
    "shape": attr.shape((1, -1, 3)),
    "scalar": attr.shape(()),
    "unknown": attr.shape(None),
    "function": AttrValue("func", FuncRef("f", {"T": attr.dtype(DType.FLOAT)})),
    "place": AttrValue("placeholder", "T"),
    "nothing": AttrValue("", None),
    "ints": attr.integers(1, 2, 3),
    "empty": AttrValue("list", ()),
    "shapes": AttrValue("list(shape)", ((1, 2), None, ())),
    "floats": AttrValue("list(float)", (1.0, -0.5)),
    "texts": AttrValue("list(string)", (b"a", b"\xfe")),
    "types": AttrValue("list(type)", (DType.FLOAT, DType.STRING)),
    "tensors": AttrValue("list(tensor)", (Tensor.of(np.int32([1, 2])), Tensor.of(np.float32(3)))),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_survive_a_round_trip(name: str) -> None:
    graph = Graph([Node("n", "Op", (Ref("a"), Ref("b", 2)), "/cpu:0", {name: ATTRIBUTES[name]})])
    assert same(read_back(graph), graph)


KINDS = [
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.bool_),
    *(np.int8, np.uint8, np.int64, np.uint64, np.complex64, ml_dtypes.int4),
]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 40)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
def test_tensors_survive_a_round_trip(kind: type, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal(shape) * 3
    graph = Graph([constant("c", Tensor.of(np.asarray(values).astype(kind)))])
    assert same(read_back(graph), graph)


def test_string_quantized_and_opaque_tensors_survive_a_round_trip() -> None:
    strings = Tensor.of(np.array([b"a", b"\xff" * 200], object))
    steps = Tensor.of(np.uint8([1, 2, 3]), DType.QUINT8)
    handle = Tensor(DType.RESOURCE, (), opaque=b"\x01\x02")
    graph = Graph([constant(f"c{i}", t) for i, t in enumerate((strings, steps, handle))])
    assert same(read_back(graph), graph)


def test_unusual_names_are_quoted() -> None:
    names = ["a b", "graph", "on", "ü", "", "function", "gradient", 'q"', "a/b:c", "x>y"]
    nodes = [Node(name, "Op", (parse_ref("graph"),)) for name in names]
    graph = Graph(nodes)
    assert same(read_back(graph), graph)


def test_functions_survive_a_round_trip() -> None:
    signature = OpDef(
        "double",
        (ArgDef("a", type_attr="T"), ArgDef("n", DType.INT32, number_attr="N", is_ref=True)),
        (ArgDef("b", DType.FLOAT), ArgDef("rest", type_list_attr="Tout")),
        (AttrDef("T", "type", attr.dtype(DType.FLOAT)), AttrDef("N", "int")),
        ("done",),
        is_stateful=True,
    )
    inner = Node("twice", "AddV2", (Ref("a"), Ref("a", 0, "z")), "", {"T": attr.dtype(DType.FLOAT)})
    function = Function(
        signature,
        (inner,),
        {"b": Ref("twice", 0, "z"), "rest": Ref("a")},
        {"done": "twice"},
        {"_noinline": attr.boolean(True)},
    )
    graph = Graph([], Library({"double": function}, (("double", "other"),)), Versions(21, 12, (3,)))
    assert same(read_back(graph), graph)
    assert str(graph).splitlines()[1] == (
        "function double(a: $T, n: ref $N * int32) -> (b: float32, rest: $Tout...) stateful"
        " _noinline=true {"
    )


def test_nodes_in_a_loop_are_indented() -> None:
    enter = op("enter", "Enter", ["x"], T=DType.FLOAT, frame_name="loop")
    merge = op("merge", "Merge", ["enter", "next"], T=DType.FLOAT, N=2)
    leave = op("exit", "Exit", ["merge"], T=DType.FLOAT)
    step = op("next", "NextIteration", ["merge"], T=DType.FLOAT)
    graph = Graph([feed("x", ()), enter, merge, leave, step, op("y", "Neg", ["exit"])])
    starts = [line[: len(line) - len(line.lstrip())] for line in str(graph).splitlines()]
    assert starts == ["", "", "  ", "  ", "  ", "  ", ""]
    assert same(read_back(graph), graph)


def test_real_graph_survives_a_round_trip() -> None:
    graph = read_graph(DIGITS)
    # Debug information is not part of the text.
    graph = graph.with_nodes(replace(node, debug_info=(b"", b"")) for node in graph)
    result = read_back(graph)
    assert same(result, graph)
    assert graph_text(result) == graph_text(graph)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("x = ", "graph:1"),
        ("x = Op(", "graph:1"),
        ("x = Op() a=", "graph:1"),
        ("\nx = Op() a=float32<9999999999x9999>[1]", "graph:2"),
        ("x = Op() a=float32<2>[1.0]", "graph:1"),
        ('x = Op() a=float32<2> b"AA=="', "graph:1"),
        ("x = Op() a=int32<1>[1.5]", "graph:1"),
        ("x = Op() a=[1, true]", "graph:1"),
        ("x = Op() a=<1xq>", "graph:1"),
        ("function f() -> () {\nx = Op()", "graph:2"),
        ("function f(a: strange) -> () {\n}", "graph:1"),
        ("x = Op() y", "graph:1"),
        ('x = Op() a="\\q"', "graph:1"),
    ],
)
def test_invalid_text_is_refused_with_its_line(text: str, location: str) -> None:
    with pytest.raises(CorruptFileError) as error:
        parse_graph_text(text)
    assert str(error.value).startswith(location)

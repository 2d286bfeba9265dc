"""TensorArrays."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, output_of, refused, unlike
from tests.ops.graphs import c, i32, n, p

ARRAY = output_of("TensorArrayV3", 4, element_shape=(2, 3), identical_element_shapes=True)
MIXED = output_of("TensorArrayV3", 4, element_shape=(2, 3))

OP_CASES = [
    case("TensorArrayV3", [4], [(2,), ()]),
    case("TensorArrayV2", [4], [(2,)]),
    case("TensorArrayWriteV3", [ARRAY, 0, (2, 3), ()], [()]),
    case("TensorArrayWriteV2", [(2,), 0, (3,), ()], [()]),
    case("TensorArrayReadV3", [ARRAY, 0, ()], [(2, 3)]),
    unlike(case("TensorArrayReadV3", [MIXED, 0, ()], [None])),
    case("TensorArrayReadV2", [(2,), 0, ()], [None]),
    unlike(case("TensorArrayGatherV3", [ARRAY, (4,), ()], [(4, 2, 3)])),
    unlike(case("TensorArrayGatherV3", [MIXED, (4,), ()], [(4, 2, 3)], element_shape=(2, 3))),
    unlike(case("TensorArrayGatherV3", [MIXED, (4,), ()], [None])),
    refused("TensorArrayGatherV3", [ARRAY, (4, 1), ()]),
    unlike(case("TensorArrayGatherV2", [(2,), (4,), ()], [(4, 5)], element_shape=(5,))),
    case("TensorArrayScatterV3", [ARRAY, (4,), (4, 2, 3), ()], [()]),
    case("TensorArrayScatterV2", [(2,), (4,), (4, 2, 3), ()], [()]),
    case("TensorArrayConcatV3", [ARRAY, ()], [None, (-1,)]),
    case("TensorArrayConcatV2", [(2,), ()], [None, (-1,)]),
    case("TensorArraySplitV3", [ARRAY, (9,), (4,), ()], [()]),
    case("TensorArraySplitV2", [(2,), (9,), (4,), ()], [()]),
    case("TensorArraySizeV3", [ARRAY, ()], [()]),
    case("TensorArraySizeV2", [(2,), ()], [()]),
    case("TensorArrayCloseV3", [ARRAY], []),
    case("TensorArrayCloseV2", [(2,)], []),
    case("TensorArrayGradV3", [ARRAY, ()], [(2,), ()], source="x"),
]

test_shapes_and_costs = case_tests(OP_CASES)


def array_nodes(*last: Node) -> Graph:
    """A TensorArray of size three with two elements written."""
    return Graph(
        [
            c("size", 3),
            c("zero", 0),
            c("two", 2),
            c("a", [1.0, 2.0]),
            c("b", [5.0, 6.0]),
            n(
                "array",
                "TensorArrayV3",
                "size",
                dtype=np.float32,
                identical_element_shapes=True,
            ),
            n("first", "TensorArrayWriteV3", "array", "zero", "a", "array:1"),
            n("second", "TensorArrayWriteV3", "array", "two", "b", "first"),
            *last,
        ]
    )


def test_array_write_and_read() -> None:
    graph = array_nodes(
        n("read", "TensorArrayReadV3", "array", "two", "second", dtype=np.float32),
        c("all", [2, 1, 0]),
        n("stack", "TensorArrayGatherV3", "array", "all", "second", dtype=np.float32),
        n("count", "TensorArraySizeV3", "array", "second"),
        n("joined", "TensorArrayConcatV3", "array", "second", dtype=np.float32),
    )
    out = Interpreter(graph).run(["read", "stack", "count", "joined", "joined:1"], {})
    # Elements that were not written are zeros of the shape of the others.
    assert [a.tolist() for a in out] == [
        [5, 6],
        [[5, 6], [0, 0], [1, 2]],
        3,
        [1, 2, 0, 0, 5, 6],
        [2, 2, 2],
    ]


def test_array_scatter_and_split() -> None:
    graph = array_nodes(
        c("places", [1, 0]),
        c("rows", [[7.0, 7.0], [8.0, 8.0]]),
        n("filled", "TensorArrayScatterV3", "array", "places", "rows", "second"),
        n("read", "TensorArrayReadV3", "array", "zero", "filled", dtype=np.float32),
        c("lengths", [1, 0, 1], dtype=np.int64),
        n("cut", "TensorArraySplitV3", "array", "rows", "lengths", "read_flow"),
        n("read_flow", "Identity", "filled", "^read"),
        n("part", "TensorArrayReadV3", "array", "two", "cut", dtype=np.float32),
    )
    out = Interpreter(graph).run(["read", "part"], {})
    assert [a.tolist() for a in out] == [[8, 8], [[8, 8]]]


def test_unwritten_element_is_zeros_of_the_known_shape() -> None:
    def read(identical: bool, shape: TensorShape, index: int = 1) -> np.ndarray:
        attrs = {"dtype": np.float32, "element_shape": attr.shape(shape)}
        graph = Graph(
            [
                *(c("size", 3), c("zero", 0), c("index", index), c("a", [1.0, 2.0])),
                n("array", "TensorArrayV3", "size", **attrs, identical_element_shapes=identical),
                n("first", "TensorArrayWriteV3", "array", "zero", "a", "array:1"),
                n("read", "TensorArrayReadV3", "array", "index", "first", dtype=np.float32),
            ]
        )
        return Interpreter(graph).run(["read"], {})[0]

    assert read(True, None).tolist() == [0, 0]
    assert read(True, (-1,)).tolist() == [0, 0]
    assert read(False, (3,)).tolist() == [0, 0, 0]
    assert read(False, (), 2).tolist() == 0
    for shape in (None, (-1,), (2, -1)):
        with pytest.raises(InvalidGraphError, match="nothing was written to place 1"):
            read(False, shape)


@pytest.mark.parametrize("index", [-1, 3])
@pytest.mark.parametrize("op", ["TensorArrayReadV3", "TensorArrayWriteV3"])
def test_array_index_out_of_range_is_refused(op: str, index: int) -> None:
    value, attrs = (["a"], {}) if "Write" in op else ([], {"dtype": np.float32})
    bad = n("bad", op, "array", "index", *value, "second", **attrs)
    with pytest.raises(InvalidGraphError, match=f"no element {index} among 3"):
        Interpreter(array_nodes(c("index", index), bad)).run(["bad"], {})


def test_dynamic_array_grows_to_the_last_index() -> None:
    graph = Graph(
        [
            *(c("size", 1), c("index", 2), c("a", [4.0])),
            n("array", "TensorArrayV3", "size", dtype=np.float32, dynamic_size=True),
            n("written", "TensorArrayWriteV3", "array", "index", "a", "array:1"),
            n("count", "TensorArraySizeV3", "array", "written"),
            n("read", "TensorArrayReadV3", "array", "index", "written", dtype=np.float32),
        ]
    )
    count, read = Interpreter(graph).run(["count", "read"], {})
    assert (count.tolist(), read.tolist()) == (3, [4])


def test_element_of_another_type_is_refused() -> None:
    bad = n("bad", "TensorArrayWriteV3", "array", "zero", "two", "second")
    with pytest.raises(InvalidGraphError, match="array of float32 cannot hold int32"):
        Interpreter(array_nodes(bad)).run(["bad"], {})


@pytest.mark.parametrize(
    ("array_shape", "read_shape", "gathered", "concatenated"),
    [
        # The shape of the reading node takes precedence: map_fn does not set the array's own shape.
        (None, (2, 3), (0, 2, 3), (0, 2, 3)),
        ((-1, 3), (4, 3), (0, 4, 3), (0, 4, 3)),
        ((-1, 3), None, (0, 0, 3), (0, 3)),
        ((2, 3), (-1, 3), (0, 2, 3), (0, 3)),
        (None, None, (0,), (0,)),
    ],
)
def test_empty_array_reads_as_the_known_shape(
    array_shape: TensorShape,
    read_shape: TensorShape,
    gathered: tuple[int, ...],
    concatenated: tuple[int, ...],
) -> None:
    def run(op: str, *inputs: str, **attrs: object) -> list[np.ndarray]:
        array_attrs = {"dtype": np.float32, "element_shape": attr.shape(array_shape)}
        graph = Graph(
            [
                *(c("size", 0), c("none", [], dtype=np.int32)),
                n("array", "TensorArrayV3", "size", **array_attrs),
                n("all", op, "array", *inputs, "array:1", dtype=np.float32, **attrs),
            ]
        )
        return Interpreter(graph).run(["all"], {})

    shape = attr.shape(read_shape)
    assert run("TensorArrayGatherV3", "none", element_shape=shape)[0].shape == gathered
    assert run("TensorArrayConcatV3", element_shape_except0=shape)[0].shape == concatenated


def test_scatter_or_split_of_wrong_size_is_refused() -> None:
    rows = c("rows", [[7.0, 7.0], [8.0, 8.0]])
    one = [c("places", [1]), n("bad", "TensorArrayScatterV3", "array", "places", "rows", "second")]
    with pytest.raises(InvalidGraphError, match=r"1 places for a tensor of shape \[2, 2\]"):
        Interpreter(array_nodes(rows, *one)).run(["bad"], {})
    for lengths in ([1, 2], [3, -1], [1]):
        cut = [
            c("lengths", lengths, dtype=np.int64),
            n("bad", "TensorArraySplitV3", "array", "rows", "lengths", "second"),
        ]
        with pytest.raises(InvalidGraphError, match="do not fit the shape"):
            Interpreter(array_nodes(rows, *cut)).run(["bad"], {})


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_invalid_array_size_is_refused(size: int) -> None:
    graph = Graph([p("size", np.int32), n("array", "TensorArrayV3", "size", dtype=np.float32)])
    with pytest.raises(InvalidGraphError, match="a list of"):
        Interpreter(graph).run(["array:1"], {"size": i32(size)})

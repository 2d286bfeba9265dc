"""Shapes, and data movement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from tests.litert.graphs import codes, const, feed, model, op
from tests.litert.one_op import check, check_graph, integers, numbers

INT = np.int32


def ints(*values: Any) -> np.ndarray:
    return np.array(values, INT)


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("sizes", [(-1, 12), (6, 4), (-1,), (2, 2, 3, -1)])
def test_reshape(sizes: tuple[int, ...], open_sizes: bool) -> None:
    inputs = [numbers(2, 3, 4), ints(*sizes)]
    operators = check("Reshape", inputs, constant=[1], open_sizes=open_sizes)
    assert operators == ["RESHAPE"]


def test_reshape_to_a_fed_shape() -> None:
    assert check("Reshape", [numbers(2, 3, 4), ints(4, 6)]) == ["RESHAPE"]
    assert check("Reshape", [numbers(2, 3, 4), np.array([4, 6])]) == ["CAST", "RESHAPE"]


def test_squeeze_and_expand() -> None:
    assert check("Squeeze", [numbers(2, 1, 3, 1)], squeeze_dims=[1, 3]) == ["RESHAPE"]
    assert check("Squeeze", [numbers(2, 1, 3, 1)], open_sizes=True, squeeze_dims=[1]) == ["RESHAPE"]
    assert check("ExpandDims", [numbers(2, 3), ints(1)[0]], constant=[1]) == ["RESHAPE"]


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_transpose(dtype: type, order: tuple[int, ...]) -> None:
    x = integers(2, 3, 4, low=0).astype(dtype)
    assert check("Transpose", [x, ints(*order)], constant=[1]) == ["TRANSPOSE"]


@pytest.mark.parametrize("rank", [1, 4, 5])
def test_transposes_of_any_rank(rank: int) -> None:
    x = numbers(*range(2, rank + 2))
    check("Transpose", [x, np.array(range(rank)[::-1], np.int64)], constant=[1])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation(axis: int) -> None:
    parts = [numbers(2, 3, 4), numbers(2, 3, 4, seed=5), ints(axis)[0]]
    assert check("ConcatV2", parts, constant=[2]) == ["CONCATENATION"]
    assert check("Concat", [parts[2], *parts[:2]], constant=[0]) == ["CONCATENATION"]


def test_concatenation_with_an_empty_part() -> None:
    parts = [numbers(2, 3), np.zeros((2, 0), np.float32), numbers(2, 1), ints(1)[0]]
    assert check("ConcatV2", parts, constant=[1, 3]) == ["CONCATENATION"]


def test_splits() -> None:
    x = numbers(2, 6, 4)
    values = [ints(1)[0], x]
    assert check("Split", values, constant=[0], outputs=3, num_split=3) == ["SPLIT"]
    values = [x, ints(1, 2, 3), ints(1)[0]]
    assert check("SplitV", values, constant=[1, 2], outputs=3, num_split=3) == ["SPLIT_V"]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packing(axis: int) -> None:
    parts = [numbers(2, 3), numbers(2, 3, seed=5)]
    assert check("Pack", parts, axis=axis) == ["PACK"]
    assert check("Unpack", [numbers(3, 3, 3)], outputs=3, num=3, axis=axis) == ["UNPACK"]


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6), (2, 3, 4, 5)])
def test_slice(shape: tuple[int, ...]) -> None:
    begin = ints(*(1 for _ in shape))
    size = ints(*(-1 if i else 1 for i, _ in enumerate(shape)))
    assert check("Slice", [numbers(*shape), begin, size], constant=[1, 2]) == ["SLICE"]


CUTS: list[tuple[list[int], list[int], list[int], dict[str, int]]] = [
    ([1, 0, 2], [3, 4, 5], [1, 2, 1], {}),
    ([-1, 0, 0], [0, 4, 5], [-1, 1, 1], {"end_mask": 1}),
    ([0, 1, 0], [0, 3, 0], [1, 1, 1], {"begin_mask": 1, "end_mask": 5}),
    ([1, 0, 0], [2, 4, 5], [1, 1, 1], {"shrink_axis_mask": 1}),
    # The runtime would read the first element, and TensorFlow the indexed one.
    ([1, 0, 0], [2, 4, 5], [1, 1, 1], {"shrink_axis_mask": 1, "begin_mask": 3, "end_mask": 1}),
    ([0, 2, 3], [0, 3, 4], [1, 1, 1], {"shrink_axis_mask": 6, "begin_mask": 6, "ellipsis_mask": 1}),
    ([0, 2], [0, 4], [1, 1], {"ellipsis_mask": 1}),
    ([0, 0, 1], [0, 0, 3], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
    ([0, 0, 1], [0, 3, 4], [1, 1, 1], {"new_axis_mask": 1, "shrink_axis_mask": 4}),
]


@pytest.mark.parametrize("constant", [[1, 2, 3], [3]], ids=["constant", "computed"])
@pytest.mark.parametrize(("begin", "end", "strides", "masks"), CUTS)
def test_strided_slice(
    begin: list[int], end: list[int], strides: list[int], masks: dict[str, int], constant: list[int]
) -> None:
    values = [numbers(3, 4, 5), ints(*begin), ints(*end), ints(*strides)]
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    all_masks: dict[str, Any] = {name: masks.get(name, 0) for name in names}
    operators = check("StridedSlice", values, constant=constant, **all_masks)
    assert "STRIDED_SLICE" in operators


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.bool_])
def test_gather(axis: int, dtype: type) -> None:
    x = integers(4, 5, 6, low=0).astype(dtype)
    values = [x, ints([0, 3], [1, 2]), ints(axis)[0]]
    assert check("GatherV2", values, constant=[2], batch_dims=0) == ["GATHER"]


def test_gather_with_batch_dimensions() -> None:
    values = [numbers(3, 5, 2), ints([0, 3], [1, 2], [4, 4]), ints(1)[0]]
    assert check("GatherV2", values, constant=[2], batch_dims=1) == ["GATHER"]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("places", [[[0, 1], [1, 3], [2, 2]], [2, 5], 3])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.int8])
@pytest.mark.parametrize("fed", [False, True])
def test_sparse_to_dense(kind: type, places: Any, dtype: type, fed: bool) -> None:
    at = np.asarray(places, kind)
    sizes = np.array([3, 4] if at.ndim == 2 else [7], kind)
    values = integers(*at.shape[:1]).astype(dtype)
    inputs = [at, sizes, values, np.asarray(5, dtype)]
    assert check("SparseToDense", inputs, constant=[] if fed else [1, 3]) == ["SPARSE_TO_DENSE"]


def test_gather_nd_and_scatter_nd() -> None:
    at = ints([0, 1], [2, 3])
    assert check("GatherNd", [numbers(3, 4, 2), at]) == ["GATHER_ND"]
    values = [ints([1], [3]), numbers(2, 4), ints(5, 4)]
    assert check("ScatterNd", values, constant=[2]) == ["SCATTER_ND"]


def test_int64_indices_are_cast() -> None:
    values = [np.array([[1], [3]]), numbers(2, 4), np.array([5, 4])]
    assert check("ScatterNd", values, constant=[0, 2]) == ["SCATTER_ND"]
    assert check("ScatterNd", values, constant=[2]) == ["CAST", "SCATTER_ND"]


def test_tile_and_broadcast() -> None:
    assert check("Tile", [numbers(2, 3), ints(2, 3)], constant=[1]) == ["TILE"]
    assert check("BroadcastTo", [numbers(3, 1), ints(2, 3, 4)], constant=[1]) == ["BROADCAST_TO"]


@pytest.mark.parametrize("kind", [DType.INT32, DType.INT64])
def test_shape_of_an_open_size(kind: DType) -> None:
    operators = check("Shape", [numbers(2, 3)], open_sizes=True, out_type=kind)
    assert operators == ["SHAPE"]


def test_number_of_elements_of_an_open_size() -> None:
    assert check("Size", [numbers(2, 3)], open_sizes=True)[0] == "SHAPE"


def test_fill_like_and_range() -> None:
    assert check("Fill", [ints(2, 3), np.float32(4)]) == ["FILL"]
    assert check("ZerosLike", [numbers(2, 3)], open_sizes=True) == ["ZEROS_LIKE"]
    assert check("OnesLike", [numbers(2, 3)], open_sizes=True) == ["ZEROS_LIKE", "ADD"]
    assert check("Range", [INT(1), INT(9), INT(3)]) == ["RANGE"]


@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot(axis: int) -> None:
    values = [ints([0, 2], [3, 1]), INT(4), np.float32(2), np.float32(-1)]
    assert check("OneHot", values, constant=[1, 2, 3], axis=axis) == ["ONE_HOT"]


@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2]])
def test_reverse(axes: list[int]) -> None:
    operators = check("ReverseV2", [numbers(2, 3, 4), ints(*axes)], constant=[1])
    assert operators == ["REVERSE_V2"] * len(axes)


def test_reverse_of_unknown_rank() -> None:
    def reversing(*axes: int) -> Graph:
        return Graph([feed("x", None), const("axes", axes), op("y", "ReverseV2", ["x", "axes"])])

    check_graph(reversing(2, 0), {"x": numbers(2, 3, 4)}, tolerance=0)
    with pytest.raises(UnsupportedError, match="counts from the end"):
        model(reversing(-1), ["x"], ["y"])


def test_where_and_select() -> None:
    chosen = integers(3, 4) > 0
    assert check("Where", [chosen]) == ["WHERE"]
    x, y = numbers(3, 4), numbers(3, 4, seed=5)
    assert check("SelectV2", [chosen[:, :1], x, y[:1]]) == ["SELECT_V2"]
    assert check("Select", [chosen, x, y]) == ["SELECT"]
    assert check("Select", [chosen[:, 0], x, y]) == ["SELECT"]


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4, 5), (2, 2, 3, 4, 5)])
def test_pad(shape: tuple[int, ...]) -> None:
    pairs = np.array([[i % 2, 1] for i, _ in enumerate(shape)], INT)
    x = numbers(*shape)
    assert check("Pad", [x, pairs], constant=[1]) == ["PAD"]
    assert check("PadV2", [x, pairs, np.float32(7)], constant=[1, 2]) == ["PADV2"]


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad(mode: str) -> None:
    pairs = ints([1, 2], [0, 2], [0, 0])
    assert check("MirrorPad", [numbers(4, 5, 3), pairs], constant=[1], mode=mode) == ["MIRROR_PAD"]


def test_space_to_batch_and_back() -> None:
    x = numbers(2, 4, 6, 3)
    values = [x, ints(2, 3), ints([0, 0], [2, 1])]
    assert check("SpaceToBatchND", values, constant=[1, 2]) == ["SPACE_TO_BATCH_ND"]
    values = [numbers(12, 2, 3, 3), ints(2, 3), ints([1, 0], [0, 2])]
    assert check("BatchToSpaceND", values, constant=[1, 2]) == ["BATCH_TO_SPACE_ND"]


@pytest.mark.parametrize("constant", [[1, 2], []])
def test_int64_block_sizes_and_paddings(constant: list[int]) -> None:
    wide = np.int64
    values = [numbers(2, 4, 6, 3), wide([2, 3]), wide([[0, 0], [2, 1]])]
    assert check("SpaceToBatchND", values, constant=constant)[-1] == "SPACE_TO_BATCH_ND"
    values = [numbers(12, 2, 3, 3), wide([2, 3]), wide([[1, 0], [0, 2]])]
    assert check("BatchToSpaceND", values, constant=constant)[-1] == "BATCH_TO_SPACE_ND"


BLOCKS = {
    "a row of numbers": ((2, 6), [2]),
    "rows": ((2, 6, 3), [2]),
    "rows of an image": ((2, 6, 4, 3), [3]),
    "an image without channels": ((2, 6, 4), [3, 2]),
    "a volume": ((2, 6, 4, 3, 2), [3, 2]),
    "a volume, in one dimension": ((2, 6, 4, 3, 2), [2]),
    "a volume, whose last blocks are single": ((2, 6, 4, 3, 2), [3, 2, 1]),
    "an image, whose blocks are all single": ((2, 6, 4, 3), [1, 1, 1]),
}


@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_space_to_batch_of_any_rank(name: str, open_sizes: bool) -> None:
    shape, blocks = BLOCKS[name]
    pairs = ints(*([b, 0] if b > 1 else [0, 0] for b in blocks))
    values = [numbers(*shape), ints(*blocks), pairs]
    check("SpaceToBatchND", values, constant=[1, 2], open_sizes=open_sizes)
    values[0] = numbers(shape[0] * int(np.prod(blocks)), *shape[1:])
    check("BatchToSpaceND", values, constant=[1, 2], open_sizes=open_sizes)


@pytest.mark.parametrize("constant, open_sizes", [([], 0), ([1], 0), ([1], 3), ([1, 2], 5)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("blocks", [[2], [2, 3], [2, 1, 3]])
def test_space_to_batch_in_one_dimension_at_a_time(
    blocks: list[int], dtype: type, constant: list[int], open_sizes: int
) -> None:
    count = len(blocks)
    sizes, pairs = (np.array(x, dtype) for x in (blocks, [[1, b - 1] for b in blocks]))
    x = numbers(2, 4, 6, 3, 2)
    check("SpaceToBatchND", [x, sizes, pairs], constant=constant, open_sizes=open_sizes)
    x = numbers(2 * int(np.prod(blocks)), *(4, 3, 2)[:count], 5, 2)
    check("BatchToSpaceND", [x, sizes, pairs], constant=constant, open_sizes=open_sizes)


def test_ensure_shape_passes_its_input_through() -> None:
    nodes = [
        feed("x", (-1, 3)),
        Node("sure", "EnsureShape", (Ref("x"),), "", {"shape": attr.shape((2, -1))}),
        op("y", "Relu", ["sure"], T=DType.FLOAT),
    ]
    assert codes(model(Graph(nodes), ["x"], ["y"])) == ["RELU"]


def test_ensure_shape_of_another_shape_is_refused() -> None:
    nodes = [
        feed("x", (4, 3)),
        Node("sure", "EnsureShape", (Ref("x"),), "", {"shape": attr.shape((2, -1))}),
    ]
    with pytest.raises(InvalidGraphError, match="sure"):
        model(Graph(nodes), ["x"], ["sure"])


@pytest.mark.parametrize(
    "shift, axis", [(1, 0), (-1, 1), (7, -1), ([1, 2], [0, 2]), ([3, 2], [1, 1])]
)
def test_roll(shift: Any, axis: Any) -> None:
    for x in (numbers(2, 3, 4), integers(2, 3, 4), integers(2, 3, 4, dtype=np.int64)):
        check("Roll", [x, ints(*np.ravel(shift)), ints(*np.ravel(axis))], constant=[1, 2])


def test_roll_with_an_open_batch() -> None:
    inputs = [numbers(2, 3, 4), np.int32(1), np.int32(1)]
    assert check("Roll", inputs, constant=[1, 2], open_sizes=1) == [
        "SLICE",
        "SLICE",
        "CONCATENATION",
    ]


def test_roll_by_whole_turns_moves_nothing() -> None:
    check("Roll", [numbers(2, 3), ints(3, -2), ints(1, 0)], constant=[1, 2])


def test_space_to_batch_of_many_dimensions() -> None:
    values = [numbers(2, 4, 6, 3, 2, 1, 3), ints(2, 3, 1), ints([1, 1], [0, 3], [1, 0])]
    check("SpaceToBatchND", values, constant=[1])
    values[0] = numbers(12, 2, 3, 3, 2, 1, 3)
    check("BatchToSpaceND", values, constant=[1])
    values = [numbers(1, 2, 2, 2, 2), ints(2, 2, 2, 2), ints(*[[0, 0]] * 4)]
    check("SpaceToBatchND", values, constant=[1])
    values = [numbers(1, 2, 2, 2, 2, 3), ints(2, 2, 2, 2), ints(*[[0, 0]] * 4)]
    with pytest.raises(UnsupportedError, match="5 dimensions"):
        check("SpaceToBatchND", values, constant=[1])


def test_unknown_number_of_block_sizes_is_refused() -> None:
    values = [numbers(2, 4, 6, 3, 2), ints(2), ints([0, 0])]
    with pytest.raises(UnsupportedError, match="number of its block sizes"):
        check("SpaceToBatchND", values, open_sizes=1)


@pytest.mark.parametrize("open_sizes", [0, 1, 3])
@pytest.mark.parametrize("constant", [[2], [1, 2]])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_roll_by_computed_sizes(dtype: type, constant: list[int], open_sizes: int) -> None:
    for shift, axis in ((1, 0), (-9, -1), ([1, 2], [0, 2])):
        values = [numbers(2, 3, 4), np.array(shift, dtype), np.array(axis, dtype)]
        check("Roll", values, constant=constant, open_sizes=open_sizes)


@pytest.mark.parametrize("kind", ["ZerosLike", "OnesLike"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_zeros_and_ones_like_small_types(kind: str, dtype: type, open_sizes: int) -> None:
    check(kind, [np.ones((2, 3), dtype)], open_sizes=open_sizes)


@pytest.mark.parametrize(
    ("kind", "dtype", "refused"),
    [
        ("Pack", np.int16, False),
        ("Pack", np.bool_, True),
        ("Unpack", np.bool_, False),
        ("Unpack", np.int64, True),
        ("GatherV2", np.bool_, False),
        ("GatherV2", np.uint16, True),
        ("Split", np.uint8, False),
        ("Split", np.bool_, True),
        ("ConcatV2", np.uint32, False),
        ("ConcatV2", np.uint16, True),
        ("Pad", np.uint32, True),
        ("ReverseV2", np.uint16, True),
        ("DepthToSpace", np.int32, False),
        ("DepthToSpace", np.int16, True),
        ("Where", np.int16, True),
        ("Transpose", np.uint16, False),
        ("Transpose", np.complex128, True),
        ("Cast", np.uint64, True),
    ],
)
def test_types_supported_by_data_movement_ops(kind: str, dtype: type, refused: bool) -> None:
    x = integers(4, 1, 2, 4, low=0, high=2).astype(dtype)
    zero = ints(0)[0]
    inputs, attrs = {
        "Pack": ([x, x], {"axis": 0}),
        "Unpack": ([x], {"axis": 0, "num": 4}),
        "GatherV2": ([x, ints(1, 2), zero], {"batch_dims": 0}),
        "Split": ([zero, x], {"num_split": 2}),
        "ConcatV2": ([x, x, zero], {}),
        "Pad": ([x, np.ones((4, 2), np.int32)], {}),
        "ReverseV2": ([x, ints(0)], {}),
        "DepthToSpace": ([x], {"block_size": 2}),
        "Where": ([x], {}),
        "Transpose": ([x, ints(3, 0, 1, 2)], {}),
        "Cast": ([x], {"SrcT": DType.UINT64, "DstT": DType.FLOAT}),
    }[kind]
    constant = [i for i, a in enumerate(inputs) if a.dtype == np.int32 and dtype != np.int32]
    outputs = {"Unpack": 4, "Split": 2}.get(kind, 1)
    options: dict[str, Any] = {"constant": constant, "outputs": outputs, **attrs}
    if not refused:
        check(kind, inputs, **options)
        return
    with pytest.raises(UnsupportedError, match=f"{kind} 'y': LiteRT computes it for .*, not for"):
        check(kind, inputs, **options)


def test_small_one_hot_indices_are_cast() -> None:
    values = [integers(5, low=0, high=4, dtype=np.uint8), ints(4)[0], ints(1)[0], ints(0)[0]]
    assert check("OneHot", values, constant=[1, 2, 3], axis=-1) == ["CAST", "ONE_HOT"]


@pytest.mark.parametrize("x", [np.float32(3), np.uint16(7), numbers(5)])
def test_scalar_or_vector_is_not_transposed(x: Any) -> None:
    """The runtime's kernel returns uninitialized memory for a scalar."""
    order = np.arange(np.ndim(x), dtype=np.int32)
    assert "TRANSPOSE" not in check("Transpose", [x, order], constant=[1])


def test_concatenation_without_elements_has_its_length() -> None:
    nodes = [feed("x", (1, 0)), const("c", np.zeros((2, 0), np.float32)), const("axis", 0)]
    graph = Graph([*nodes, op("y", "ConcatV2", ["x", "c", "axis"], N=2)])
    (main,) = model(graph, ["x"], ["y"]).subgraphs
    assert [main.tensors[i].shape for i in main.outputs] == [(3, 0)]

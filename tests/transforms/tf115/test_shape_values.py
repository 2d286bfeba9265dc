"""Tensors read as shapes, as far as 1.15 reads them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.transforms.tf115 import Tf115Values
from tests.transforms.graphs import const, node, placeholder

INT = DType.INT32
PARTLY = (-1, 4, 6)


def ints(name: str, values: object) -> Node:
    return const(name, values, np.int32)


def values(*nodes: Node, shapes: Mapping[str, TensorShape]) -> Tf115Values:
    """The values of a graph in which ``x`` has the shape -1, 4, 6."""
    every = (placeholder(), node("s", "Shape", "x", out_type=INT), *nodes)
    known: dict[str, TensorShape] = {
        n.name: n.attr_tensor("value").shape for n in every if n.op == "Const"
    }
    known |= {"x": PARTLY, "s": (3,), **shapes}
    return Tf115Values({n.name: n for n in every}, lambda ref: known[ref.node])


def read(*nodes: Node, name: str = "to", **shapes: TensorShape) -> TensorShape:
    return values(*nodes, shapes=shapes).as_shape(Ref(name))


def test_sizes_below_minus_one_are_unknown() -> None:
    assert read(ints("to", [2, -1, -5, 0])) == (2, -1, -1, 0)


def test_no_elements_are_the_shape_of_a_scalar() -> None:
    assert read(placeholder("to"), to=(0,)) == ()


@pytest.mark.parametrize(
    ("shape", "found"),
    [(None, None), ((), None), ((2, 2), None), ((-1,), None), ((1,), (-1,)), ((3,), (-1,) * 3)],
)
def test_of_a_feed_the_number_of_sizes_is_all_that_is_known(
    shape: TensorShape, found: TensorShape
) -> None:
    assert read(placeholder("to", INT), to=shape) == found


def test_feeds_longer_than_any_shape_are_unknown() -> None:
    assert read(placeholder("to", INT), to=(254,)) == (-1,) * 254
    assert read(placeholder("to", INT), to=(255,)) is None


def test_a_shape_is_read_though_it_is_partly_known() -> None:
    assert read(name="s") == PARTLY


def test_of_packed_sizes_each_that_is_known_counts() -> None:
    packed = node("to", "Pack", "a f b", T=INT, N=3, axis=0)
    found = read(ints("a", 2), placeholder("f", INT), ints("b", -7), packed, to=(3,), f=())
    assert found == (2, -1, -1)


def test_packed_vectors_are_not_sizes() -> None:
    packed = node("to", "Pack", "a b", T=INT, N=2, axis=0)
    assert read(ints("a", [2, 3]), ints("b", 5), packed, to=(2,)) == (-1, 5)


@pytest.mark.parametrize(("op", "inputs"), [("ConcatV2", "s two axis"), ("Concat", "axis s two")])
def test_joined_shapes_are_read_in_parts(op: str, inputs: str) -> None:
    joined = node("to", op, inputs, T=INT, N=2, Tidx=INT)
    assert read(ints("axis", 0), ints("two", [7, 8]), joined, to=(5,)) == (*PARTLY, 7, 8)


@pytest.mark.parametrize(("depth", "found"), [(64, (7,)), (65, None)])
def test_shapes_are_joined_so_deep_and_no_deeper(depth: int, found: TensorShape) -> None:
    names = ["s0", *(f"s{i}" for i in range(1, depth)), "to"]
    joined = [
        node(name, "ConcatV2", f"none {before} axis", T=INT, N=2, Tidx=INT)
        for before, name in pairwise(names)
    ]
    known = dict.fromkeys(names[1:], (1,))
    first = [ints("axis", 0), ints("none", []), ints("s0", [7])]
    assert read(*first, *joined, **known) == found


def cut(begin: object, end: object, stride: object = (1,), **masks: int) -> list[Node]:
    bounds = [ints("begin", begin), ints("end", end), ints("stride", stride)]
    return [*bounds, node("to", "StridedSlice", "s begin end stride", T=INT, Index=INT, **masks)]


@pytest.mark.parametrize(
    ("begin", "end", "stride", "masks", "found"),
    [
        ([0], [1], [1], {}, (-1,)),
        ([1], [3], [1], {}, (4, 6)),
        ([-1], [9], [1], {}, (6,)),
        ([2], [0], [-1], {}, (6, 4)),
        ([0], [3], [2], {}, (-1, 6)),
        ([1], [2], [1], {"begin_mask": 1}, (-1, 4)),
        ([1], [2], [1], {"end_mask": 1}, (4, 6)),
        ([1], [2], [1], {"begin_mask": 1, "end_mask": 1}, PARTLY),
        ([1], [2], [0], {}, None),
    ],
)
def test_a_slice_of_a_shape_is_cut_as_its_masks_say(
    begin: list[int], end: list[int], stride: list[int], masks: dict[str, int], found: TensorShape
) -> None:
    assert read(*cut(begin, end, stride, **masks), to=(2,)) == found


@pytest.mark.parametrize(
    "masks",
    [
        {"begin_mask": 2},
        {"end_mask": 3},
        {"shrink_axis_mask": 1},
        {"ellipsis_mask": 1},
        {"new_axis_mask": 1},
    ],
)
def test_a_slice_with_other_masks_is_unknown(masks: dict[str, int]) -> None:
    assert read(*cut([1], [2], **masks), to=(1,)) is None


def test_a_slice_of_several_axes_is_unknown() -> None:
    assert read(*cut([1, 0], [2, 1], [1, 1]), to=(1,)) is None


def test_a_bound_that_is_not_known_is_needed_unless_a_mask_says_no() -> None:
    bounds = [placeholder("begin", INT), ints("end", [2]), ints("stride", [1])]

    def found(**masks: int) -> TensorShape:
        sliced = node("to", "StridedSlice", "s begin end stride", T=INT, Index=INT, **masks)
        return read(*bounds, sliced, to=(2,), begin=(1,))

    assert found() is None
    assert found(end_mask=1) is None
    assert found(begin_mask=1) == (-1, 4)


def test_a_value_is_found_that_needs_a_shape_once_and_not_one_that_needs_it_twice() -> None:
    def found(inputs: str) -> list[int] | None:
        maximum = node("to", "Maximum", inputs, T=INT)
        full = [placeholder("y"), node("t", "Shape", "y", out_type=INT)]
        other = [*full, ints("one", [1, 9]), maximum]
        array = values(*other, shapes={"y": (2, 3), "t": (2,), "to": (2,)}).value(Ref("to"))
        return None if array is None else array.tolist()

    assert found("t one") == [2, 9]
    assert found("one one") == [1, 9]
    assert found("t t") is None


def test_a_value_behind_a_feed_is_not_found() -> None:
    doubled = node("to", "Add", "f f", T=INT)
    assert (
        values(placeholder("f", INT), doubled, shapes={"f": (2,), "to": (2,)}).value(Ref("to"))
        is None
    )


def test_cached_shapes_serve_dependent_nodes() -> None:
    nodes = [ints("a", [1, 2]), node("b", "Neg", "a", T=INT), node("to", "Neg", "b", T=INT)]
    graph = values(*nodes, shapes={"b": (2,), "to": (2,)})
    middle, end = graph.value(Ref("b")), graph.value(Ref("to"))
    assert middle is not None
    assert end is not None
    assert (middle.tolist(), end.tolist()) == ([-1, -2], [1, 2])

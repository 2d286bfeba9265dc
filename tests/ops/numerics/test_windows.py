"""Windows: padding schemes, positions, attributes."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.graph import attrs as attr
from mobileprep.graph.node import Node
from mobileprep.ops.numerics.windows import (
    Window,
    filter_window,
    layout_of,
    make_window,
    reach,
    spatial,
)


def node(padding: str, **attrs: attr.AttrValue) -> Node:
    return Node("w", "Conv2D", attrs={"padding": attr.string(padding), **attrs})


@pytest.mark.parametrize(
    ("extent", "size", "stride", "dilation", "pads", "positions"),
    [
        (5, 3, 1, 1, (1, 1), 5),
        (5, 3, 2, 1, (1, 1), 3),
        (6, 3, 2, 1, (0, 1), 3),
        (5, 2, 1, 1, (0, 1), 5),
        (5, 3, 1, 2, (2, 2), 5),
        (5, 1, 3, 1, (0, 0), 2),
        (7, 4, 3, 1, (1, 2), 3),
    ],
)
def test_same_padding_gives_a_position_for_each_stride(
    extent: int, size: int, stride: int, dilation: int, pads: tuple[int, int], positions: int
) -> None:
    window = make_window(node("SAME"), [extent], [size], [stride], [dilation])
    assert (window.pads, window.positions([extent])) == ((pads,), (positions,))


def test_valid_padding_adds_nothing() -> None:
    window = make_window(node("VALID"), [7, 8], [3, 2], [2, 3], [1, 2])
    assert (window.pads, window.positions([7, 8])) == (((0, 0), (0, 0)), (3, 2))


def test_explicit_padding_is_of_the_spatial_axes() -> None:
    given = attr.integers(0, 0, 1, 2, 3, 4, 0, 0)
    assert make_window(
        node("EXPLICIT", explicit_paddings=given), [5, 5], [1, 1], [1, 1], [1, 1]
    ).pads == ((1, 2), (3, 4))
    layout = attr.string("NCHW")
    given = attr.integers(0, 0, 0, 0, 1, 2, 3, 4)
    found = make_window(
        node("EXPLICIT", explicit_paddings=given, data_format=layout),
        [5, 5],
        [1, 1],
        [1, 1],
        [1, 1],
    )
    assert found.pads == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    ("padding", "explicit", "message"),
    [
        ("SOME", (), "unknown padding 'SOME'"),
        ("EXPLICIT", (1, 0, 0, 0, 0, 0, 0, 0), "batch and channels"),
        ("EXPLICIT", (0, 0, -1, 0, 0, 0, 0, 0), "do not fit"),
        ("EXPLICIT", (), "do not fit"),
    ],
)
def test_padding_that_cannot_be_is_refused(
    padding: str, explicit: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_window(
            node(padding, explicit_paddings=attr.integers(*explicit)),
            [5, 5],
            [1, 1],
            [1, 1],
            [1, 1],
        )


def test_a_window_must_fit() -> None:
    window = Window((3,), (1,), (1,), ((0, 0),))
    with pytest.raises(ValueError, match="a window of 3 does not fit into 2"):
        window.positions([2])
    assert window.positions([0]) == (0,)
    with pytest.raises(ValueError, match="strides"):
        make_window(node("VALID"), [5], [1], [0], [1])


def test_steps_along_batch_or_channels_are_refused() -> None:
    assert spatial([1, 2, 3, 1], "NHWC") == (2, 3)
    assert spatial([1, 1, 2, 3], "NCHW") == (2, 3)
    with pytest.raises(ValueError, match="batch or channels"):
        spatial([1, 2, 3, 2], "NHWC")


def test_layouts_by_number_of_axes() -> None:
    assert layout_of(node("SAME", data_format=attr.string("NDHWC"))) == "NHWC"
    assert layout_of(node("SAME")) == "NHWC"
    with pytest.raises(ValueError, match="NCHW_VECT_C"):
        layout_of(node("SAME", data_format=attr.string("NCHW_VECT_C")))


def test_the_reach_of_dilated_windows() -> None:
    assert (reach(3, 1), reach(3, 2), reach(1, 9)) == (3, 5, 1)


@pytest.mark.parametrize("dilations", [(), (1, 1, 2, 1)])
def test_filters_have_the_window_before_channels_and_counts(dilations: tuple[int, ...]) -> None:
    kinds = {"strides": attr.integers(1, 2, 3, 1)}
    if dilations:
        kinds["dilations"] = attr.integers(*dilations)
    x, filters = np.zeros((1, 9, 8, 3)), np.zeros((4, 2, 3, 5))
    found = filter_window(node("VALID", **kinds), x, filters)
    spread = dilations[1:3] or (1, 1)
    assert found == Window((4, 2), (2, 3), spread, ((0, 0), (0, 0)))
    # Windows of 4 rows every 2; of 2 columns, or 3 where they are spread, every 3.
    assert found.positions([9, 8]) == (3, 3 - bool(dilations))

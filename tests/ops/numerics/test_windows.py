"""Windows: padding, positions, and attributes."""

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

# Extents, sizes, strides, and dilations.
SQUARE = ([5, 5], [1, 1], [1, 1], [1, 1])


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
def test_same_padding(
    extent: int, size: int, stride: int, dilation: int, pads: tuple[int, int], positions: int
) -> None:
    window = make_window(node("SAME"), [extent], [size], [stride], [dilation])
    assert (window.pads, window.positions([extent])) == ((pads,), (positions,))


def test_valid_padding() -> None:
    window = make_window(node("VALID"), [7, 8], [3, 2], [2, 3], [1, 2])
    assert (window.pads, window.positions([7, 8])) == (((0, 0), (0, 0)), (3, 2))


def test_explicit_padding() -> None:
    paddings = attr.integers(0, 0, 1, 2, 3, 4, 0, 0)
    window = make_window(node("EXPLICIT", explicit_paddings=paddings), *SQUARE)
    assert window.pads == ((1, 2), (3, 4))
    layout = attr.string("NCHW")
    paddings = attr.integers(0, 0, 0, 0, 1, 2, 3, 4)
    explicit = node("EXPLICIT", explicit_paddings=paddings, data_format=layout)
    window = make_window(explicit, *SQUARE)
    assert window.pads == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    ("padding", "explicit", "message"),
    [
        ("SOME", (), "unknown padding 'SOME'"),
        ("EXPLICIT", (1, 0, 0, 0, 0, 0, 0, 0), "batch and channels"),
        ("EXPLICIT", (0, 0, -1, 0, 0, 0, 0, 0), "do not fit"),
        ("EXPLICIT", (), "do not fit"),
    ],
)
def test_invalid_padding_is_refused(padding: str, explicit: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_window(node(padding, explicit_paddings=attr.integers(*explicit)), *SQUARE)


def test_window_that_does_not_fit_is_refused() -> None:
    window = Window((3,), (1,), (1,), ((0, 0),))
    with pytest.raises(ValueError, match="a window of 3 does not fit into 2"):
        window.positions([2])
    assert window.positions([0]) == (0,)
    with pytest.raises(ValueError, match="strides"):
        make_window(node("VALID"), [5], [1], [0], [1])


def test_strides_along_batch_or_channels_are_refused() -> None:
    assert spatial([1, 2, 3, 1], "NHWC") == (2, 3)
    assert spatial([1, 1, 2, 3], "NCHW") == (2, 3)
    with pytest.raises(ValueError, match="batch or channels"):
        spatial([1, 2, 3, 2], "NHWC")


def test_layout_of() -> None:
    assert layout_of(node("SAME", data_format=attr.string("NDHWC"))) == "NHWC"
    assert layout_of(node("SAME")) == "NHWC"
    with pytest.raises(ValueError, match="NCHW_VECT_C"):
        layout_of(node("SAME", data_format=attr.string("NCHW_VECT_C")))


def test_reach() -> None:
    assert (reach(3, 1), reach(3, 2), reach(1, 9)) == (3, 5, 1)


@pytest.mark.parametrize("dilations", [(), (1, 1, 2, 1)])
def test_filter_window(dilations: tuple[int, ...]) -> None:
    kinds = {"strides": attr.integers(1, 2, 3, 1)}
    if dilations:
        kinds["dilations"] = attr.integers(*dilations)
    x, filters = np.zeros((1, 9, 8, 3)), np.zeros((4, 2, 3, 5))
    window = filter_window(node("VALID", **kinds), x, filters)
    spread = dilations[1:3] or (1, 1)
    assert window == Window((4, 2), (2, 3), spread, ((0, 0), (0, 0)))
    # Windows of 4 rows every 2 rows, and of 2 columns, or 3 if dilated, every 3 columns.
    assert window.positions([9, 8]) == (3, 3 - bool(dilations))

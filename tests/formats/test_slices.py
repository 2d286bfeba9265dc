from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.checkpoint_reader import (
    box_of,
    extents_of,
    gather,
    is_whole,
    overlap,
    region_of,
    shape_of_box,
    tiling_fault,
    whole,
)
from mobileprep.formats.protos import checkpoint_pb2 as pb


def box(*sides: tuple[int, int]) -> tuple[slice, ...]:
    return tuple(slice(*side) for side in sides)


def test_absent_length_of_an_extent_is_minus_one():
    proto = pb.TensorSliceProto()
    proto.extent.add()
    proto.extent.add(start=3, length=0)
    assert extents_of(proto) == ((0, -1), (3, 0))


def test_is_whole():
    assert is_whole(())
    assert is_whole(((0, -1), (0, -1)))
    assert not is_whole(((0, 2), (0, -1)))


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        (((0, -1), (1, 2)), box((0, 4), (1, 3))),
        (((3, 1), (0, 3)), box((3, 4), (0, 3))),
        (((3, 2), (0, 3)), None),
        (((-1, 2), (0, 3)), None),
        (((0, -2), (0, 3)), None),
        (((0, 4),), None),
    ],
)
def test_box_of_extents_in_a_shape(extents, expected):
    assert box_of(extents, (4, 3)) == expected


def test_overlap_of_boxes():
    assert overlap(box((0, 3), (0, 5)), box((2, 4), (1, 2))) == box((2, 3), (1, 2))
    assert overlap(box((0, 3)), box((3, 4))) is None
    assert overlap((), ()) == ()
    assert shape_of_box(box((2, 3), (1, 5))) == (1, 4)


@pytest.mark.parametrize(
    ("boxes", "shape", "fault"),
    [
        ([()], (), ""),
        ([(), ()], (), "overlap"),
        ([], (), "leave a part out"),
        ([box((0, 4), (0, 3))], (4, 3), ""),
        ([box((0, 1), (0, 3)), box((1, 4), (0, 3))], (4, 3), ""),
        ([box((0, 4), (0, 1)), box((0, 4), (1, 3))], (4, 3), ""),
        # Four boxes around a fifth: a tiling that is not a grid.
        (
            [
                box((0, 1), (0, 2)),
                box((0, 2), (2, 3)),
                box((2, 3), (1, 3)),
                box((1, 3), (0, 1)),
                box((1, 2), (1, 2)),
            ],
            (3, 3),
            "",
        ),
        ([box((0, 2), (0, 3)), box((1, 4), (0, 3))], (4, 3), "overlap"),
        ([box((0, 2), (0, 3)), box((0, 2), (0, 3))], (4, 3), "overlap"),
        ([box((0, 1), (0, 3)), box((2, 4), (0, 3))], (4, 3), "leave a part out"),
        ([box((0, 4), (0, 2))], (4, 3), "leave a part out"),
        ([box((0, 0))], (0,), ""),
    ],
)
def test_slices_must_tile_the_tensor(boxes, shape, fault):
    assert tiling_fault(boxes, shape) == fault


def test_too_fine_grid_is_refused():
    side = 10_000
    boxes = [box((i, i + 1), (i, i + 1)) for i in range(side)]
    assert tiling_fault(boxes, (side, side)) == "are cut too irregularly"


def test_single_part_is_not_copied():
    data = np.arange(12).reshape(4, 3)
    result = gather([(whole((4, 3)), data)], box((1, 3), (0, 3)), data.dtype)
    assert np.shares_memory(result, data)
    assert result.tolist() == data[1:3].tolist()
    assert not result.flags.writeable
    assert data.flags.writeable


def test_parts_are_joined():
    data = np.random.default_rng(0).normal(size=(5, 4, 3))
    boxes = [box((a, b), (0, 4), (c, d)) for a, b in ((0, 2), (2, 5)) for c, d in ((0, 1), (1, 3))]
    parts = [(b, data[b]) for b in boxes]
    for region in (whole(data.shape), box((1, 4), (1, 3), (0, 3)), box((0, 1), (0, 1), (1, 2))):
        result = gather(parts, region, data.dtype)
        assert np.array_equal(result, data[region])
        assert not result.flags.writeable


def test_scalar_is_an_array():
    result = gather([((), np.array(3.0))], (), np.dtype("f8"))
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


def test_region_of_a_restore_spec():
    assert region_of("10 4 2,5:-", (10, 4)) == box((2, 7), (0, 4))


@pytest.mark.parametrize(
    "spec",
    ["10 4", "10 4 2,5", "10 4 2,9:-", "9 4 2,5:-", "x 4 -:-", "10 4 2;5:-", "10 4 -1,2:-", "-"],
)
def test_mismatched_spec_is_refused(spec):
    with pytest.raises(InvalidGraphError, match="slice"):
        region_of(spec, (10, 4))

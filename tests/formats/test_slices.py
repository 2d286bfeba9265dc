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


def test_extents_tell_an_absent_length_from_zero():
    proto = pb.TensorSliceProto()
    proto.extent.add()
    proto.extent.add(start=3, length=0)
    assert extents_of(proto) == ((0, -1), (3, 0))


def test_all_of_it_is_told_from_a_part():
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
def test_extents_are_placed_in_a_shape(extents, expected):
    assert box_of(extents, (4, 3)) == expected


def test_boxes_overlap_where_both_have_elements():
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
        # A ring of four around a fifth: no grid, and still a tiling.
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
def test_slices_must_make_up_the_tensor(boxes, shape, fault):
    assert tiling_fault(boxes, shape) == fault


def test_a_grid_of_cuts_that_is_too_fine_is_refused():
    side = 10_000
    boxes = [box((i, i + 1), (i, i + 1)) for i in range(side)]
    assert tiling_fault(boxes, (side, side)) == "are cut too irregularly"


def test_one_part_that_holds_all_is_not_copied():
    data = np.arange(12).reshape(4, 3)
    found = gather([(whole((4, 3)), data)], box((1, 3), (0, 3)), data.dtype)
    assert np.shares_memory(found, data)
    assert found.tolist() == data[1:3].tolist()
    assert not found.flags.writeable
    assert data.flags.writeable


def test_parts_are_joined_in_their_places():
    data = np.random.default_rng(0).normal(size=(5, 4, 3))
    boxes = [box((a, b), (0, 4), (c, d)) for a, b in ((0, 2), (2, 5)) for c, d in ((0, 1), (1, 3))]
    parts = [(b, data[b]) for b in boxes]
    for region in (whole(data.shape), box((1, 4), (1, 3), (0, 3)), box((0, 1), (0, 1), (1, 2))):
        found = gather(parts, region, data.dtype)
        assert np.array_equal(found, data[region])
        assert not found.flags.writeable


def test_a_scalar_stays_an_array():
    found = gather([((), np.array(3.0))], (), np.dtype("f8"))
    assert isinstance(found, np.ndarray)
    assert found.shape == ()


def test_a_restore_spec_names_a_box():
    assert region_of("10 4 2,5:-", (10, 4)) == box((2, 7), (0, 4))


@pytest.mark.parametrize(
    "spec",
    ["10 4", "10 4 2,5", "10 4 2,9:-", "9 4 2,5:-", "x 4 -:-", "10 4 2;5:-", "10 4 -1,2:-", "-"],
)
def test_a_spec_that_does_not_fit_is_refused(spec):
    with pytest.raises(InvalidGraphError, match="slice"):
        region_of(spec, (10, 4))

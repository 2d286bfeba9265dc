"""How much outputs answer to inputs, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.runtime.sampling.first_ops import largest_movement, movements, standing_still


def runs(*values: object, kind: type = np.float32) -> list[list[np.ndarray]]:
    """Runs of a single output."""
    return [[np.asarray(v, kind)] for v in values]


@pytest.mark.parametrize(
    ("found", "share"),
    [
        # From the first sample to the farthest, by the largest magnitude.
        (runs([0, 4], [1, 4], [0, 2]), 0.5),
        (runs([0, -8], [2, -8]), 0.25),
        (runs([1, 1], [1, 1]), 0),
        (runs([0, 0], [0, 0]), 0),
        # The rows of one run are compared, where there is no other run.
        (runs([[0, 4], [2, 4]]), 0.5),
        (runs([[0, 4], [0, 4], [0, 1]]), 0.75),
        (runs([[1, 2]]), None),
        (runs(3), None),
        (runs([1, 2], [1, 2, 3]), 1),
        (runs([], []), 0),
        (runs([]), 0),
        # Elements that are no numbers in any run are left out.
        (runs([np.nan, 4], [1, 3]), 0.25),
        (runs([np.nan], [1]), 0),
        # What counts or names moves by the share of elements that change.
        (runs([1, 2, 3, 4], [1, 2, 3, 5], [1, 0, 0, 0], kind=np.int32), 0.75),
        (runs([True, False], [True, True], kind=np.bool_), 0.5),
        (runs([10, 20], [10, 15], kind=np.uint8), 0.25),
        (runs([b"a", b"b"], [b"a", b"c"], kind=object), 0.5),
    ],
)
def test_a_movement_is_a_share_of_the_peak(
    found: list[list[np.ndarray]], share: float | None
) -> None:
    assert movements(found) == [share]


def test_every_output_moves_by_itself() -> None:
    both = [[np.float32([0, 4]), np.float32([5])], [np.float32([1, 4]), np.float32([5])]]
    assert movements(both) == [0.25, 0]
    assert largest_movement(both) == 0.25


def test_where_nothing_can_be_compared_the_movement_is_one() -> None:
    assert largest_movement(runs([[1, 2]])) == 1
    assert largest_movement([]) == 1


def test_outputs_that_move_are_not_told() -> None:
    assert standing_still(["a"], runs([0, 100], [1, 100])) == []
    assert standing_still(["a"], runs([[1, 2]])) == []


def test_outputs_that_stand_still_are_told_with_their_movement() -> None:
    one, two = np.float32([100, 0]), np.float32([100, 0.5])
    [told] = standing_still(["a", "b"], [[one, one], [two, one * 2]])
    assert told.startswith(
        "outputs hardly move from sample to sample: 'a' by 0.005 of the peak; "
        "the check proves little of them"
    )
    assert "'b'" not in told


def test_outputs_without_elements_or_numbers_are_told_once() -> None:
    empty, lost, fine = np.zeros((0, 2)), np.array([np.nan, np.inf]), np.array([1.0, 2.0])
    told = standing_still(["e", "l", "f"], [[empty, lost, fine], [empty, lost, fine * 2]])
    assert [line.split(";")[0] for line in told] == [
        "outputs have no elements: 'e'",
        "the source gives nothing but NaN or infinity for 'l': the samples are unusable",
    ]


def test_an_output_with_elements_in_any_run_is_not_empty() -> None:
    told = standing_still(["a"], [[np.zeros(0)], [np.ones(2)]])
    assert told == []


def test_one_number_in_any_run_is_a_value() -> None:
    assert standing_still(["a"], runs([np.nan, 0, 4], [1, 2, np.inf])) == []
    [told] = standing_still(["a"], runs([np.nan, 4], [np.nan, 4]))
    assert told.startswith("outputs hardly move")


def test_text_is_a_value() -> None:
    [told] = standing_still(["a"], runs([b"x"], [b"x"], kind=object))
    assert told.startswith("outputs hardly move from sample to sample: 'a' by 0 ")

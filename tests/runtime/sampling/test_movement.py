"""Movement of outputs between samples, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.runtime.sampling.first_ops import largest_movement, movements, standing_still


def runs(*values: object, kind: type = np.float32) -> list[list[np.ndarray]]:
    """Runs of a single output."""
    return [[np.asarray(v, kind)] for v in values]


@pytest.mark.parametrize(
    ("outputs", "share"),
    [
        # Largest difference from the first sample, divided by the largest magnitude.
        (runs([0, 4], [1, 4], [0, 2]), 0.5),
        (runs([0, -8], [2, -8]), 0.25),
        (runs([1, 1], [1, 1]), 0),
        (runs([0, 0], [0, 0]), 0),
        # Without another run, the rows of one run are compared.
        (runs([[0, 4], [2, 4]]), 0.5),
        (runs([[0, 4], [0, 4], [0, 1]]), 0.75),
        (runs([[1, 2]]), None),
        (runs(3), None),
        (runs([1, 2], [1, 2, 3]), 1),
        (runs([], []), 0),
        (runs([]), 0),
        # Elements that are NaN or infinite in any run are ignored.
        (runs([np.nan, 4], [1, 3]), 0.25),
        (runs([np.nan], [1]), 0),
        # Integers and strings move by the share of changed elements.
        (runs([1, 2, 3, 4], [1, 2, 3, 5], [1, 0, 0, 0], kind=np.int32), 0.75),
        (runs([True, False], [True, True], kind=np.bool_), 0.5),
        (runs([10, 20], [10, 15], kind=np.uint8), 0.25),
        (runs([b"a", b"b"], [b"a", b"c"], kind=object), 0.5),
    ],
)
def test_movement_is_relative_to_the_peak(
    outputs: list[list[np.ndarray]], share: float | None
) -> None:
    assert movements(outputs) == [share]


def test_movement_of_each_output() -> None:
    both = [[np.float32([0, 4]), np.float32([5])], [np.float32([1, 4]), np.float32([5])]]
    assert movements(both) == [0.25, 0]
    assert largest_movement(both) == 0.25


def test_movement_of_a_single_sample_is_one() -> None:
    assert largest_movement(runs([[1, 2]])) == 1
    assert largest_movement([]) == 1


def test_moving_outputs_are_not_reported() -> None:
    assert standing_still(["a"], runs([0, 100], [1, 100])) == []
    assert standing_still(["a"], runs([[1, 2]])) == []


def test_constant_outputs_are_reported() -> None:
    one, two = np.float32([100, 0]), np.float32([100, 0.5])
    [message] = standing_still(["a", "b"], [[one, one], [two, one * 2]])
    assert message.startswith(
        "outputs hardly move from sample to sample: 'a' by 0.005 of the peak; "
        "the check proves little of them"
    )
    assert "'b'" not in message


def test_empty_or_nan_outputs_are_reported_once() -> None:
    empty, lost, fine = np.zeros((0, 2)), np.array([np.nan, np.inf]), np.array([1.0, 2.0])
    messages = standing_still(["e", "l", "f"], [[empty, lost, fine], [empty, lost, fine * 2]])
    assert [line.split(";")[0] for line in messages] == [
        "outputs have no elements: 'e'",
        "the source gives nothing but NaN or infinity for 'l': the samples are unusable",
    ]


def test_output_with_elements_in_any_run_is_not_empty() -> None:
    assert standing_still(["a"], [[np.zeros(0)], [np.ones(2)]]) == []


def test_partly_nan_output_is_compared() -> None:
    assert standing_still(["a"], runs([np.nan, 0, 4], [1, 2, np.inf])) == []
    [message] = standing_still(["a"], runs([np.nan, 4], [np.nan, 4]))
    assert message.startswith("outputs hardly move")


def test_string_output_is_compared() -> None:
    [message] = standing_still(["a"], runs([b"x"], [b"x"], kind=object))
    assert message.startswith("outputs hardly move from sample to sample: 'a' by 0 ")

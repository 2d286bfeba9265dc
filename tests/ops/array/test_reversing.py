"""Reversal."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused
from tests.ops.graphs import i32, run

OP_CASES = [
    case("ReverseV2", [(2, -1), [0]], [(2, -1)]),
    case("Reverse", [(2, -1), [True, False]], [(2, -1)]),
    case("Reverse", [None, (3,)], [(-1, -1, -1)]),
    case("Reverse", [None, (-1,)], [None]),
    refused("Reverse", [(2, 3), [True]]),
    case("ReverseSequence", [(-1, 5, 6), (4,)], [(4, 5, 6)], seq_dim=1),
    case("ReverseSequence", [(3, -1), (4,)], [(3, 4)], seq_dim=0, batch_dim=1),
    case("ReverseSequence", [(-1, 5, 6), (-1,)], [(-1, 5, 6)], seq_dim=1),
    case("ReverseSequence", [None, (4,)], [None], seq_dim=1),
    refused("ReverseSequence", [(3, 5), (4,)], seq_dim=1),
    refused("ReverseSequence", [(3, 5), (3,)], seq_dim=1, batch_dim=2),
    refused("ReverseSequence", [(3, 5), (3, 1)], seq_dim=1),
    case("Reverse", [(), (0,)], [()]),
    refused("Reverse", [(3,), (0,)]),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_reverse_of_a_scalar_is_an_array() -> None:
    assert isinstance(run("ReverseV2", np.array(7), np.zeros(0, np.int32)), np.ndarray)


def test_duplicate_reverse_axis_is_refused() -> None:
    """Same as TensorFlow."""
    with pytest.raises(InvalidGraphError, match="the axis 0 is named twice"):
        run("ReverseV2", np.ones((2, 3)), i32(0, -2))

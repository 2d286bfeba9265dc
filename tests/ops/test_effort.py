"""Work is counted for tensors that nodes read and create, not for views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.core.limits import OverWorkError, working
from mobileprep.ops.kernel import charge

X = np.ones(1000, np.float32)
STRINGS = np.array([b"a"] * 1000, object)


def is_free(op: str, inputs: Sequence[object], results: Sequence[object]) -> bool:
    try:
        with working(1000):
            charge(op, inputs, results)
    except OverWorkError:
        return False
    return True


@pytest.mark.parametrize("op", ["Identity", "Switch", "Reshape", "Slice"])
def test_views_are_free(op: str) -> None:
    assert is_free(op, [X], [X])
    assert is_free(op, [X], [X[:500]])
    assert is_free(op, [X], [object(), None])


def test_new_and_reduced_tensors_are_counted() -> None:
    assert not is_free("Fill", [], [X])
    assert not is_free("Sum", [X], [np.float32(1)])
    assert not is_free("Gather", [X], [X.copy()])
    assert is_free("Shape", [X], [np.array([3], np.int32)])


def test_strings_cost_more_than_numbers() -> None:
    with working(10_000_000):
        charge("Neg", [X], [])
    with working(10_000_000), pytest.raises(OverWorkError):
        charge("StringLength", [STRINGS], [])

"""Descriptions of values."""

from __future__ import annotations

import numpy as np

from mobileprep.runtime.executor import described


def test_arrays_are_described_by_type_and_shape() -> None:
    assert described(np.zeros((1, 2), np.float32)) == "float32[1, 2]"
    assert described(np.array(b"a", object)) == "object[]"
    assert described(None) == "nothing"

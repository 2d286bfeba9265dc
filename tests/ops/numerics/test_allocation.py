"""Limit of the tensor size."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics import allocation
from mobileprep.ops.numerics.allocation import allocated, check_allocation

FLOAT = np.dtype(np.float32)


def test_limit_is_four_gib() -> None:
    check_allocation((1 << 30,), FLOAT)
    with pytest.raises(ValueError, match="passes 4294967296 bytes"):
        check_allocation(((1 << 30) + 1,), FLOAT)


def test_negative_sizes_are_refused() -> None:
    for shape in ((-1,), (2, -1), (-2, -2)):
        with pytest.raises(ValueError, match="is not a shape"):
            check_allocation(shape, FLOAT)
    check_allocation((0, 1 << 60), FLOAT)


def test_allocation_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    result = allocated((2, 3), FLOAT)
    assert (result.shape, result.dtype) == ((2, 3), FLOAT)
    monkeypatch.setattr(allocation, "MAX_OUTPUT_BYTES", 23)
    with pytest.raises(ValueError, match=r"of shape \[2, 3\] passes 23 bytes"):
        allocated((2, 3), FLOAT)

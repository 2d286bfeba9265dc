"""The bound on the size of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.numerics import allocation
from mobileprep.ops.numerics.allocation import allocated, check_allocation

FLOAT = np.dtype(np.float32)


def test_up_to_four_gibibytes_are_allowed() -> None:
    check_allocation((1 << 30,), FLOAT)
    with pytest.raises(ValueError, match="passes 4294967296 bytes"):
        check_allocation(((1 << 30) + 1,), FLOAT)


def test_negative_sizes_are_no_shape() -> None:
    for shape in ((-1,), (2, -1), (-2, -2)):
        with pytest.raises(ValueError, match="is not a shape"):
            check_allocation(shape, FLOAT)
    check_allocation((0, 1 << 60), FLOAT)


def test_what_is_allocated_has_been_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = allocated((2, 3), FLOAT)
    assert (found.shape, found.dtype) == ((2, 3), FLOAT)
    monkeypatch.setattr(allocation, "MAX_OUTPUT_BYTES", 23)
    with pytest.raises(ValueError, match=r"of shape \[2, 3\] passes 23 bytes"):
        allocated((2, 3), FLOAT)

"""Simulated quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("open_sizes", [0, 1])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("mode", ["HALF_TO_EVEN", "HALF_UP"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_quantize_and_dequantize(
    axis: int, mode: str, is_narrow: bool, is_signed: bool, open_sizes: int
) -> None:
    options: dict[str, Any] = {
        "signed_input": is_signed,
        "narrow_range": is_narrow,
        "axis": axis,
        "open_sizes": open_sizes,
    }
    x = numbers(3, 4, 5)
    count = () if axis == -1 else (x.shape[axis],)
    ends = [np.full(count, -0.7, np.float32), np.full(count, 1.3, np.float32)]
    for kind in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
        check(kind, [x, *ends], range_given=True, round_mode=mode, num_bits=8, **options)
        check(kind, [x, *ends], constant=[1, 2], range_given=True, round_mode=mode, **options)
        check(kind, [x, *ends], constant=[1, 2], range_given=False, round_mode=mode, **options)
    inputs = [x, *ends, np.int32(5)]
    check("QuantizeAndDequantizeV3", inputs, constant=[1, 2, 3], range_given=True, **options)


def test_one_sided_range() -> None:
    for x in (np.abs(numbers(3, 4)), -np.abs(numbers(3, 4))):
        ends = [np.float32(0), np.float32(0)]
        check("QuantizeAndDequantizeV2", [x, *ends], constant=[1, 2], range_given=False)

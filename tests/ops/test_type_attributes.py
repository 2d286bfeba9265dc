"""Output type attributes: invalid types are reported with the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph import attrs as attr
from tests.ops.graphs import f32, i32, run, run_all

WINDOW: dict[str, Any] = {"ksize": [1, 1, 1, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
CASES: dict[str, tuple[tuple[Any, ...], str]] = {
    "Shape": ((f32([1, 2]),), "out_type"),
    "UniqueV2": ((i32([1, 2]), i32([0])), "out_idx"),
    "TopKV2": ((f32([1, 2]), i32(1)), "index_type"),
    "ArgMax": ((f32([1, 2]), i32(0)), "output_type"),
    "BatchMatMulV3": ((f32([[1]]), f32([[1]])), "Tout"),
    "MaxPoolWithArgmax": ((np.ones((1, 1, 1, 1), np.float32),), "Targmax"),
    "Multinomial": ((f32([[1, 2]]), i32(1)), "output_dtype"),
}


@pytest.mark.parametrize("op", CASES)
def test_invalid_type_attribute_is_refused(op: str) -> None:
    inputs, name = CASES[op]
    more = WINDOW if op == "MaxPoolWithArgmax" else {}
    with pytest.raises(InvalidGraphError, match=name):
        run_all(op, *inputs, **more, **{name: attr.boolean(True)})


def test_unsupported_numpy_type_uses_the_default() -> None:
    assert run("Shape", f32([1, 2]), out_type=np.object_).dtype == np.int32

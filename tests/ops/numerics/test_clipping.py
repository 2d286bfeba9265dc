"""Clipping."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.node import Node
from mobileprep.ops.kernel import call_kernel, find_kernel
from mobileprep.ops.numerics import quantization as clipping
from mobileprep.ops.numerics.quantization import clipped


@pytest.mark.parametrize("block", [3, 1 << 16])
def test_clipping_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "_BLOCK", block)
    x = np.array([[-np.inf, -1, 0, 1], [6, 7, np.inf, np.nan]], np.float32)
    expected = np.array([[0, 0, 0, 1], [6, 6, 6, np.nan]])
    np.testing.assert_array_equal(clipped(x, 0, 6), expected)
    np.testing.assert_array_equal(clipped(x.T, 0, 6), expected.T)
    assert x[0, 1] == -1


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int32, np.uint8, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("op", "most"), [("Relu", 9), ("Relu6", 6)])
def test_activations_of_every_dtype(op: str, most: int, kind: type) -> None:
    kernel = find_kernel(op)
    assert kernel is not None
    node = Node("y", op, attrs={"T": attr.dtype(DType.FLOAT)})
    (y,) = call_kernel(kernel, node, [np.array([0, 3, 9]).astype(kind)])
    assert (y.dtype, y.tolist()) == (np.dtype(kind), [0, 3, most])

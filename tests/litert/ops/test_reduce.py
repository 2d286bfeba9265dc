"""Reductions, argmax, and top k."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from tests.litert.one_op import check, integers, numbers

AXES = [[0], [1], [-1], [1, 2], [0, 1, 2]]


@pytest.mark.parametrize("kind", ["Mean", "Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(kind: str, axes: list[int], keep: bool) -> None:
    values = [numbers(3, 4, 5), np.array(axes, np.int32)]
    check(kind, values, constant=[1], keep_dims=keep)


@pytest.mark.parametrize("kind", ["Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_reductions_of_integers(kind: str, dtype: type) -> None:
    values = [integers(3, 4, low=1, high=4, dtype=dtype), np.array(1, np.int32)]
    check(kind, values, constant=[1], keep_dims=False)


def test_reductions_of_booleans() -> None:
    values = [integers(3, 4) > 0, np.array([1], np.int32)]
    assert check("Any", values, constant=[1], keep_dims=False) == ["REDUCE_ANY"]
    assert check("All", values, constant=[1], keep_dims=True) == ["REDUCE_ALL"]


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("target", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arg_max_and_arg_min(kind: str, target: DType, axis: int) -> None:
    values = [numbers(3, 4, 5), np.array(axis, np.int32)]
    check(kind, values, constant=[1], output_type=target)


def test_top_k() -> None:
    values = [numbers(3, 9), np.int32(4)]
    assert check("TopKV2", values, constant=[1], outputs=2) == ["TOPK_V2"]


def test_l2_loss() -> None:
    check("L2Loss", [numbers(3, 4, 5)])


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axes", [[1], [0, -1], []])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min", "Prod"])
def test_computed_axes(kind: str, dtype: type, axes: list[int], keep_dims: bool) -> None:
    inputs = [numbers(2, 3, 4), np.array(axes, dtype)]
    check(kind, inputs, keep_dims=keep_dims)
    check(kind, inputs, keep_dims=keep_dims, open_sizes=1)


@pytest.mark.parametrize("kind", ["Any", "All"])
def test_computed_axes_of_booleans(kind: str) -> None:
    check(kind, [numbers(2, 3, 4) > 0.4, np.int32([0, 2])])


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_computed_axes_of_arg_max(kind: str) -> None:
    check(kind, [numbers(2, 3, 4), np.int32(1)], output_type=DType.INT32)
    check(kind, [numbers(2, 3, 4), np.int64(-1)])

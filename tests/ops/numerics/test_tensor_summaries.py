"""Tensor summaries; tests/reference compares more of them with TensorFlow."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.ops.numerics.differences import edges, escaped, summary
from mobileprep.ops.numerics.texts import as_texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-20.887871, "-20.8878708"),
        (22.25, "22.25"),
        (0.1, "0.1"),
        (1 / 3, "0.333333343"),
        (1e5, "100000"),
        (1e6, "1e+06"),
        (1234567, "1234567"),
        (1e10, "1e+10"),
        (1e-5, "1e-05"),
        (-0.0, "-0"),
        (-1e-40, "-0"),
        (np.inf, "inf"),
        (-np.nan, "-nan"),
    ],
)
def test_float32_has_six_to_nine_digits(value: float, text: str) -> None:
    assert summary(np.array(value, np.float32), DType.FLOAT, 3) == text


@pytest.mark.parametrize(
    ("array", "dtype", "text"),
    [
        (np.array([1 / 3, 1e10]), DType.DOUBLE, "0.33333333333333331 10000000000"),
        (np.array([0.1], np.float16), DType.HALF, "0.0999755859"),
        (np.array([0.1], ml_dtypes.bfloat16), DType.BFLOAT16, "0.100097656"),
        (np.array([2**64 - 1], np.uint64), DType.UINT64, "18446744073709551615"),
        (np.array([200], np.uint8), DType.QUINT8, "200"),
        (np.array([7], np.int32), DType.QINT32, "?"),
        (np.array([True, False]), DType.BOOL, "1 0"),
        (np.array([1 + 2j]), DType.COMPLEX128, "?"),
        (as_texts([b'a"\n\\\x00\xff'], (1,)), DType.STRING, 'a\\"\\n\\\\\\000\\377'),
    ],
)
def test_summary_of_every_dtype(array: np.ndarray, dtype: DType, text: str) -> None:
    assert summary(array, dtype, -1) == text


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ((), 0, "..."),
        ((), 1, "0"),
        ((0,), 3, ""),
        ((3, 0), 3, ""),
        ((4,), 2, "0 1..."),
        ((2, 3), 0, "..."),
        ((2, 3), 2, "[0 1...]..."),
        ((2, 3), 3, "[0 1 2]..."),
        ((2, 3), 4, "[0 1 2][3...]..."),
        ((2, 3), -1, "[0 1 2][3 4 5]"),
        ((2, 1, 2, 2), 5, "[[[0 1][2 3]]][[[4...]]]..."),
    ],
)
def test_summary_of_rows(shape: tuple[int, ...], count: int, text: str) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert summary(array, DType.INT32, count) == text


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ((), 0, "..."),
        ((), 3, "0"),
        ((0,), 3, "[]"),
        ((7,), 3, "[0 1 2 ... 4 5 6]"),
        ((7,), 0, "[ ...]"),
        ((2, 3), 1, "[[0 ... 2]\n [3 ... 5]]"),
        ((2, 3), 0, "[\n ...]"),
        ((3, 0), 3, "[\n ...]"),
        ((1, 2, 2), -1, "[[[0 1]\n  [2 3]]]"),
        ((2, 1, 1), 3, "[[[0]]\n\n [[1]]]"),
    ],
)
def test_edges_of_rows(shape: tuple[int, ...], count: int, text: str) -> None:
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert edges(array, DType.INT32, count) == text


def test_edges_quote_strings() -> None:
    assert edges(as_texts([b"a'", b"\t"], (2,)), DType.STRING, 3) == '["a\\\'" "\\t"]'
    assert edges(np.array([1j, 2, 3]), DType.COMPLEX128, 2) == "[? ?...]"


def test_strings_are_escaped_like_c() -> None:
    assert escaped("é\x7f'".encode()) == "\\303\\251\\177\\'"

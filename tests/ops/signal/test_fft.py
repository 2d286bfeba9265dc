"""Fourier transforms."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run

PLAIN = {"FFT": 1, "IFFT": 1, "FFT2D": 2, "IFFT2D": 2, "FFT3D": 3, "IFFT3D": 3}

SHAPES = [
    *(shapes(op, [(5, -1, 8, 4)], [(5, -1, 8, 4)]) for op in PLAIN),
    *(shapes(op, [(4,) * rank], [(4,) * rank]) for op, rank in PLAIN.items()),
    *(shapes(op, [(4,) * (rank - 1)], None) for op, rank in PLAIN.items()),
    shapes("RFFT", [(5, 9), [8]], [(5, 5)]),
    shapes("RFFT", [(5, 9), [7]], [(5, 4)]),
    shapes("RFFT", [(5, 9), [1]], [(5, 1)]),
    shapes("RFFT", [(5, 9), [0]], [(5, 0)]),
    shapes("RFFT", [(5, 9), (1,)], [(5, -1)]),
    shapes("RFFT", [None, [8]], [None]),
    shapes("RFFT", [(), [8]], None),
    shapes("RFFT", [(5, 9), [8, 8]], None),
    shapes("RFFT2D", [(5, 9, 9), [6, 8]], [(5, 6, 5)]),
    shapes("RFFT2D", [(9, 9), (2,)], [(-1, -1)]),
    shapes("RFFT2D", [(9,), [6, 8]], None),
    shapes("RFFT3D", [(5, 9, 9, 9), [4, 6, 8]], [(5, 4, 6, 5)]),
    shapes("IRFFT", [(5, 9), [8]], [(5, 8)]),
    shapes("IRFFT", [(5, 9), (1,)], [(5, -1)]),
    shapes("IRFFT", [None, [8]], [None]),
    shapes("IRFFT", [(), [8]], None),
    shapes("IRFFT2D", [(5, 9, 9), [6, 8]], [(5, 6, 8)]),
    shapes("IRFFT3D", [(9, 9, 9), [4, 6, 8]], [(4, 6, 8)]),
]

# n log2 n is 8 x 3 for each of 2 rows, 32 x 5 for 4 x 8, 64 x 6 for 2 x 4 x 8.
ROWS, PLANE, CUBE = [(2, 8)], [(4, 8)], [(2, 4, 8)]

COSTS = [
    *(cost(op, ROWS, ROWS, 5 * 48) for op in ("FFT", "IFFT")),
    *(cost(op, PLANE, PLANE, 5 * 160) for op in ("FFT2D", "IFFT2D")),
    *(cost(op, CUBE, CUBE, 5 * 384) for op in ("FFT3D", "IFFT3D")),
    cost("FFT2D", [(3, 4, 8)], [(3, 4, 8)], 5 * 480),
    cost("RFFT", [*ROWS, (1,)], [(2, 5)], 120),
    cost("RFFT2D", [*PLANE, (2,)], [(4, 5)], 400),
    cost("RFFT3D", [*CUBE, (3,)], [(2, 4, 5)], 960),
    cost("IRFFT", [(2, 5), (1,)], ROWS, 120),
    cost("IRFFT2D", [(4, 5), (2,)], PLANE, 400),
    cost("IRFFT3D", [(2, 4, 5), (3,)], CUBE, 960),
    cost("FFT", [(5, 1)], [(5, 1)], 0),
    cost("FFT", [(5, 2)], [(5, 2)], 5 * 10),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_fft_matches_its_definition() -> None:
    x = np.array([1, 2, 0, -1j], np.complex64)
    # sums of x[k] times powers of -i, for each frequency
    expected = [3 - 1j, 1 - 2j + 1, -1 + 1j, 1 + 2j - 1]
    np.testing.assert_allclose(run("FFT", x), expected, atol=1e-6)
    np.testing.assert_allclose(run("IFFT", np.complex64(expected)), x, atol=1e-6)


@pytest.mark.parametrize(("op", "axes"), [("FFT2D", (1, 2)), ("FFT3D", (0, 1, 2))])
def test_fft_over_several_axes(op: str, axes: tuple[int, ...]) -> None:
    x = np.zeros((2, 2, 4), np.complex64)
    x[0, 1, 1] = 1
    rows, columns = np.exp(-1j * np.pi * np.arange(2)), np.exp(-0.5j * np.pi * np.arange(4))
    plane = np.outer(rows, columns)
    whole = [plane, plane] if len(axes) == 3 else [plane, 0 * plane]
    np.testing.assert_allclose(run(op, x), whole, atol=1e-6)
    assert run(op, x).dtype == np.complex64


def test_rfft_and_irfft() -> None:
    x = np.float32([1, 2, 0, -1])
    result = run("RFFT", x, np.int32([4]))
    assert result.dtype == np.complex64
    np.testing.assert_allclose(result, [2, 1 - 3j, 0], atol=1e-6)
    np.testing.assert_allclose(run("IRFFT", result, np.int32([4])), x, atol=1e-6)
    np.testing.assert_allclose(run("RFFT", x, np.int32([2])), [3, -1], atol=1e-6)
    with pytest.raises(InvalidGraphError, match=r"a transform of \[5\] numbers"):
        run("RFFT", x, np.int32([5]))


@pytest.mark.parametrize("op", ["FFT", "IFFT2D"])
def test_fft_of_empty_tensor(op: str) -> None:
    assert run(op, np.zeros((2, 3, 0), np.complex64)).shape == (2, 3, 0)

"""The original library's reciprocal square root."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ir.node import Node
from mobileprep.ops.kernel import find_kernel
from mobileprep.ops.original_arithmetic import approximate_rsqrt, original_kernel

NODE = Node("n", "Rsqrt")


def rsqrt(x: np.ndarray) -> np.ndarray:
    run = original_kernel("Rsqrt")
    assert run is not None
    with np.errstate(all="ignore"):
        out = run(NODE, x)
    assert isinstance(out, np.ndarray)
    return out


def usual(x: np.ndarray) -> np.ndarray:
    run = find_kernel("Rsqrt")
    assert run is not None
    with np.errstate(all="ignore"):
        out = run(NODE, x)
    assert isinstance(out, np.ndarray)
    return out


def test_only_the_reciprocal_root_is_its_own() -> None:
    assert original_kernel("Sqrt") is None
    assert original_kernel("Relu") is None


def test_it_is_right_to_twenty_two_bits_over_the_whole_range() -> None:
    generator = np.random.default_rng(0)
    bits = generator.integers(0x00800000, 0x7F800000, 200_000, dtype=np.uint32)
    x = bits.view(np.float32)
    exact = 1 / np.sqrt(x.astype(np.float64))
    error = np.abs(approximate_rsqrt(x).astype(np.float64) / exact - 1)
    assert error.max() < 2**-21.5
    # One step from twelve bits is close, and not the correctly rounded answer throughout.
    assert (approximate_rsqrt(x) != exact.astype(np.float32)).mean() > 0.05


def test_powers_of_four_differ_by_the_exponent_alone() -> None:
    x = np.linspace(1, 4, 1000, endpoint=False, dtype=np.float32)
    for shift in (-20, -2, 2, 20):
        scaled = np.ldexp(x, shift)
        assert (approximate_rsqrt(scaled) == np.ldexp(approximate_rsqrt(x), -shift // 2)).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 17, 24])
def test_whole_packets_are_approximated_and_the_rest_rounded(size: int) -> None:
    x = np.random.default_rng(size).uniform(0.01, 50, size).astype(np.float32)
    whole = size // 8 * 8
    found = rsqrt(x)
    assert found[:whole].tolist() == approximate_rsqrt(x[:whole]).tolist()
    assert found[whole:].tolist() == usual(x[whole:]).tolist()


def test_shape_does_not_matter() -> None:
    x = np.random.default_rng(1).uniform(0.01, 50, (2, 3, 4)).astype(np.float32)
    assert rsqrt(x).reshape(-1).tolist() == rsqrt(x.reshape(-1)).tolist()
    assert rsqrt(x.T).shape == (4, 3, 2)
    assert rsqrt(np.float32(4).reshape(())).item() == 0.5


def test_what_is_no_normal_number_is_as_usual() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    x = np.array([0, -0.0, np.inf, np.nan, -1, tiny, -np.inf, 4], np.float32)
    assert rsqrt(x)[:7].tobytes() == usual(x)[:7].tobytes()


def test_double_precision_is_as_usual() -> None:
    x = np.linspace(0.1, 9, 64)
    assert rsqrt(x).tobytes() == usual(x).tobytes()


def test_the_input_stays_as_it_was() -> None:
    x = np.full(16, 2, np.float32)
    x.flags.writeable = False
    assert rsqrt(x)[0] != 2

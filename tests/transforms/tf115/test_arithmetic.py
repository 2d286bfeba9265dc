"""The original library's roots, exponentials, logarithms and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.graph.node import Node
from mobileprep.ops.kernel import find_kernel
from mobileprep.transforms.tf115.arithmetic import approximate_rsqrt, tf115_kernel

NODE = Node("n", "Rsqrt")


def rsqrt(x: np.ndarray) -> np.ndarray:
    run = tf115_kernel("Rsqrt")
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


def as_tf115(op: str, *inputs: np.ndarray) -> np.ndarray:
    run = tf115_kernel(op)
    assert run is not None
    with np.errstate(all="ignore"):
        out = run(Node("n", op), *inputs)
    assert isinstance(out, np.ndarray)
    return out


def test_most_ops_have_none_of_their_own() -> None:
    assert tf115_kernel("Relu") is None
    assert tf115_kernel("Pow") is None


def test_a_root_is_the_number_times_its_reciprocal_root() -> None:
    x = np.random.default_rng(2).uniform(0.01, 50, 19).astype(np.float32)
    found = as_tf115("Sqrt", x)
    assert found[:16].tolist() == (x * approximate_rsqrt(x))[:16].tolist()
    assert found[16:].tolist() == np.sqrt(x[16:]).tolist()
    assert as_tf115("Sqrt", np.zeros(8, np.float32)).tolist() == [0] * 8


# What the original tool folded these to, bit for bit.
FOLDED = {
    "Exp": [
        0x3F8D763E,
        0x4000E153,
        0x406AD5C1,
        0x41106675,
        0x41B19566,
        0x43956F05,
        0x45CF51F6,
        0x558031FA,
    ],
    "Log": [
        0xC0135D8E,
        0xBEB69E1A,
        0x3E86549B,
        0x3F49D858,
        0x3F90D1C8,
        0x3FDEC798,
        0x400B2F22,
        0x405ABC09,
    ],
}
ASKED = np.array([0.1, 0.7, 1.3, 2.2, 3.1, 5.7, 8.8, 30.5], np.float32)


@pytest.mark.parametrize("op", FOLDED)
def test_packets_are_what_the_original_folded(op: str) -> None:
    assert [int(x) for x in as_tf115(op, ASKED).view(np.uint32)] == FOLDED[op]


@pytest.mark.parametrize(("op", "exact"), [("Exp", np.exp), ("Log", np.log)])
def test_functions_are_close_in_packets_and_rounded_after_them(op: str, exact: Any) -> None:
    x = np.random.default_rng(3).uniform(0.01, 80, (101, 7)).astype(np.float32)
    found, true = as_tf115(op, x), exact(x.astype(np.float64))
    np.testing.assert_allclose(found, true, rtol=3e-7, atol=1e-7)
    assert found.reshape(-1)[704:].tolist() == true.astype(np.float32).reshape(-1)[704:].tolist()
    assert found.reshape(-1)[:704].tolist() != true.astype(np.float32).reshape(-1)[:704].tolist()
    assert as_tf115(op, x.astype(np.float64)).tolist() == exact(x.astype(np.float64)).tolist()


def test_functions_of_numbers_out_of_their_range() -> None:
    x = np.array([0, -0.0, 1e-40, -1, np.inf, -np.inf, np.nan, 1], np.float32)
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(as_tf115("Log", x), [-inf, -inf, -inf, nan, inf, nan, nan, 0])
    exponentials = as_tf115("Exp", x)
    np.testing.assert_array_equal(exponentials[[0, 1, 2, 4, 6]], [1, 1, 1, inf, nan])
    assert 0 <= exponentials[5] < 1e-37


def test_a_denormal_number_of_either_sign_is_a_zero_to_the_logarithm() -> None:
    tiny = np.finfo(np.float32).tiny
    x = np.array([tiny, tiny / 2, -tiny / 2, -tiny, -2 * tiny, 2 * tiny, 1, 2], np.float32)
    found = as_tf115("Log", x)
    assert np.isneginf(found).tolist() == [False, True, True, *[False] * 5]
    assert np.isnan(found).tolist() == [*[False] * 3, True, True, *[False] * 3]
    np.testing.assert_allclose(found[[0, 5, 6, 7]], np.log(x[[0, 5, 6, 7]]), rtol=1e-6)


def test_a_range_of_doubles_adds_its_step_too() -> None:
    found = as_tf115("Range", *(np.float64(x).reshape(()) for x in (1, 2, 0.1)))
    assert found.dtype == np.float64
    assert found[:3].tolist() == [1, 1.1, 1.1 + 0.1]


def test_a_range_adds_its_step_again_and_again() -> None:
    ends = (np.float32(x).reshape(()) for x in (0, 50, 0.1))
    found = as_tf115("Range", *ends)
    assert found.shape == (500,)
    assert found[-1] == np.float32(49.89981)
    assert found[2] == np.float32(0.1) + np.float32(0.1)
    whole = as_tf115("Range", *(np.int32(x).reshape(()) for x in (2, 11, 3)))
    assert whole.tolist() == [2, 5, 8]
    assert as_tf115("Range", *(np.float32(x).reshape(()) for x in (1, 1, 1))).size == 0


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

"""The estimated code size of kernels."""

from __future__ import annotations

from mobileprep.targets.op_lists import DEFAULT_OPS, OpKernel
from mobileprep.targets.selective_registration import kernel_bytes

MAX = [OpKernel("MaxPool", f"MaxPoolingOp<CPUDevice, {t}>") for t in ("float", "double")]


def test_more_kernels_have_more_code() -> None:
    least = kernel_bytes(DEFAULT_OPS, "1.15")
    one = kernel_bytes([*DEFAULT_OPS, MAX[0]], "1.15")
    two = kernel_bytes([*DEFAULT_OPS, *MAX], "1.15")
    assert least is not None and one is not None and two is not None
    assert 0 < least < one < two
    assert two - one == one - least or abs((two - one) - (one - least)) == 1  # each rounded


def test_duplicates_and_unknown_kernels_do_not_count() -> None:
    kernels = [*DEFAULT_OPS, MAX[0]]
    again = [*kernels, MAX[0], OpKernel("Placeholder"), OpKernel("Frobnicate", "Own")]
    assert kernel_bytes(again, "1.15") == kernel_bytes(kernels, "1.15")


def test_other_releases_have_no_estimate() -> None:
    assert kernel_bytes(DEFAULT_OPS, "2.21") is None

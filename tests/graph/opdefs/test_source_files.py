"""Source files that ops need."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.opdefs.kernel_classes import kernel_files, makefile_sources

RELEASES = ["1.15", "2.21"]


@pytest.mark.parametrize("release", RELEASES)
def test_files_of_other_ops_are_excluded(release: str) -> None:
    files = kernel_files(["Mul"], release).kept
    assert "cwise_op_mul_1.cc" in files
    assert "softmax_op.cc" not in files
    assert "cwise_ops_common.cc" in files


CASTS = "cast_op_impl_float.cc"


def test_unused_helpers_are_excluded_from_1_15() -> None:
    files = kernel_files(["Relu", "Mean"], "1.15")
    unused = {CASTS, "conv_grad_ops.cc", "boosted_trees/resources.cc", "mfcc.cc", "conv_ops.cc"}
    assert not unused & set(files.kept)
    assert "reduction_ops_common.cc" in files.kept
    assert CASTS in kernel_files(["Cast"], "1.15").kept


def test_dependencies_between_files_are_followed() -> None:
    files = kernel_files(["FIFOQueueV2", "_FusedConv2D", "GatherNd"], "1.15")
    assert {"fifo_queue.cc", "queue_base.cc", "conv_ops.cc", "deep_conv2d.cc"} <= set(files.kept)
    assert {"gather_nd_op.cc", "gather_nd_op_cpu_impl_3.cc"} <= set(files.kept)


def test_each_file_has_a_reason() -> None:
    files = kernel_files(["Cast", "Lgamma"], "1.15")
    assert files.needed_by["cast_op.cc"] == ("Cast",)
    assert files.needed_by[CASTS] == ("cast_op.cc",)
    assert files.needed_by["cwise_op_lgamma.cc"] == ("Lgamma",)
    assert files.needed_by["no_op.cc"] == ("NoOp",)
    assert files.needed_by["fill_functor.cc"] == ()
    assert set(files.needed_by) == {*files.kept, *files.added}


@pytest.mark.parametrize("release", RELEASES)
def test_kernels_of_the_runtime_are_always_included(release: str) -> None:
    files = kernel_files([], release).kept
    assert {"function_ops.cc", "no_op.cc", "sendrecv_ops.cc"} <= set(files)


def test_op_outside_of_the_mobile_build_adds_its_files() -> None:
    assert kernel_files(["Lgamma"], "1.15").added == ("cwise_op_lgamma.cc",)
    assert kernel_files(["Relu"], "1.15").added == ()


def test_op_partly_in_the_mobile_build_adds_nothing() -> None:
    files = kernel_files(["Einsum"], "1.15")
    assert "einsum_op_impl_float.cc" in files.kept
    assert files.added == ()


def test_ops_without_source_files_are_reported() -> None:
    assert kernel_files(["Relu", "Frobnicate"], "2.21").unplaced == ("Frobnicate",)


def test_result_is_sorted_and_independent_of_order() -> None:
    one, other = kernel_files(["Tanh", "Relu"], "1.15"), kernel_files(["Relu", "Tanh"], "1.15")
    assert one == other
    assert list(one.kept) == sorted(one.kept)


def test_makefile_lists_op_definitions() -> None:
    assert "tensorflow/core/ops/nn_ops.cc" in makefile_sources()
    assert not [file for file in makefile_sources() if "contrib" in file or "_grad.cc" in file]
    assert "tensorflow/core/ops/nn_grad.cc" in makefile_sources(["SymbolicGradient"])


def test_release_without_a_table_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4"):
        kernel_files(["Relu"], "1.4")

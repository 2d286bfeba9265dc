"""The kernel class that a release registers for a node."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.kernel_classes import kernel_class, kernel_files, makefile_sources
from mobileprep.graph.opdefs.release_gaps import ReleaseGap, release_gaps, spare_attributes
from tests.transforms.graphs import node


def _node(op, **attrs):
    return Node("n", op, attrs={k: attr.dtype(v) for k, v in attrs.items()})


def test_type_selects_the_class():
    assert kernel_class(_node("Abs", T=DType.FLOAT), "1.15") == (
        "UnaryOp<CPUDevice, functor::abs<float>>"
    )
    assert "int64" in kernel_class(_node("Abs", T=DType.INT64), "1.15")


@pytest.mark.parametrize(
    "node",
    [
        _node("Abs", T=DType.STRING),
        _node("Abs"),
        _node("MyOwnOp"),
        Node("n", "Abs", attrs={"T": attr.integer(1)}),
    ],
    ids=["unsupported-type", "missing-type", "unknown-op", "type-of-another-kind"],
)
@pytest.mark.parametrize("release", ["1.15", "2.21"])
def test_node_without_a_kernel_has_no_class(node, release):
    assert kernel_class(node, release) is None


def test_op_for_any_type_has_a_class():
    assert kernel_class(_node("Placeholder", dtype=DType.FLOAT), "1.15") == "PlaceholderOp"


def test_missing_type_attribute_uses_its_default():
    variant = _node("Gather", Tparams=DType.FLOAT, Tindices=DType.INT32)
    assert kernel_class(variant, "1.15") is not None
    shape = kernel_class(_node("Shape", T=DType.FLOAT), "1.15")
    assert shape == kernel_class(_node("Shape", T=DType.FLOAT, out_type=DType.INT32), "1.15")
    assert shape is not None


def test_label_selects_kernels_registered_under_it():
    plain = _node("Conv2DBackpropInput", T=DType.FLOAT)
    labeled = plain.with_attrs(_kernel=attr.string("eigen_tensor"))
    assert kernel_class(labeled, "1.15") == "Conv2DBackpropInputOp<CPUDevice, float>"
    assert kernel_class(plain, "1.15") != kernel_class(labeled, "1.15")
    assert kernel_class(plain.with_attrs(_kernel=attr.string("mine")), "1.15") is None


def test_list_of_types_has_a_class():
    mixed = AttrValue("list(type)", (DType.FLOAT, DType.INT32))
    variant = Node("n", "IdentityN", attrs={"T": mixed})
    assert kernel_class(variant, "1.15") == "IdentityNOp"


def test_op_of_the_newest_release_only():
    variant = _node("Erfinv", T=DType.FLOAT)
    assert kernel_class(variant, "1.15") is None
    assert kernel_class(variant, "2.21") is not None


def test_release_without_a_table_is_an_error():
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4") as caught:
        kernel_class(_node("Abs"), "1.4")
    assert "1.15" in caught.value.hint


@pytest.mark.parametrize("layout", ["NHWC", b"NHWC"])
def test_other_attributes_must_have_supported_values(layout):
    plain = _node("DepthToSpace", T=DType.INT16)
    fitting = plain.with_attrs(data_format=attr.string(layout))
    for default_or_explicit in (plain, fitting):
        result = kernel_class(default_or_explicit, "2.21")
        assert result == "DepthToSpaceOp<CPUDevice, ::int16_t>"
    for unsupported in (attr.string("NCHW"), attr.floating(1.0)):
        assert kernel_class(plain.with_attrs(data_format=unsupported), "2.21") is None


@pytest.mark.parametrize(("largest", "axis", "matches"), [(1, -1, 1), (0, -1, 0), (1, 0, 0)])
def test_boolean_and_integer_attributes_must_both_match(largest, axis, matches):
    variant = _node("ApproxTopK", T=DType.FLOAT).with_attrs(
        is_max_k=attr.boolean(bool(largest)), reduction_dimension=attr.integer(axis)
    )
    expected = "TopK<CPUDevice, float, int32>" if matches else None
    assert kernel_class(variant, "2.21") == expected


def test_label_that_is_not_a_string_is_ignored():
    plain = _node("Conv2DBackpropInput", T=DType.FLOAT)
    other = plain.with_attrs(_kernel=attr.integer(1))
    assert kernel_class(other, "1.15") == kernel_class(plain, "1.15")


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


@pytest.mark.parametrize(
    ("op_node", "expected"),
    [
        (node("n", "Relu", "x"), []),
        (node("n", "AccumulateNV2", "x", N=1), []),
        (node("n", "Nobodys", "x"), [ReleaseGap("op")]),
        (node("n", "Relu", "x", _class="loc:@x"), []),
        (node("n", "GatherNd", "x x", T=None, bad_indices_policy="IGNORE"),
         [ReleaseGap("attribute", "bad_indices_policy=IGNORE"),
          ReleaseGap("kernel", "its attributes")]),
        (node("n", "Pow", "x x", T=DType.INT8), [ReleaseGap("value", "T=int8")]),
        (node("n", "MaxPool", "x", explicit_paddings=()),
         [ReleaseGap("default attribute", "explicit_paddings")]),
        (node("n", "MaxPool", "x", explicit_paddings=(0, 1)),
         [ReleaseGap("attribute", "explicit_paddings=[0, 1]")]),
    ],
)  # fmt: skip
def test_gaps_of_an_old_release(op_node: Node, expected: list[ReleaseGap]) -> None:
    assert list(release_gaps(op_node, "1.15")) == expected


def test_release_of_the_graph_has_no_gaps() -> None:
    pool = node("n", "MaxPool", "x", explicit_paddings=(0, 1), padding="EXPLICIT")
    assert list(release_gaps(pool, "2.21")) == []


def test_gradient_attributes_are_spare() -> None:
    assert spare_attributes(node("n", "MatMul", "x x", grad_a=True), "1.15") == {"grad_a"}
    assert spare_attributes(node("n", "MatMul", "x x", grad_a=True), "2.21") == frozenset()
    assert spare_attributes(node("n", "Nobodys", "x", a=1), "1.15") == frozenset()
    pool = node("n", "FusedBatchNorm", "x", exponential_avg_factor=0.5)
    assert spare_attributes(pool, "1.15") == frozenset()

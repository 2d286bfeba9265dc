"""The kernel class that a release registers for a node."""

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.kernel_classes import kernel_class


def _node(op, **attrs):
    return Node("n", op, attrs={k: attr.dtype(v) for k, v in attrs.items()})


def test_the_type_chooses_the_class():
    assert kernel_class(_node("Abs", T=DType.FLOAT), "1.15") == (
        "UnaryOp<CPUDevice, functor::abs<float>>"
    )
    assert "int64" in kernel_class(_node("Abs", T=DType.INT64), "1.15")


def test_a_type_without_a_kernel_has_no_class():
    assert kernel_class(_node("Abs", T=DType.STRING), "1.15") is None


def test_an_op_for_any_type_has_its_class():
    assert kernel_class(_node("Placeholder", dtype=DType.FLOAT), "1.15") == "PlaceholderOp"


def test_a_missing_attribute_counts_with_its_default():
    given = _node("Gather", Tparams=DType.FLOAT, Tindices=DType.INT32)
    assert kernel_class(given, "1.15") is not None
    shape = kernel_class(_node("Shape", T=DType.FLOAT), "1.15")
    assert shape == kernel_class(_node("Shape", T=DType.FLOAT, out_type=DType.INT32), "1.15")
    assert shape is not None


def test_a_missing_type_without_default_has_no_class():
    assert kernel_class(_node("Abs"), "1.15") is None


def test_a_label_asks_for_the_kernels_registered_under_it():
    plain = _node("Conv2DBackpropInput", T=DType.FLOAT)
    labelled = plain.with_attrs(_kernel=attr.string("eigen_tensor"))
    assert kernel_class(labelled, "1.15") == "Conv2DBackpropInputOp<CPUDevice, float>"
    assert kernel_class(plain, "1.15") != kernel_class(labelled, "1.15")
    assert kernel_class(plain.with_attrs(_kernel=attr.string("mine")), "1.15") is None


def test_a_list_of_types_must_fit_in_whole():
    mixed = AttrValue("list(type)", (DType.FLOAT, DType.INT32))
    given = Node("n", "IdentityN", attrs={"T": mixed})
    assert kernel_class(given, "1.15") == "IdentityNOp"


@pytest.mark.parametrize("release", ["1.15", "2.21"])
def test_an_unknown_op_has_no_class(release):
    assert kernel_class(_node("MyOwnOp"), release) is None


def test_an_op_that_only_the_newest_release_knows():
    given = _node("Erfinv", T=DType.FLOAT)
    assert kernel_class(given, "1.15") is None
    assert kernel_class(given, "2.21") is not None


def test_a_release_without_a_table_is_an_error():
    with pytest.raises(UnsupportedError, match=r"TensorFlow 1\.4") as caught:
        kernel_class(_node("Abs"), "1.4")
    assert "1.15" in caught.value.hint


@pytest.mark.parametrize("layout", ["NHWC", b"NHWC"])
def test_other_attributes_must_have_a_value_that_the_kernel_takes(layout):
    plain = _node("DepthToSpace", T=DType.INT16)
    fitting = plain.with_attrs(data_format=attr.string(layout))
    assert kernel_class(fitting, "2.21") == "DepthToSpaceOp<CPUDevice, ::int16_t>"
    assert kernel_class(plain.with_attrs(data_format=attr.string("NCHW")), "2.21") is None


def test_other_attributes_count_with_their_defaults():
    plain = _node("DepthToSpace", T=DType.INT16)
    assert kernel_class(plain, "2.21") == "DepthToSpaceOp<CPUDevice, ::int16_t>"


def test_an_attribute_of_another_kind_fits_no_kernel():
    plain = _node("DepthToSpace", T=DType.INT16)
    assert kernel_class(plain.with_attrs(data_format=attr.floating(1.0)), "2.21") is None


@pytest.mark.parametrize(("largest", "axis", "found"), [(1, -1, 1), (0, -1, 0), (1, 0, 0)])
def test_truth_values_and_numbers_must_fit_together(largest, axis, found):
    given = _node("ApproxTopK", T=DType.FLOAT).with_attrs(
        is_max_k=attr.boolean(bool(largest)), reduction_dimension=attr.integer(axis)
    )
    expected = "TopK<CPUDevice, float, int32>" if found else None
    assert kernel_class(given, "2.21") == expected


def test_a_label_that_is_no_text_counts_as_none():
    plain = _node("Conv2DBackpropInput", T=DType.FLOAT)
    other = plain.with_attrs(_kernel=attr.integer(1))
    assert kernel_class(other, "1.15") == kernel_class(plain, "1.15")


def test_a_type_attribute_of_another_kind_has_no_class():
    given = Node("n", "Abs", attrs={"T": attr.integer(1)})
    assert kernel_class(given, "1.15") is None

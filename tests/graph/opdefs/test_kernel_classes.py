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
    labelled = plain.with_attrs(_kernel=attr.string("eigen_tensor"))
    assert kernel_class(labelled, "1.15") == "Conv2DBackpropInputOp<CPUDevice, float>"
    assert kernel_class(plain, "1.15") != kernel_class(labelled, "1.15")
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

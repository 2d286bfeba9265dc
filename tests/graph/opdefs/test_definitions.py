"""Op definitions of the two releases."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.opdefs.definitions import (
    NEWEST,
    RELEASES,
    TF115,
    any_op_def,
    op_def,
    op_names,
)


def test_definition_has_arguments_and_attributes() -> None:
    conv = op_def("Conv2D", TF115)
    assert conv is not None
    assert [a.name for a in conv.inputs] == ["input", "filter"]
    assert [a.type_attr for a in conv.outputs] == ["T"]
    data_format = conv.attr("data_format")
    assert data_format is not None
    assert data_format.default is not None
    assert data_format.default.value == b"NHWC"
    assert data_format.allowed is not None
    assert data_format.allowed.value == (b"NHWC", b"NCHW")
    assert conv.attr("no_such") is None


def test_releases_have_different_ops() -> None:
    for release in RELEASES:
        assert op_def("Relu", release) is not None
    # Ops were added and removed between the releases.
    assert op_def("StatelessIf", TF115) is not None
    assert op_def("UniformQuantize", TF115) is None
    assert op_def("UniformQuantize", NEWEST) is not None
    old_ops = set(op_names(TF115)) - set(op_names(NEWEST))
    assert old_ops
    for name in old_ops:
        assert any_op_def(name) == op_def(name, TF115)


def test_newest_definition_has_priority() -> None:
    assert any_op_def("MatMul") == op_def("MatMul", NEWEST)
    assert op_def("MatMul") == op_def("MatMul", NEWEST)
    assert any_op_def("NoSuchOp") is None


@pytest.mark.parametrize("release", RELEASES)
def test_op_names_are_sorted_and_defined(release: str) -> None:
    names = op_names(release)
    assert names == sorted(set(names))
    assert len(names) > 1000
    for name in names:
        definition = op_def(name, release)
        assert definition is not None
        assert definition.name == name


def test_definition_has_flags() -> None:
    variable = op_def("VariableV2", TF115)
    add = op_def("Add", TF115)
    assert variable is not None
    assert add is not None
    assert variable.is_stateful
    assert variable.outputs[0].is_ref
    assert not add.is_stateful
    minimum = op_def("Pack", TF115)
    assert minimum is not None
    count = minimum.attr("N")
    assert count is not None
    assert count.minimum == 1
    old = op_def("BatchNormWithGlobalNormalization", TF115)
    assert old is not None
    assert old.deprecated_at == 9
    types = op_def("Placeholder", TF115)
    assert types is not None
    assert types.outputs[0].dtype is DType.INVALID


def test_unknown_release_is_reported() -> None:
    with pytest.raises(UnsupportedError, match=r"TensorFlow 2\.20") as caught:
        op_def("Relu", "2.20")
    assert caught.value.hint == "did you mean '2.21'?"
    with pytest.raises(UnsupportedError) as caught:
        op_names("x")
    assert caught.value.hint == "one of 1.15, 2.21"

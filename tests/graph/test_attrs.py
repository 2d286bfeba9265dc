"""Attribute values."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.node_serde import attr_from_proto, attr_to_proto
from mobileprep.graph.tensor import Tensor

EXAMPLES = {
    "string": (attr.string("NHWC"), b"NHWC"),
    "int": (attr.integer(-3), -3),
    "float": (attr.floating(0.5), 0.5),
    "bool": (attr.boolean(False), False),
    "type": (attr.dtype(DType.HALF), DType.HALF),
    "shape": (attr.shape((-1, 3)), (-1, 3)),
    "tensor": (attr.tensor(Tensor.of(np.int32(3))), Tensor.of(np.int32(3))),
    "list(int)": (attr.integers(1, 2), (1, 2)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_constructed_values_survive_serialization(kind: str) -> None:
    attr_value, value = EXAMPLES[kind]
    assert (attr_value.kind, attr_value.value) == (kind, value)
    proto = pb.AttrValue()
    attr_to_proto(attr_value, proto)
    assert attr_from_proto(proto, [], "test") == attr_value


def test_strings_are_stored_as_utf8() -> None:
    assert attr.string("\N{DEGREE SIGN}") == attr.string("\N{DEGREE SIGN}".encode())


def test_unknown_rank_is_not_a_scalar() -> None:
    assert attr.shape(None) != attr.shape(())


def test_empty_list_has_no_element_kind() -> None:
    proto = pb.AttrValue()
    attr_to_proto(attr.integers(), proto)
    assert attr_from_proto(proto, [], "test") == AttrValue("list", ())


def test_equal_values_of_different_kinds_differ() -> None:
    assert attr.integer(1) != attr.boolean(True)
    assert attr.integer(1) != attr.floating(1.0)
    assert attr.string("a") != AttrValue("placeholder", "a")


def test_functions_are_equal_by_name_and_bindings() -> None:
    f = FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f == FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f != FuncRef("f", {"T": attr.dtype(DType.HALF)})
    assert f != FuncRef("f")

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

MADE = {
    "string": (attr.string("NHWC"), b"NHWC"),
    "int": (attr.integer(-3), -3),
    "float": (attr.floating(0.5), 0.5),
    "bool": (attr.boolean(False), False),
    "type": (attr.dtype(DType.HALF), DType.HALF),
    "shape": (attr.shape((-1, 3)), (-1, 3)),
    "tensor": (attr.tensor(Tensor.of(np.int32(3))), Tensor.of(np.int32(3))),
    "list(int)": (attr.integers(1, 2), (1, 2)),
}


@pytest.mark.parametrize("kind", MADE)
def test_constructors_make_what_the_wire_gives_back(kind: str) -> None:
    made, value = MADE[kind]
    assert (made.kind, made.value) == (kind, value)
    proto = pb.AttrValue()
    attr_to_proto(made, proto)
    assert attr_from_proto(proto, [], "test") == made


def test_text_is_stored_as_bytes() -> None:
    assert attr.string("\N{DEGREE SIGN}") == attr.string("\N{DEGREE SIGN}".encode())


def test_an_unknown_rank_is_no_scalar() -> None:
    assert attr.shape(None) != attr.shape(())


def test_an_empty_list_is_of_every_kind() -> None:
    proto = pb.AttrValue()
    attr_to_proto(attr.integers(), proto)
    assert attr_from_proto(proto, [], "test") == AttrValue("list", ())


def test_kinds_tell_values_apart() -> None:
    assert attr.integer(1) != attr.boolean(True)
    assert attr.integer(1) != attr.floating(1.0)
    assert attr.string("a") != AttrValue("placeholder", "a")


def test_functions_are_equal_by_name_and_bindings() -> None:
    f = FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f == FuncRef("f", {"T": attr.dtype(DType.FLOAT)})
    assert f != FuncRef("f", {"T": attr.dtype(DType.HALF)})
    assert f != FuncRef("f")

"""References to tensors."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import (
    CONTROL,
    FreshNames,
    Ref,
    control,
    parse_function_ref,
    parse_ref,
    unique_name,
)
from mobileprep.graph.tensor import Tensor


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("a", Ref("a")),
        ("scope/a", Ref("scope/a")),
        ("a:1", Ref("a", 1)),
        ("a:0", Ref("a", 0)),
        ("a:12", Ref("a", 12)),
        ("^a", Ref("a", CONTROL)),
        ("^scope/a", Ref("scope/a", CONTROL)),
        # A suffix that is not a number belongs to the name.
        ("a:b", Ref("a:b")),
        ("a:-1", Ref("a:-1")),
        ("a:+1", Ref("a:+1")),
        ("a: 1", Ref("a: 1")),
        ("a:1_0", Ref("a:1_0")),
        ("a:\N{ARABIC-INDIC DIGIT ONE}", Ref("a:\N{ARABIC-INDIC DIGIT ONE}")),
        ("a:", Ref("a:")),
        ("a:b:2", Ref("a:b", 2)),
        ("", Ref("")),
        (":3", Ref("", 3)),
        # A control dependency has no output number.
        ("^a:1", Ref("a:1", CONTROL)),
    ],
)
def test_references_are_parsed(text: str, ref: Ref) -> None:
    assert parse_ref(text) == ref


@pytest.mark.parametrize("digits", ["1" * 5000, "9" * 10])
def test_very_long_number_is_part_of_the_name(digits: str) -> None:
    assert parse_ref(f"a:{digits}") == Ref(f"a:{digits}")


@given(st.text())
def test_references_survive_a_round_trip(text: str) -> None:
    formatted = str(parse_ref(text))
    # Only a number with leading zeros is normalized.
    assert parse_ref(formatted) == parse_ref(text)
    if not text.rpartition(":")[2].startswith("0"):
        assert formatted == text


def test_explicit_first_output_is_preserved_and_equal() -> None:
    assert str(parse_ref("a:0")) == "a:0"
    assert str(parse_ref("a")) == "a"
    assert parse_ref("a:0") == parse_ref("a")
    assert hash(parse_ref("a:0")) == hash(parse_ref("a"))


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("x", Ref("x")),
        ("n:output:0", Ref("n", 0, "output")),
        ("n:output:3", Ref("n", 3, "output")),
        ("^n", Ref("n", CONTROL)),
        ("x:1", Ref("x", 1)),
    ],
)
def test_references_inside_functions_are_parsed(text: str, ref: Ref) -> None:
    assert parse_function_ref(text) == ref
    assert str(parse_function_ref(text)) == text


def test_renamed_references() -> None:
    assert str(parse_ref("a:2").renamed("b")) == "b:2"
    assert str(parse_ref("^a").renamed("b")) == "^b"
    assert str(parse_ref("a:0").renamed("b")) == "b:0"
    assert str(parse_function_ref("a:out:1").renamed("b")) == "b:out:1"


def test_control_dependencies() -> None:
    assert control("a") == parse_ref("^a")
    assert control("a").is_control
    assert not parse_ref("a").is_control


def test_unique_name_uses_the_first_free_number() -> None:
    assert unique_name("a", {"b"}) == "a"
    assert unique_name("a", {"a", "a_1"}) == "a_2"
    assert unique_name("a", {"a"}, {"a_1": None}) == "a_2"


def test_fresh_names_do_not_repeat() -> None:
    names = FreshNames(["a"])
    assert [names.name(name) for name in "aabb"] == ["a_1", "a_2", "b", "b_1"]


VALUES: dict[str, tuple[AttrValue, Any]] = {
    "attr_int": (attr.integer(3), 3),
    "attr_float": (attr.floating(0.5), 0.5),
    "attr_bool": (attr.boolean(True), True),
    "attr_str": (attr.string("NHWC"), "NHWC"),
    "attr_dtype": (attr.dtype(DType.HALF), DType.HALF),
    "attr_tensor": (attr.tensor(Tensor.of(np.int32(1))), Tensor.of(np.int32(1))),
    "attr_shape": (attr.shape((2, -1)), (2, -1)),
    "attr_func": (AttrValue("func", FuncRef("f")), FuncRef("f")),
    "attr_ints": (attr.integers(1, 2), (1, 2)),
    "attr_floats": (AttrValue("list(float)", (0.5,)), (0.5,)),
    "attr_dtypes": (AttrValue("list(type)", (DType.INT8,)), (DType.INT8,)),
    "attr_shapes": (AttrValue("list(shape)", ((1,), None)), ((1,), None)),
    "attr_strings": (AttrValue("list(string)", (b"a",)), (b"a",)),
}
DEFAULTS = {
    "attr_int": 0,
    "attr_float": 0.0,
    "attr_bool": False,
    "attr_str": "",
    "attr_dtype": DType.FLOAT,
    "attr_ints": (),
    "attr_floats": (),
}


@pytest.mark.parametrize("method", VALUES)
def test_attribute_is_read_as_its_kind(method: str) -> None:
    value, expected = VALUES[method]
    node = Node("n", "Op", attrs={"a": value})
    assert getattr(node, method)("a") == expected


@pytest.mark.parametrize("method", VALUES)
def test_attribute_of_another_kind_is_an_error(method: str) -> None:
    other = attr.string("x") if method != "attr_str" else attr.integer(1)
    node = Node("n", "Op", attrs={"a": other})
    with pytest.raises(InvalidGraphError, match=r"attribute 'a' of node 'n' \(Op\) is not a "):
        getattr(node, method)("a")


@pytest.mark.parametrize("method", sorted(set(VALUES) - {"attr_shape"}))
def test_absent_attribute_is_an_error(method: str) -> None:
    with pytest.raises(InvalidGraphError, match=r"node 'n' \(Op\) has no .* attribute 'a'"):
        getattr(Node("n", "Op"), method)("a")


@pytest.mark.parametrize("method", DEFAULTS)
def test_default_is_used_only_for_an_absent_attribute(method: str) -> None:
    default = DEFAULTS[method]
    assert getattr(Node("n", "Op"), method)("a", default) == default
    value, expected = VALUES[method]
    assert getattr(Node("n", "Op", attrs={"a": value}), method)("a", default) == expected
    with pytest.raises(InvalidGraphError):
        getattr(Node("n", "Op", attrs={"a": AttrValue("placeholder", "T")}), method)("a", default)


def test_absent_shape_is_unknown() -> None:
    assert Node("n", "Op").attr_shape("shape") is None


@pytest.mark.parametrize("method", [m for m in VALUES if m.endswith("s") and m != "attr_bools"])
def test_empty_list_is_valid_for_every_list_kind(method: str) -> None:
    assert getattr(Node("n", "Op", attrs={"a": AttrValue("list", ())}), method)("a") == ()


def test_invalid_utf8_is_escaped() -> None:
    assert Node("n", "Op", attrs={"a": attr.string(b"a\xff")}).attr_str("a") == "a\\xff"


def test_data_and_control_inputs() -> None:
    node = Node("n", "Op", tuple(parse_ref(t) for t in ("a", "b:1", "^c")))
    assert [str(r) for r in node.data_inputs] == ["a", "b:1"]
    assert [str(r) for r in node.control_inputs] == ["^c"]


def test_nodes_are_immutable() -> None:
    node = Node("n", "Op", attrs={"a": attr.integer(1), "b": attr.integer(2)})
    assert node.with_attrs(a=attr.integer(3)).attr_int("a") == 3
    assert set(node.without_attrs("a", "none").attrs) == {"b"}
    assert node.attr_int("a") == 1
    with pytest.raises(AttributeError):
        node.name = "other"  # type: ignore[misc]


def test_constant_has_a_dtype_attribute() -> None:
    value = Tensor.of(np.zeros(2, np.uint8), DType.QUINT8)
    node = constant("c", value, "/cpu:0", (parse_ref("^a"),))
    assert (node.op, node.device, str(node.inputs[0])) == ("Const", "/cpu:0", "^a")
    assert node.attr_dtype("dtype") is DType.QUINT8
    assert node.attr_tensor("value") is value


def test_nodes_are_copied_and_pickled() -> None:
    attrs = {"a": attr.integer(1)}
    node = Node("n", "Op", (parse_ref("a:0"), parse_ref("^b")), "/cpu:0", attrs, (b"x", b"y"))
    for copy in (pickle.loads(pickle.dumps(node)), deepcopy(node), replace(node)):
        assert copy == node
        assert [str(r) for r in copy.inputs] == ["a:0", "^b"]
        assert hash(copy.inputs[0]) == hash(node.inputs[0])
    assert node.with_inputs(()) == Node("n", "Op", (), "/cpu:0", attrs, (b"x", b"y"))

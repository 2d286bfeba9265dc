"""Op definitions of the two releases."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrDef, AttrValue, OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import (
    MOST_TENSORS,
    NEWEST,
    RELEASES,
    TF115,
    any_op_def,
    default_attrs,
    input_types,
    op_def,
    op_names,
    output_count,
    output_slots,
    output_types,
    signature_of,
    tensor_dtype,
)
from mobileprep.graph.refs import parse_ref
from tests.transforms import graphs


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


def test_defaults_come_from_the_oldest_release():
    defaults = default_attrs("Conv2D", Library())
    assert defaults["data_format"] == attr.string("NHWC")
    # Only in release 2.21.
    assert "grad_x" not in default_attrs("MatMul", Library())


def test_newer_ops_use_the_newest_release():
    assert default_attrs("QuantizeAndDequantizeV4", Library())["num_bits"] == attr.integer(8)


def test_defaults_of_a_function_come_from_its_signature():
    signature = OpDef("F", attrs=(AttrDef("k", "int", attr.integer(3)), AttrDef("n", "int")))
    library = Library({"F": Function(signature)})
    assert default_attrs("F", library) == {"k": attr.integer(3)}


def test_unknown_op_has_no_defaults():
    assert default_attrs("MyOwnOp", Library()) is None


FLOAT, INT = DType.FLOAT, DType.INT32


def definition(op: str) -> OpDef:
    result = any_op_def(op)
    assert result is not None
    return result


def node(op: str, **attrs: AttrValue) -> Node:
    return Node("n", op, attrs=attrs)


@pytest.mark.parametrize(
    ("op_node", "inputs", "outputs"),
    [
        (node("Relu", T=attr.dtype(FLOAT)), [FLOAT], [FLOAT]),
        (node("Const", dtype=attr.dtype(INT)), [], [INT]),
        (node("NoOp"), [], []),
        (node("Cast", SrcT=attr.dtype(INT), DstT=attr.dtype(FLOAT)), [INT], [FLOAT]),
        (node("AddN", T=attr.dtype(INT), N=attr.integer(3)), [INT] * 3, [INT]),
        (node("Split", T=attr.dtype(INT), num_split=attr.integer(2)), [INT, INT], [INT, INT]),
        (node("AddN", T=attr.dtype(INT), N=attr.integer(0)), [], [INT]),
        (
            node("IdentityN", T=AttrValue("list(type)", (FLOAT, INT))),
            [FLOAT, INT],
            [FLOAT, INT],
        ),
        (node("IdentityN", T=AttrValue("list", ())), [], []),
        (node("VariableV2", dtype=attr.dtype(FLOAT)), [], [DType(101)]),
        # The type attribute names a reference type.
        (node("RefIdentity", T=attr.dtype(FLOAT)), [DType(101)], [DType(101)]),
        # A missing attribute has its default.
        (node("ArgMax", T=attr.dtype(FLOAT)), [FLOAT, INT], [DType.INT64]),
        (node("MatMul", T=attr.dtype(FLOAT)), [FLOAT, FLOAT], [FLOAT]),
    ],
    ids=lambda x: x.op if isinstance(x, Node) else "",
)
def test_types_come_from_the_definition(
    op_node: Node, inputs: list[DType], outputs: list[DType]
) -> None:
    assert input_types(op_node, definition(op_node.op)) == inputs
    assert output_types(op_node, definition(op_node.op)) == outputs
    assert output_count(op_node) == len(outputs)


@pytest.mark.parametrize(
    "op_node",
    [
        node("Relu"),
        node("Relu", T=attr.integer(1)),
        node("Relu", T=AttrValue("list", ())),
        node("Relu", T=AttrValue("placeholder", "T")),
        node("IdentityN", T=attr.dtype(FLOAT)),
        node("Split", T=attr.dtype(FLOAT), num_split=AttrValue("list", ())),
        node("Split", T=attr.dtype(FLOAT)),
    ],
    ids=lambda x: f"{x.op}-{x.attrs}",
)
def test_missing_attributes_are_reported(op_node: Node) -> None:
    with pytest.raises(InvalidGraphError, match=r"node 'n' \(.*\) has no .* attribute"):
        output_types(op_node, definition(op_node.op))


@pytest.mark.parametrize("count", [-1, MOST_TENSORS + 1, 1 << 40])
def test_hostile_counts_are_refused(count: int) -> None:
    op_node = node("Split", T=attr.dtype(FLOAT), num_split=attr.integer(count))
    with pytest.raises(InvalidGraphError, match=f"declares {count} tensors for 'output'"):
        output_types(op_node, definition("Split"))


def test_maximum_number_of_declared_tensors() -> None:
    op_node = node("Split", T=attr.dtype(FLOAT), num_split=attr.integer(1_048_576))
    assert len(output_types(op_node, definition("Split"))) == MOST_TENSORS == 1_048_576


def test_output_slots_of_arguments() -> None:
    signature = OpDef(
        "f",
        outputs=(
            ArgDef("a", FLOAT),
            ArgDef("b", type_attr="T", number_attr="N"),
            ArgDef("c", type_list_attr="L"),
            ArgDef("d", INT),
        ),
    )
    op_node = node(
        "f",
        T=attr.dtype(INT),
        N=attr.integer(2),
        L=AttrValue("list(type)", (FLOAT, FLOAT, FLOAT)),
    )
    assert output_slots(op_node, signature) == {"a": (0, 1), "b": (1, 2), "c": (3, 3), "d": (6, 1)}


def test_functions_have_priority_over_ops() -> None:
    mine = OpDef("Relu", outputs=(ArgDef("a", FLOAT), ArgDef("b", FLOAT)))
    library = Library({"Relu": Function(mine)})
    assert signature_of(node("Relu"), library) is mine
    assert output_count(node("Relu"), library) == 2
    assert signature_of(node("Relu"), Library()) == definition("Relu")


def test_unknown_op_has_no_signature() -> None:
    assert signature_of(node("NoSuchOp")) is None
    assert output_count(node("NoSuchOp")) is None


def test_types_of_tensors() -> None:
    split = graphs.node("s", "Split", "axis x", num_split=2)
    graph = Graph([graphs.placeholder("x"), split, graphs.node("m", "MyOwn", "x")])
    names = ("x", "s:1", "s:2", "m")
    dtypes = [tensor_dtype(graph, parse_ref(name)) for name in names]
    assert dtypes == [DType.FLOAT, DType.FLOAT, None, None]

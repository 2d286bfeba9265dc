"""Types of the inputs and outputs of nodes."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdef import ArgDef, OpDef
from mobileprep.graph.opdefs.definitions import (
    MOST_TENSORS,
    any_op_def,
    input_types,
    output_count,
    output_slots,
    output_types,
    signature_of,
    tensor_dtype,
)
from mobileprep.graph.refs import parse_ref
from tests.transforms import graphs

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

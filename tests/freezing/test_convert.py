"""Conversion of ops that use variables, in the graph and in functions."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import ArgDef, AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.runtime.interpreter import Interpreter
from tests.freezing.graphs import (
    FLOAT,
    const,
    frozen,
    handle,
    listing,
    node,
    placeholder,
    reading,
    ref_variable,
    source,
)

INT = DType.INT32
RESOURCE = DType.RESOURCE
TABLE = np.arange(24, dtype=np.float32).reshape(2, 4, 3)


def gather(batch_dims=0):
    return node(
        "y",
        "ResourceGather",
        "table",
        "ids",
        "^x",
        dtype=FLOAT,
        Tindices=INT,
        batch_dims=batch_dims,
        validate_indices=True,
        _class=["loc:@table"],
    )


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gather_from_a_variable_reads_the_constant(tmp_path, batch_dims):
    ids = np.array([[0, 1], [1, 0]], np.int32)
    nodes = [handle("table", 2, 4, 3), const("ids", ids), placeholder("x"), gather(batch_dims)]
    graph = frozen(source(nodes, {"table": TABLE}, tmp_path), "y").graph
    assert listing(graph)[-2:] == ["y/axis = Const()", "y = GatherV2(table, ids, y/axis, ^x)"]
    assert graph["y"].attr_strings("_class") == (b"loc:@table",)
    expected = TABLE[ids] if batch_dims == 0 else np.stack([TABLE[i][ids[i]] for i in range(2)])
    np.testing.assert_array_equal(Interpreter(graph).run(["y"], {"x": np.float32(0)})[0], expected)


def test_other_reads_of_resource_variables(tmp_path):
    nodes = [
        handle("table", 2, 4, 3),
        const("at", np.array([[0, 1]], np.int32)),
        node("point", "ResourceGatherNd", "table", "at", dtype=FLOAT, Tindices=INT),
        node("shape", "VariableShape", "table", out_type=INT),
        node("known", "VarIsInitializedOp", "table"),
    ]
    model = source(nodes, {"table": TABLE}, tmp_path)
    graph = frozen(model, "point", "shape", "known").graph
    assert listing(graph)[2:] == [
        "point = GatherNd(table, at)",
        "shape = Shape(table)",
        "known = Const()",
    ]
    assert graph["shape"].attr_dtype("T") is FLOAT
    np.testing.assert_array_equal(Interpreter(graph).run(["shape"], {})[0], [2, 4, 3])
    assert graph["known"].attr_tensor("value").array() == np.True_


def test_gather_axis_is_inside_of_the_loop(tmp_path):
    ids = np.array([[0, 1], [1, 0]], np.int32)
    enter = node("in", "Enter", "table", T=RESOURCE, frame_name="loop", is_constant=True)
    nodes = [handle("table", 2, 4, 3), const("ids", ids), placeholder("x"), enter]
    inside = replace(gather(0), inputs=(Ref("in"), Ref("ids")))
    graph = frozen(source([*nodes, inside], {"table": TABLE}, tmp_path), "y").graph
    assert listing(graph)[-2:] == ["y/axis = Const(^in)", "y = GatherV2(in, ids, y/axis)"]


def test_is_initialized_in_a_branch_depends_on_the_branch(tmp_path):
    nodes = [
        placeholder("p", dtype=DType.BOOL),
        handle("h", 3),
        node("s", "Switch", "h", "p", T=RESOURCE),
        node("known", "VarIsInitializedOp", "s:1"),
        const("no", np.array(False)),
        node("other", "Switch", "no", "p", T=DType.BOOL),
        node("y", "Merge", "other", "known", T=DType.BOOL, N=2),
    ]
    graph = frozen(source(nodes, {"h": np.ones(3, np.float32)}, tmp_path), "y").graph
    assert graph["known/here"].op == "Identity"
    assert listing(graph)[4] == "known = Const(^known/here)"
    for predicate in (True, False):
        assert Interpreter(graph).run(["y"], {"p": np.array(predicate)})[0] == predicate


def test_output_shapes_of_reads_are_removed(tmp_path):
    variable, read = ref_variable("w", 3)
    with_shape = read.with_attrs(_output_shapes=AttrValue("list(shape)", ((3,),)))
    second = replace(with_shape, name="y", inputs=(Ref("w/read"),))
    values = {"w": np.ones(3, np.float32)}
    graph = frozen(source([variable, with_shape, second], values, tmp_path), "y").graph
    assert not any("_output_shapes" in n.attrs for n in graph)


def test_branches_pass_on_the_value_of_a_variable(tmp_path):
    nodes = [
        placeholder("p", dtype=DType.BOOL),
        ref_variable("w", 3),
        node("sw", "RefSwitch", "w", "p", T=FLOAT, _class=["loc:@w"]),
        node("merge", "RefMerge", "sw", "sw:1", T=FLOAT, N=2),
        node("known", "IsVariableInitialized", "w", dtype=FLOAT),
        handle("h", 3),
        node("hs", "Switch", "h", "p", T=RESOURCE),
        reading("r", "hs:1"),
        node("y", "Add", "merge", "r", T=FLOAT),
    ]
    values = {"w": np.ones(3, np.float32), "h": np.zeros(3, np.float32)}
    graph = frozen(source(nodes, values, tmp_path), "y", "known").graph
    ops = {n.name: (n.op, n.attrs["T"].value) for n in graph if n.name in ("sw", "merge", "hs")}
    assert ops == {"sw": ("Switch", FLOAT), "merge": ("Merge", FLOAT), "hs": ("Switch", FLOAT)}
    assert listing(graph)[-2:] == ["r = Identity(hs:1)", "y = Add(merge, r)"]


def arg(name, dtype):
    return ArgDef(name, dtype)


def reader(name: str, op: str = "ReadVariableOp") -> Function:
    """Return a function that adds a number to the value of a resource variable."""
    inputs = (Ref("x"), Ref("read", 0, "value"))
    return Function(
        OpDef(name, (arg("v", RESOURCE), arg("x", FLOAT)), (arg("out", FLOAT),)),
        (
            node("read", op, "v", dtype=FLOAT),
            replace(node("sum", "AddV2", T=FLOAT), inputs=inputs),
        ),
        {"out": Ref("sum", 0, "z")},
        attrs={"_input_shapes": attr.integers(1)},
        arg_attrs={0: {"_handle_shapes": attr.integer(1)}},
        resource_ids={0: 0},
    )


def conditional(then="f", other="f"):
    return node(
        "y",
        "If",
        "p",
        "h",
        "x",
        Tcond=DType.BOOL,
        Tin=[RESOURCE, FLOAT],
        Tout=[FLOAT],
        then_branch=FuncRef(then),
        else_branch=FuncRef(other),
    )


def with_branch(tmp_path, *functions, other="f"):
    branches = conditional(other=other)
    nodes = [placeholder("p", dtype=DType.BOOL), placeholder("x", 3), handle("h", 3), branches]
    library = Library({f.name: f for f in functions})
    return source(nodes, {"h": np.ones(3, np.float32)}, tmp_path, library=library)


def test_functions_receive_the_value_of_a_variable(tmp_path):
    graph = frozen(with_branch(tmp_path, reader("f")), "y").graph
    assert graph["y"].attr_dtypes("Tin") == (FLOAT, FLOAT)
    assert graph["y"].attr_func("then_branch").name == "f_frozen"
    assert list(graph.library.functions) == ["f_frozen"]
    copy = graph.library.functions["f_frozen"]
    assert [a.dtype for a in copy.signature.inputs] == [FLOAT, FLOAT]
    assert [(n.op, [str(i) for i in n.inputs]) for n in copy.nodes] == [
        ("Identity", ["v"]),
        ("AddV2", ["x", "read:output:0"]),
    ]
    assert not copy.attrs
    assert not copy.arg_attrs
    assert not copy.resource_ids


def test_name_of_the_converted_function_is_unique(tmp_path):
    graph = frozen(with_branch(tmp_path, reader("f"), reader("f_frozen")), "y").graph
    assert list(graph.library.functions) == ["f_frozen_"]


def with_node(name: str, added: Node) -> Function:
    function = reader(name)
    return Function(function.signature, (*function.nodes, added), function.ret)


def updating(name: str) -> Function:
    return with_node(name, node("update", "AssignSubVariableOp", "v", "x", dtype=FLOAT))


def test_functions_that_change_a_variable_are_refused(tmp_path):
    function = with_node("f", node("gone", "DestroyResourceOp", "v"))
    message = "the function 'f' changes a variable \\(DestroyResourceOp\\)"
    with pytest.raises(UnsupportedError, match=message):
        frozen(with_branch(tmp_path, function), "y")


def test_update_in_a_branch_is_removed_if_control_flow_is_lowered(tmp_path):
    model = with_branch(tmp_path, updating("f"), reader("g"), other="g")
    with pytest.raises(UnsupportedError, match="AssignSubVariableOp") as error:
        frozen(model, "y")
    assert "--control_flow=lower" in error.value.hint
    result = frozen(model, "y", control_flow="lower")
    assert {"AssignSubVariableOp", "VarHandleOp"}.isdisjoint(n.op for n in result.graph)
    x = np.arange(3, dtype=np.float32)
    for predicate in (False, True):
        (y,) = Interpreter(result.graph).run(["y"], {"p": np.asarray(predicate), "x": x})
        np.testing.assert_array_equal(y, x + 1)

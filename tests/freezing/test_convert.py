"""Ops that use variables, in the graph and in the functions that variables are handed to."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.opdef import ArgDef, OpDef
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
def test_a_gather_from_a_variable_gathers_from_the_constant(tmp_path, batch_dims):
    ids = np.array([[0, 1], [1, 0]], np.int32)
    nodes = [handle("table", 2, 4, 3), const("ids", ids), placeholder("x"), gather(batch_dims)]
    graph = frozen(source(nodes, {"table": TABLE}, tmp_path), "y").graph
    assert listing(graph)[-2:] == ["y/axis = Const()", "y = GatherV2(table, ids, y/axis, ^x)"]
    assert graph["y"].attr_strings("_class") == (b"loc:@table",)
    expected = TABLE[ids] if batch_dims == 0 else np.stack([TABLE[i][ids[i]] for i in range(2)])
    np.testing.assert_array_equal(Interpreter(graph).run(["y"], {"x": np.float32(0)})[0], expected)


def test_other_reads_of_resources(tmp_path):
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


def test_in_a_loop_the_axis_of_a_gather_stands_inside(tmp_path):
    ids = np.array([[0, 1], [1, 0]], np.int32)
    enter = node("in", "Enter", "table", T=RESOURCE, frame_name="loop", is_constant=True)
    nodes = [handle("table", 2, 4, 3), const("ids", ids), placeholder("x"), enter]
    inside = replace(gather(0), inputs=(Ref("in"), Ref("ids")))
    graph = frozen(source([*nodes, inside], {"table": TABLE}, tmp_path), "y").graph
    assert listing(graph)[-2:] == ["y/axis = Const(^in)", "y = GatherV2(in, ids, y/axis)"]


def test_in_a_branch_a_variable_is_known_only_where_the_branch_is_taken(tmp_path):
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
    for given in (True, False):
        assert Interpreter(graph).run(["y"], {"p": np.array(given)})[0] == given


def test_reads_of_a_variable_forget_the_shape_they_noted(tmp_path):
    variable, read = ref_variable("w", 3)
    noted = read.with_attrs(_output_shapes=AttrValue("list(shape)", ((3,),)))
    again = replace(noted, name="y", inputs=(Ref("w/read"),))
    values = {"w": np.ones(3, np.float32)}
    graph = frozen(source([variable, noted, again], values, tmp_path), "y").graph
    assert not any("_output_shapes" in n.attrs for n in graph)


def test_branches_that_hand_a_variable_on_hand_on_its_value(tmp_path):
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
    kept = {n.name: (n.op, n.attrs["T"].value) for n in graph if n.name in ("sw", "merge", "hs")}
    assert kept == {"sw": ("Switch", FLOAT), "merge": ("Merge", FLOAT), "hs": ("Switch", FLOAT)}
    assert listing(graph)[-2:] == ["r = Identity(hs:1)", "y = Add(merge, r)"]


def arg(name, dtype):
    return ArgDef(name, dtype)


def reader(name: str, op: str = "ReadVariableOp") -> Function:
    """A function of a resource and a number that reads the resource."""
    body = (
        node("read", op, "v", dtype=FLOAT),
        node("sum", "AddV2", "x", T=FLOAT),
    )
    added = Function(
        OpDef(name, (arg("v", RESOURCE), arg("x", FLOAT)), (arg("out", FLOAT),)),
        (body[0], node("sum", "AddV2", "x", T=FLOAT)),
        {"out": Ref("sum", 0, "z")},
        attrs={"_input_shapes": attr.integers(1)},
        arg_attrs={0: {"_handle_shapes": attr.integer(1)}},
        resource_ids={0: 0},
    )
    both = (Ref("x"), Ref("read", 0, "value"))
    nodes = (added.nodes[0], type(body[1])("sum", "AddV2", both, "", body[1].attrs))
    return Function(
        added.signature,
        nodes,
        added.ret,
        attrs=added.attrs,
        arg_attrs=added.arg_attrs,
        resource_ids=added.resource_ids,
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


def test_functions_that_take_a_variable_take_its_value(tmp_path):
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


def test_the_copys_name_avoids_names_that_are_taken(tmp_path):
    graph = frozen(with_branch(tmp_path, reader("f"), reader("f_frozen")), "y").graph
    assert list(graph.library.functions) == ["f_frozen_"]


def test_functions_that_change_a_variable_are_refused(tmp_path):
    told = "the function 'f' changes a variable \\(DestroyResourceOp\\)"
    with pytest.raises(UnsupportedError, match=told):
        frozen(with_branch(tmp_path, changing("f")), "y")


def changing(name: str) -> Function:
    made = reader(name)
    destroyed = node("gone", "DestroyResourceOp", "v")
    return Function(made.signature, (*made.nodes, destroyed), made.ret)


def test_what_changes_in_a_branch_is_left_out_where_control_flow_is_lowered(tmp_path):
    model = with_branch(tmp_path, updating("f"), reader("g"), other="g")
    with pytest.raises(UnsupportedError, match="AssignSubVariableOp") as told:
        frozen(model, "y")
    assert "--control_flow=lower" in told.value.hint
    result = frozen(model, "y", control_flow="lower")
    assert {"AssignSubVariableOp", "VarHandleOp"}.isdisjoint(n.op for n in result.graph)
    x = np.arange(3, dtype=np.float32)
    for taken in (False, True):
        (y,) = Interpreter(result.graph).run(["y"], {"p": np.asarray(taken), "x": x})
        np.testing.assert_array_equal(y, x + 1)


def updating(name: str) -> Function:
    made = reader(name)
    update = node("update", "AssignSubVariableOp", "v", "x", dtype=FLOAT)
    return Function(made.signature, (*made.nodes, update), made.ret)

"""Freezing variables to constants."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import ArtifactError, InvalidGraphError, UnsupportedError, UsageError
from mobileprep.formats.checkpoint_reader import TensorEntry
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.model import Signature, TensorSpec
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef, OpDef
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.serde import graph_to_bytes
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

W = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([1, 2, 3], np.float32)


def dense(tmp_path, **more):
    """Return a dense layer with a reference and a resource variable and training nodes."""
    nodes = [
        placeholder("x", -1, 2),
        ref_variable("w", 2, 3, device="/gpu:0"),
        handle("b", 3),
        reading("b/read_op", "b", "^w/Assign"),
        const("w/init", np.zeros((2, 3), np.float32)),
        node("w/Assign", "Assign", "w", "w/init", T=FLOAT, _class=["loc:@w"]),
        node("matmul", "MatMul", "x", "w/read", T=FLOAT, device="/cpu:0"),
        node("y", "BiasAdd", "matmul", "b/read_op", T=FLOAT),
        node("loss", "L2Loss", "y", T=FLOAT),
    ]
    return source(nodes, {"w": W, "b": B, "global_step": np.int64(3)}, tmp_path, **more)


def test_variables_become_constants_of_the_same_name(tmp_path):
    result = frozen(dense(tmp_path), "y")
    assert listing(result.graph) == [
        "x = Placeholder()",
        "w = Const()",
        "w/read = Identity(w)",
        "b = Const()",
        "b/read_op = Identity(b)",
        "matmul = MatMul(x, w/read)",
        "y = BiasAdd(matmul, b/read_op)",
    ]
    assert set(result.graph["w"].attrs) == {"dtype", "value"}
    assert set(result.graph["b/read_op"].attrs) == {"T"}
    assert result.graph["w/read"].attr_strings("_class") == (b"loc:@w",)
    assert dict(result.variables) == {"w": "w", "b": "b"}
    assert result.outputs == ("y",)


def test_frozen_graph_uses_the_values_of_the_checkpoint(tmp_path):
    x = np.array([[1, -2]], np.float32)
    graph = frozen(dense(tmp_path), "y").graph
    np.testing.assert_array_equal(Interpreter(graph).run(["y"], {"x": x})[0], x @ W + B)


def test_weights_are_views_of_the_checkpoint(tmp_path):
    array = frozen(dense(tmp_path), "y").graph["w"].attr_tensor("value").array()
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_devices_are_cleared_by_default(tmp_path):
    assert {n.device for n in frozen(dense(tmp_path), "y").graph} == {""}
    graph = frozen(dense(tmp_path), "y", clear_devices=False).graph
    assert graph["matmul"].device == "/cpu:0"


def test_unused_functions_are_removed(tmp_path):
    library = Library({name: Function(OpDef(name)) for name in ("used", "unused")})
    call = node("y", "If", "x", then_branch=FuncRef("used"), else_branch=FuncRef("used"))
    branch = call.with_attrs(
        Tin=AttrValue("list", ()), Tout=AttrValue("list", ()), Tcond=attr.dtype(DType.BOOL)
    )
    graph = frozen(source([placeholder("x", dtype=DType.BOOL), branch], library=library), "y").graph
    assert list(graph.library.functions) == ["used"]


def test_colocation_with_a_removed_node_is_removed(tmp_path):
    y = node("y", "Relu", "x", T=FLOAT, _class=["loc:@gone", "loc:@x"])
    gone = node("gone", "Relu", "x", T=FLOAT)
    graph = frozen(source([placeholder("x", 2), gone, y]), "y").graph
    assert graph["y"].attr_strings("_class") == (b"loc:@x",)
    only = node("y", "Relu", "x", T=FLOAT, _class=["loc:@gone"])
    graph = frozen(source([placeholder("x", 2), gone, only]), "y").graph
    assert "_class" not in graph["y"].attrs


def test_frozen_graph_is_not_changed():
    model = source([placeholder("x", 2), const("c", B), node("y", "Add", "x", "c", T=FLOAT)])
    result = frozen(model, "y")
    assert result.graph is model.graph
    assert not result.variables


def test_variable_lists_select_variables(tmp_path):
    only = frozen(dense(tmp_path), "y", variable_names_whitelist=("w",)).graph
    assert [only["w"].op, only["b"].op] == ["Const", "VarHandleOp"]
    result = frozen(dense(tmp_path), "y", variable_names_blacklist=("w", "bb"))
    assert [result.graph["w"].op, result.graph["b"].op] == ["VariableV2", "Const"]
    assert result.warnings == ("'bb' is not a variable of the graph; did you mean 'b'?",)


def test_missing_output_is_reported_with_suggestions(tmp_path):
    with pytest.raises(InvalidGraphError) as caught:
        frozen(dense(tmp_path), "matmull")
    assert "'matmull' is not in the graph" in caught.value.message
    assert "did you mean 'matmul'?" in caught.value.hint
    assert "likely outputs: y (float32 [-1, 3])" in caught.value.hint
    message = r"'y:1' is not in the graph: 'y' \(BiasAdd\) gives 1"
    with pytest.raises(InvalidGraphError, match=message):
        frozen(dense(tmp_path), "y:1")
    with pytest.raises(InvalidGraphError, match="not in the graph"):
        frozen(dense(tmp_path), "^y")


def test_likely_outputs_are_listed_without_outputs(tmp_path):
    with pytest.raises(UsageError) as caught:
        frozen(dense(tmp_path))
    assert "likely outputs: y (float32 [-1, 3])" in caught.value.hint


def test_outputs_are_found_by_signature_names(tmp_path):
    x, y = TensorSpec("x:0", FLOAT, (-1, 2)), TensorSpec("y:0", FLOAT, (-1, 3))
    other = TensorSpec("matmul:0", FLOAT, (-1, 3))
    signatures = {
        "serving_default": Signature({"image": x}, {"scores": y}),
        "raw": Signature({"image": x}, {"product": other}),
    }
    model = dense(tmp_path, signatures=signatures)
    default = frozen(model)
    assert (default.inputs, default.outputs) == (("x:0",), ("y:0",))
    assert frozen(model, "scores").outputs == ("y:0",)
    assert frozen(model, "raw").outputs == ("matmul:0",)
    assert frozen(model, signature="raw").outputs == ("matmul:0",)
    with pytest.raises(UsageError, match="unknown signature 'rwa'") as caught:
        frozen(model, signature="rwa")
    assert caught.value.hint == "did you mean 'raw'?"
    with pytest.raises(UsageError) as caught:
        frozen(model, signature="zzzzzz")
    assert caught.value.hint.endswith("raw, serving_default")
    with pytest.raises(UsageError) as caught:
        frozen(dense(tmp_path), signature="zzzzzz")
    assert caught.value.hint.endswith("there are none")


def test_missing_checkpoint_is_reported_with_the_variables():
    model = source([ref_variable("w", 2), node("y", "Relu", "w/read", T=FLOAT)])
    with pytest.raises(InvalidGraphError, match="no checkpoint is named: 'w'"):
        frozen(model, "y")


def test_missing_variables_are_reported_with_the_closest_keys(tmp_path):
    nodes = [
        ref_variable("layer/kernel", 3),
        ref_variable("other", 3),
        node("y", "Add", "layer/kernel/read", "other/read", T=FLOAT),
    ]
    model = source(nodes, {"layer/kernels": B, "scope/other": B}, tmp_path)
    with pytest.raises(InvalidGraphError) as caught:
        frozen(model, "y")
    assert "2 variables are not in the checkpoint" in caught.value.message
    assert "'layer/kernel' (the nearest is 'layer/kernels')" in caught.value.message
    assert "'other' (the nearest is 'scope/other')" in caught.value.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((3, 2), np.float32), r"'w' is \[2, 3\], 'w' \[3, 2\]"),
        (np.zeros(6, np.float32), r"'w' is \[2, 3\], 'w' \[6\]"),
        (np.zeros((2, 3), np.float64), "'w' is float32, 'w' float64"),
    ],
)
def test_mismatched_variable_is_reported(tmp_path, value, message):
    model = source([ref_variable("w", 2, 3)], {"w": value}, tmp_path)
    with pytest.raises(InvalidGraphError, match=message):
        frozen(model, "w/read")


def test_unknown_sizes_match_any_size(tmp_path):
    model = source([ref_variable("w", -1, 3)], {"w": W}, tmp_path)
    assert frozen(model, "w/read").graph["w"].attr_tensor("value").shape == (2, 3)


class Huge:
    """Checkpoint with one tensor that must not be read."""

    def names(self):
        return ["w"]

    def __contains__(self, name):
        return name == "w"

    def entry(self, name):
        return TensorEntry(DType.FLOAT, (30_000, 20_000))

    def read(self, name, spec=""):
        raise AssertionError


def test_protobuf_size_limit_is_checked_before_reading():
    model = source([ref_variable("w", 30_000, 20_000)])
    model = type(model)(model.graph, "model", Huge())
    message = "2400000000 bytes, more than protobuf's limit"
    with pytest.raises(ArtifactError, match=message) as error:
        frozen(model, "w/read")
    assert "8 bits" in error.value.hint


def test_updates_in_control_dependencies_are_removed(tmp_path):
    nodes = [
        ref_variable("w", 3),
        handle("n", dtype=DType.INT64),
        const("one", np.int64(1)),
        const("half", np.full(3, 0.5, np.float32)),
        node("count", "AssignAddVariableOp", "n", "one", dtype=DType.INT64),
        node("move", "AssignSub", "w", "half", T=FLOAT),
        node("moved", "Identity", "move", T=FLOAT),
        node("done", "NoOp", "^moved", "^count"),
        node("y", "Relu", "w/read", "^done", T=FLOAT),
    ]
    result = frozen(source(nodes, {"w": B}, tmp_path), "y")
    assert listing(result.graph) == [
        "w = Const()",
        "w/read = Identity(w)",
        "done = NoOp()",
        "y = Relu(w/read, ^done)",
    ]
    message = "2 ops that change variables were removed, as outputs only wait for them: "
    assert result.warnings == (message + "AssignAddVariableOp, AssignSub",)


def test_control_dependency_in_a_branch_is_not_removed(tmp_path):
    """Without it, the constant "two" would be available in both branches."""
    nodes = [
        placeholder("p", dtype=DType.BOOL),
        ref_variable("n", 3),
        node("pivot", "Switch", "p", "p", T=DType.BOOL),
        node("yes", "Identity", "pivot:1", T=DType.BOOL),
        node("no", "Identity", "pivot", T=DType.BOOL),
        node("held", "RefSwitch", "n", "p", T=FLOAT),
        const("one", np.ones(3, np.float32), "^yes"),
        node("add", "AssignAdd", "held:1", "one", T=FLOAT),
        node("done", "NoOp", "^add"),
        const("two", np.float32(2), "^done"),
        const("three", np.float32(3), "^no"),
        node("y", "Merge", "two", "three", T=FLOAT, N=2),
    ]
    graph = frozen(source(nodes, {"n": B}, tmp_path), "y").graph
    assert [line for line in listing(graph) if "add" in line] == [
        "add = Identity(one)",
        "done = NoOp(^add)",
    ]
    assert "n" not in graph
    for predicate, expected in ((True, 2), (False, 3)):
        assert Interpreter(graph).run(["y"], {"p": np.array(predicate)})[0] == expected


def test_result_of_an_assignment_is_the_assigned_value(tmp_path):
    nodes = [
        placeholder("x", 3),
        ref_variable("last", 3),
        node("set", "Assign", "last", "x", T=FLOAT),
        node("y", "Relu", "set", T=FLOAT),
    ]
    graph = frozen(source(nodes, {"last": B}, tmp_path), "y").graph
    assert listing(graph) == ["x = Placeholder()", "set = Identity(x)", "y = Relu(set)"]


def counter(update: str):
    return [
        ref_variable("n", 3),
        const("one", np.ones(3, np.float32)),
        node("add", update, "n", "one" if update != "Assign" else "more", T=FLOAT),
        node("more", "Add", "n/read", "one", T=FLOAT),
    ]


@pytest.mark.parametrize("update", ["AssignAdd", "AssignSub", "Assign"])
def test_output_of_a_variable_update_is_refused(tmp_path, update):
    with pytest.raises(UnsupportedError, match=f"result of 'add' \\({update}\\), for which 'n'"):
        frozen(source(counter(update), {"n": B}, tmp_path), "add")


def test_read_after_an_update_is_refused(tmp_path):
    nodes = [
        handle("n", 3),
        const("one", np.ones(3, np.float32)),
        node("add", "AssignAddVariableOp", "n", "one", dtype=FLOAT),
        reading("after", "n", "^add"),
        node("y", "Relu", "after", T=FLOAT),
    ]
    with pytest.raises(UnsupportedError, match="reads the variable 'n' after 'add'"):
        frozen(source(nodes, {"n": B}, tmp_path), "y")
    graph = frozen(source(nodes), "y", variable_names_blacklist=("n",)).graph
    assert len(graph) == len(nodes)


def test_variable_of_an_unknown_op_cannot_be_frozen(tmp_path):
    nodes = [handle("n", 3), node("y", "MyOwnOp", "n")]
    with pytest.raises(UnsupportedError, match="'y' \\(MyOwnOp\\)"):
        frozen(source(nodes, {"n": B}, tmp_path), "y")
    nodes = [ref_variable("n", 3), node("y", "MyOwnOp", "n/read", "n")]
    assert frozen(source(nodes, {"n": B}, tmp_path), "y").graph["n"].op == "Const"


def test_moving_averages_are_used_if_available(tmp_path):
    tensors = {"w": W, "w/ExponentialMovingAverage": W + 1, "b": B}
    nodes = [ref_variable("w", 2, 3), handle("b", 3), reading("r", "b")]
    model = source([*nodes, node("y", "BiasAdd", "w/read", "r", T=FLOAT)], tensors, tmp_path)
    plain = frozen(model, "y")
    assert plain.graph["w"].attr_tensor("value").array()[0, 0] == 0
    averaged = frozen(model, "y", moving_averages=True)
    assert averaged.graph["w"].attr_tensor("value").array()[0, 0] == 1
    assert averaged.variables["w"] == "w/ExponentialMovingAverage"
    assert averaged.warnings == ("1 variables have no moving average; their raw values are used",)


def test_missing_moving_averages_are_reported(tmp_path):
    model = source([ref_variable("w", 2, 3)], {"w": W}, tmp_path)
    result = frozen(model, "w/read", moving_averages=True)
    assert result.warnings == ("the checkpoint has no moving averages; raw values are used",)


def test_invalid_graph_is_refused(tmp_path):
    with pytest.raises(InvalidGraphError, match="'y' \\(Relu\\) takes 'gone'"):
        frozen(source([node("y", "Relu", "gone", T=FLOAT)]), "y")
    with pytest.raises(InvalidGraphError, match="2 nodes have the name 'y'"):
        frozen(source([node("y", "NoOp"), node("y", "NoOp")]), "y")


def test_freezing_twice_gives_equal_bytes(tmp_path):
    first, second = (graph_to_bytes(frozen(dense(tmp_path), "y").graph) for _ in range(2))
    assert first == second

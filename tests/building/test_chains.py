"""Chains as texts and lists, and what their caller is told."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from mobileprep import (
    AccuracyError,
    Graph,
    MobileprepWarning,
    TransformError,
    UsageError,
    transform,
)
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Library
from tests.transforms.graphs import const, node, placeholder


def graph() -> Graph:
    nodes = [placeholder(), const("two", [2.0]), const("three", [3.0])]
    nodes += [node("six", "Mul", "two three"), node("twice", "Identity", "six", T=None)]
    return Graph([*nodes, node("out", "Mul", "x six")])


def test_names_by_themselves_need_no_list() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = transform(graph(), "strip_unused_nodes", inputs="six", outputs="out")
    assert [n.name for n in done.graph] == ["x", "six", "out"]


@pytest.mark.parametrize(
    "chain",
    [
        "remove_attribute(attribute_name=T,op_name=Add) fold_constants",
        ["fold_constants"],
        [{"fold_constants": {}}],
        ({"remove_attribute": {"attribute_name": "T", "op_name": "Add"}}, "fold_constants"),
    ],
)
def test_a_chain_is_a_text_or_a_list(chain: object) -> None:
    before = graph()
    done = transform(before, chain, ["x"], ["out"])  # type: ignore[arg-type]
    assert done.graph["six"].op == "Const"
    assert done.steps[-1].name == "fold_constants"
    assert done.differences == ()
    assert before["six"].op == "Mul"


def test_parameters_of_a_list_have_the_types_of_python() -> None:
    rename = {"old_node_name": "out", "new_node_name": "product"}
    chain = [{"quantize_weights": {"minimum_size": 4}}, {"rename_node": rename}]
    weights = Graph([placeholder(), const("w", np.arange(8)), node("out", "Mul", "x w")])
    done = transform(weights, chain, ["x"], ["product"], warn=[].append)
    assert done.graph["product"].op == "Mul"
    assert [step.matched for step in done.steps] == [1, 1]


@pytest.mark.parametrize(
    ("chain", "told"),
    [
        ([], "no transforms are named"),
        ("", "no transforms are named"),
        (["fold_constant"], "unknown transform 'fold_constant'; did you mean"),
        ("fold_constants(a=1)", "transforms:1:16: fold_constants.a: unknown key 'a'"),
        ([{"fold_constants": {"a": 1}}], "'a'"),
        ([3], "3 is not a step of a chain"),
        ([{"a": {}, "b": {}}], "is not a step of a chain"),
        ([{"fold_constants": 3}], "is not a step of a chain"),
        ([{"rename_op": {"old_op_name": object()}}], "of no type that a recipe has"),
        ("fold_constants(", "transforms:1:1: the transform 'fold_constants' has no closing ')'"),
    ],
)
def test_invalid_chain_is_reported_with_its_location(chain: object, told: str) -> None:
    with pytest.raises(UsageError) as error:
        transform(graph(), chain)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_a_check_gives_a_difference_for_each_step() -> None:
    done = transform(graph(), ["fold_constants", "remove_device"], ["x"], ["out"], check=True)
    assert [(gap.name, gap.absolute) for gap in done.differences] == [("out", 0.0)] * 2


PLUGIN = """
import numpy as np

from mobileprep.plugin import Context, Graph, Result, Tensor, Transform, constant, transform


@transform("spoil")
class Spoil(Transform, frozen=True):
    def apply(self, graph: Graph, context: Context) -> Result:
        nan = constant("one", Tensor.of(np.array([np.nan], np.float32)))
        return Result(graph.with_nodes([nan if n.name == "one" else n for n in graph]), 1)
"""


def test_a_step_of_one_s_own_that_spoils_the_outputs_is_found(tmp_path: Path) -> None:
    (tmp_path / "spoil.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "spoil.json").write_text("{}", encoding="utf-8")
    given = Graph([placeholder(), const("one", [1.0]), node("out", "Mul", "x one")])
    plugins = [tmp_path / "spoil.py"]
    assert transform(given, "spoil", ["x"], ["out"], plugins=plugins).steps[0].matched == 1
    with pytest.raises(AccuracyError, match="after spoil the output 'out' is NaN or infinite"):
        transform(given, ["spoil"], ["x"], ["out"], plugins=plugins, check=True)


def test_warnings_go_to_the_caller() -> None:
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transform(graph(), "remove_device", ["y"], ["out"], warn=told.append)
    (sentence,) = told
    assert sentence.startswith("the input 'y' is not in the graph; ")
    with pytest.warns(MobileprepWarning, match="the input 'y' is not in the graph"):
        transform(graph(), "remove_device", ["y"], ["out"])


def test_transforms_do_the_right_thing_unless_those_of_tensorflow_are_asked_for() -> None:
    library = Library({"unused": Function(OpDef("unused"))})
    given = Graph([placeholder(), node("out", "Relu", "x")], library)
    for tf115, count in ((False, 0), (True, 1)):
        chain = "rename_op(old_op_name=Relu, new_op_name=Elu)"
        done = transform(given, chain, ["x"], ["out"], tf115=tf115)
        assert len(done.graph.library.functions) == count


def test_a_step_that_cannot_do_its_work_is_an_error() -> None:
    with pytest.raises(TransformError):
        transform(graph(), "rename_node(old_node_name=two, new_node_name=three)", ["x"], ["out"])

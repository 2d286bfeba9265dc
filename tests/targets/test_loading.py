"""Graphs that a release cannot load, and exceptions listed in `allow`."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.graph.graph import Graph, Versions
from mobileprep.targets.target_check import AppBuild, check_loads, ops_of
from tests.targets.graphs import with_function
from tests.transforms.graphs import node, placeholder

NEWER = Graph([placeholder(), node("n", "Xlog1py", "x x")], versions=Versions(1200, 900))


def refused(build: AppBuild, graph: Graph = NEWER) -> tuple[list[str], str]:
    with pytest.raises(UnsupportedError) as caught:
        check_loads(graph, build)
    return caught.value.message.splitlines(), caught.value.hint


def test_all_problems_of_all_releases_are_reported_at_once() -> None:
    lines, hint = refused(AppBuild(("1.15", "2.21"), "android"))
    assert lines == [
        "TensorFlow 1.15 (GraphDef version 134) rejects a graph with `min_consumer=900`",
        "TensorFlow 1.15 does not have the op `Xlog1py` (node `n`)",
    ]
    assert hint == (
        'build the app with TensorFlow 2.21: `registration: {tensorflow: "2.21"}`; to ship it '
        'anyway, write `registration: {tensorflow: ["1.15", "2.21"], allow: [Xlog1py, versions]}`'
    )


def test_only_allowed_problems_are_accepted() -> None:
    one = AppBuild(("1.15",), "android", allow=["versions"])
    lines, hint = refused(one)
    assert len(lines) == 1
    assert "allow: [Xlog1py, versions]" in hint
    (warning,) = one.accepted(NEWER)
    assert warning == (
        "TensorFlow 1.15 (GraphDef version 134) rejects a graph with `min_consumer=900`; `allow` "
        "lists `versions`, so the model ships, but TensorFlow 1.15 cannot load it unless the app "
        "adds the support"
    )
    both = AppBuild(("1.15",), "android", allow=["versions", "Xlog1py"])
    check_loads(NEWER, both)
    assert len(list(both.accepted(NEWER))) == 2


def test_missing_kernel_is_a_warning_if_allowed() -> None:
    graph = Graph([placeholder(), node("p", "DecodePng", "x", T=None)])
    (warning,) = AppBuild(("1.15",), "ios", allow=["DecodePng"]).accepted(graph)
    assert "but TensorFlow 1.15 cannot run it" in warning


def test_declared_custom_ops_are_accepted() -> None:
    graph = Graph([placeholder(), node("n", "FancyOp", "x")])
    check_loads(graph, AppBuild(("1.15", "2.21"), "android", custom_ops=["FancyOp"]))
    lines, hint = refused(AppBuild(("1.15",), "android"), graph)
    assert lines == ["TensorFlow 1.15 does not have the op `FancyOp` (node `n`)"]
    assert hint.startswith("if the app registers `FancyOp` itself, declare it: `ops: {FancyOp: {")


def test_downgrade_is_suggested_only_if_it_helps() -> None:
    graph = Graph([placeholder(), node("n", "MaxPool", "x", padding="EXPLICIT")])
    _, hint = refused(AppBuild(("1.15",), "android"), graph)
    assert "downgrade" not in hint


def test_ops_of_functions_are_included() -> None:
    assert ops_of(with_function()) == {"Placeholder", "grow", "Exp"}

"""Digests of the computation of a tensor."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.serde import graph_from_bytes, graph_to_bytes
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.tensor_digests import tensor_digests
from tests.data.calibration.graphs import layer
from tests.ops.graphs import c, n, p

FED = [("x", 0)]
ALL = [("x", 0), ("product", 0), ("sum", 0), ("y", 0)]


def digests(graph: Graph) -> dict[str, str]:
    result = tensor_digests(graph, ALL, FED)
    assert all(len(digest) == 16 for digest in result.values())
    return {name: digest for (name, _), digest in result.items()}


def changed(graph: Graph) -> set[str]:
    before = digests(layer())
    return {name for name, digest in digests(graph).items() if digest != before[name]}


def with_node(node: Node) -> Graph:
    return layer().with_nodes(node if other.name == node.name else other for other in layer())


def test_digests_are_unique() -> None:
    assert len(set(digests(layer()).values())) == 4


def test_change_affects_all_dependent_tensors() -> None:
    bias = constant("b", Tensor.of(np.array([0.5, -1, 2.5], np.float32)))
    assert changed(with_node(bias)) == {"sum", "y"}
    product = layer()["product"].with_attrs(transpose_b=attr.boolean(True))
    assert changed(with_node(product)) == {"product", "sum", "y"}
    assert changed(with_node(replace(layer()["y"], op="Relu6"))) == {"y"}


def test_devices_node_names_and_constant_encodings_are_ignored() -> None:
    assert changed(with_node(replace(layer()["sum"], device="/cpu:0"))) == set()
    renamed = layer().with_nodes(
        replace(
            node,
            name={"w": "v"}.get(node.name, node.name),
            inputs=tuple(r.renamed("v") if r.node == "w" else r for r in node.inputs),
        )
        for node in layer()
    )
    assert changed(renamed) == set()
    assert changed(graph_from_bytes(graph_to_bytes(layer()), "graph")) == set()
    same = constant("b", Tensor.packed(np.array([0.5, -1, 2], np.float32)))
    assert changed(with_node(same)) == set()


def test_nodes_before_a_fed_tensor_are_ignored() -> None:
    first = tensor_digests(layer(), [("y", 0)], [("sum", 0)])
    bias = constant("b", Tensor.of(np.array([9, 9, 9], np.float32)))
    assert tensor_digests(with_node(bias), [("y", 0)], [("sum", 0)]) == first


@pytest.mark.parametrize("name", ["body", "y"])
def test_every_node_of_a_loop_counts(name) -> None:
    def loop(factor: float) -> Graph:
        frame = {"frame_name": "f"}
        return Graph(
            [
                p("x"),
                n("enter", "Enter", "x", **frame),
                n("head", "Merge", "enter", "next"),
                n("limit", "Enter", "hundred", **frame, is_constant=True),
                c("hundred", 100.0),
                n("more", "Less", "head", "limit"),
                n("cond", "LoopCond", "more"),
                n("switch", "Switch", "head", "cond"),
                n("body", "Identity", "switch:1"),
                c("factor", factor, "^body"),
                n("double", "Mul", "body", "factor"),
                n("next", "NextIteration", "double"),
                n("y", "Exit", "switch:0"),
            ]
        )

    tensor = parse_ref(name)
    two, again, three = (
        tensor_digests(loop(factor), [(tensor.node, 0)], FED) for factor in (2.0, 2.0, 3.0)
    )
    assert two == again
    assert two != three

"""Chains of any three transforms, in any order, on graphs that earlier steps made odd."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mobileprep.errors import InternalError, MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import graph_to_chunks
from mobileprep.transforms.base import Context, transform_names
from mobileprep.transforms.chains.chain import ChainStep, run_chain
from tests.transforms.busy import INPUTS, OUTPUTS, busy_graph
from tests.transforms.examples import example
from tests.transforms.graphs import const, conv, node, normal, placeholder

# Those that make graphs no tool would have written.
SPOILERS = ("remove_attribute", "rename_attribute", "rename_op", "remove_nodes")


def options(draw: random.Random, name: str, graph: Graph) -> dict[str, Any]:
    attrs = sorted({a for n in graph for a in n.attrs})
    ops = sorted({n.op for n in graph})
    if name == "remove_attribute":
        return {"attribute_name": draw.choice(attrs)}
    if name == "rename_attribute":
        return {
            "old_attribute_name": draw.choice(attrs),
            "new_attribute_name": draw.choice([*attrs, "none"]),
        }
    if name == "rename_op":
        new = draw.choice([*ops, "NoSuchOp", "MirrorPad", "PadV2", "Const", "Merge"])
        return {"old_op_name": draw.choice(ops), "new_op_name": new}
    if name == "remove_nodes":
        return {"op": (draw.choice(ops),)}
    return example(name).options


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_they_end_in_a_graph_or_in_an_error_of_the_user_s(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(120):
        graph, chain = busy_graph(), []
        context = Context(INPUTS, OUTPUTS, tf115=draw.random() < 0.5)
        try:
            for _ in range(3):
                spoils = draw.random() < 0.4
                name = draw.choice(SPOILERS if spoils else transform_names())
                chain.append(ChainStep(name, options(draw, name, graph)))
                graph, _ = run_chain(graph, chain[-1:], context)
            assert list(graph_to_chunks(graph)), chain
        except InternalError:
            raise
        except MobileprepError as error:
            assert str(error), chain


def layer(*more: Any) -> Graph:
    weights = const("w", normal(1, 1, 3, 3))
    return Graph([placeholder(), weights, conv("layer", "x w"), *more])


def test_a_bias_takes_the_type_of_the_weights_where_the_layer_s_is_gone() -> None:
    graph = layer(
        const("b", normal(3)), node("sum", "Add", "layer b"),
        const("c", normal(3)), node("out", "Add", "sum c"),
    )  # fmt: skip
    steps = [
        ChainStep("remove_attribute", {"attribute_name": "T"}),
        ChainStep("merge_scale_and_bias"),
    ]
    after, _ = run_chain(graph, steps, Context(("x",), ("out",)))
    assert after["out"].op == "BiasAdd"
    assert after["out"].attr_dtype("T") is graph["w"].attr_dtype("dtype")


def test_incomplete_padding_is_skipped() -> None:
    graph = layer(node("pad", "MirrorPad", "layer", mode="REFLECT"), node("out", "Relu", "pad"))
    after, _ = run_chain(graph, [ChainStep("merge_scale_and_bias")], Context(("x",), ("out",)))
    assert after["pad"].op == "MirrorPad"


@pytest.mark.parametrize("tf115", [True, False])
def test_constant_with_a_fed_input_is_reported(tf115: bool) -> None:
    odd = node("a", "Neg", "x", dtype=DType.FLOAT)
    graph = Graph([placeholder(), odd, node("out", "Add", "a a")])
    steps = [
        ChainStep("rename_op", {"old_op_name": "Neg", "new_op_name": "Const"}),
        ChainStep("fold_constants"),
    ]
    with pytest.raises(MobileprepError, match="'x'"):
        run_chain(graph, steps, Context(("x",), ("out",), tf115))


def test_an_output_that_an_op_does_not_have_has_no_shape() -> None:
    graph = Graph([placeholder(), node("two", "Neg", "x"), node("out", "Shape", "two:1")])
    after, _ = run_chain(graph, [ChainStep("fold_constants")], Context(("x",), ("out",)))
    assert after["out"].op == "Shape"


def test_convolution_without_strides_is_reported() -> None:
    graph = layer(
        const("size", [8, 8], "int32"),
        node("big", "ResizeBilinear", "x size"),
        conv("out", "big w"),
    )
    steps = [
        ChainStep("remove_attribute", {"attribute_name": "strides"}),
        ChainStep("fuse_resize_and_conv"),
    ]
    with pytest.raises(MobileprepError, match="no attribute 'strides'"):
        run_chain(graph, steps, Context(("x",), ("out",)))

"""Random chains of sums, products, paddings and normalizations behind layers keep their answers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from tests.transforms.graphs import apply, const, conv, node, placeholder, run

CHANNELS = 3
LINKS = ("Add", "AddV2", "Sub", "Mul", "RealDiv", "BiasAdd", "Identity", "Pad", "PadV2",
         "MirrorPad", "FusedBatchNorm", "Relu")  # fmt: skip
fast = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def chains(draw):
    """A layer, up to six links behind it, and perhaps a second consumer of one of them."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    nodes = [placeholder(), *draw(st.sampled_from([_conv2d, _depthwise]))(rng)]
    names = ["layer"]
    for i, link in enumerate(draw(st.lists(st.sampled_from(LINKS), max_size=6))):
        nodes += _link(link, i, names[-1], draw(st.booleans()), rng)
        names.append(f"n{i}")
    nodes.append(node("out", "Identity", names[-1]))
    if draw(st.booleans()):
        nodes.append(node("seen", "Relu", draw(st.sampled_from(names))))
    return Graph(draw(st.permutations(nodes)))


def _conv2d(rng):
    return [const("w", rng.standard_normal((2, 2, 2, CHANNELS))), conv("layer", "x w")]


def _depthwise(rng):
    weights = const("w", rng.standard_normal((2, 2, 1, CHANNELS)))
    narrow = [const("begin", [0] * 4, np.int32), const("size", [-1, -1, -1, 1], np.int32)]
    cut = node("cut", "Slice", "x begin size", Index=DType.INT32)
    return [*narrow, cut, weights, conv("layer", "cut w", "DepthwiseConv2dNative")]


def _link(op, i, source, swapped, rng):
    name, constant = f"n{i}", f"c{i}"
    numbers = rng.uniform(0.5, 2, CHANNELS)
    if op in ("Identity", "Relu"):
        return [node(name, op, source)]
    if op in ("Pad", "PadV2", "MirrorPad"):
        paddings = const(constant, [[0, 0], [1, 1], [0, 1], [0, 0]], np.int32)
        border = [const(f"{constant}b", 0.5)] if op == "PadV2" else []
        inputs = " ".join([source, constant, *(b.name for b in border)])
        mode = {"mode": "REFLECT"} if op == "MirrorPad" else {}
        return [paddings, *border, node(name, op, inputs, Tpaddings=DType.INT32, **mode)]
    if op == "FusedBatchNorm":
        values = [const(f"{constant}{j}", rng.uniform(0.5, 2, CHANNELS)) for j in range(4)]
        inputs = " ".join([source, *(v.name for v in values)])
        return [*values, node(name, op, inputs, is_training=False, epsilon=0.001)]
    if op == "BiasAdd":
        return [const(constant, numbers), node(name, op, f"{source} {constant}")]
    shape = (1, 1, 1, CHANNELS) if swapped else (CHANNELS,)
    inputs = f"{constant} {source}" if swapped and op != "RealDiv" else f"{source} {constant}"
    return [const(constant, numbers.reshape(shape)), node(name, op, inputs)]


@pytest.mark.parametrize("name", ["fuse_batch_norms", "merge_scale_and_bias"])
@fast
@given(graph=chains())
def test_a_chain_gives_the_same_numbers(name, graph):
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 2)).astype(np.float32)
    outputs = tuple(n for n in ("out", "seen") if n in graph)
    result = apply(name, graph, outputs=outputs)
    check_graph(result.graph, name)
    for output in outputs:
        expected = run(graph, x, output)
        scale = max(1.0, float(np.abs(expected).max()))
        found = run(result.graph, x, output)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("name", ["fuse_batch_norms", "merge_scale_and_bias"])
@fast
@given(graph=chains())
def test_a_second_time_changes_nothing(name, graph):
    once = apply(name, graph).graph
    assert apply(name, once).graph is once


@fast
@given(graph=chains())
def test_a_chain_without_an_op_in_its_way_leaves_no_product(graph):
    ops = {n.op for n in graph}
    if "seen" in graph or ops & {"Relu", "Pad", "PadV2", "MirrorPad", "FusedBatchNorm"}:
        return
    after = {n.op for n in apply("merge_scale_and_bias", graph).graph}
    assert not after & {"Mul", "RealDiv"}

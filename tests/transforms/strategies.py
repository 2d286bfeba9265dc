"""Random graphs for property tests: float32 of shape [2, 3] or [3, 2] throughout, one input "x"."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import control
from tests.transforms.graphs import const, node, placeholder

SHAPES = ((2, 3), (3, 2))
UNARY = ("Identity", "Identity", "StopGradient", "Relu", "Neg", "Split", "Casts")
BINARY = ("Add", "Sub", "Mul")


@st.composite
def graphs(draw: st.DrawFn, most: int = 14) -> Graph:
    """A graph with the nodes in any order, some of them doubles, some unused, some waiting."""
    nodes = [
        placeholder(),
        node("start", "Neg", "x"),
        const("axis", 0, np.int32),
        const("swap", [1, 0], np.int32),
        const("wide", [2, 3], np.int32),
        const("high", [3, 2], np.int32),
    ]
    tensors = {"start": SHAPES[0]}
    for number in range(draw(st.integers(3, most))):
        made, tensor, shape = _step(draw, f"n{number}", tensors)
        if draw(st.integers(0, 5)) == 0:
            waited = draw(st.sampled_from(sorted(n.name for n in nodes[1:])))
            made[-1] = replace(made[-1], inputs=(*made[-1].inputs, control(waited)))
        nodes += made
        tensors[tensor] = shape
    last = draw(st.sampled_from(sorted(tensors)))
    shape = "high" if tensors[last] == SHAPES[1] else "wide"
    nodes.append(node("out", "Reshape", f"{last} {shape}", Tshape=DType.INT32))
    return Graph(draw(st.permutations(nodes)))


def _step(draw, name, tensors):
    """The nodes of one computation, the tensor it gives, and that one's shape."""
    source = draw(st.sampled_from(sorted(tensors)))
    shape = tensors[source]
    kind = draw(st.sampled_from((*UNARY, *BINARY, "Const", "Transpose", "Reshape")))
    if kind == "Const":
        values = np.full(shape, draw(st.integers(-2, 2)), np.float32)
        return [const(name, values)], name, shape
    if kind == "Split":
        split = node(name, "Split", f"axis {source}", num_split=shape[0])
        join = node(f"{name}/join", "ConcatV2", "", N=shape[0], Tidx=DType.INT32)
        parts = " ".join(f"{name}:{i}" for i in range(shape[0]))
        inputs = node("", "", f"{parts} axis").inputs
        return [split, replace(join, inputs=inputs)], join.name, shape
    if kind == "Casts":
        to = node(name, "Cast", source, T=None, SrcT=DType.FLOAT, DstT=DType.DOUBLE)
        back = node(f"{name}/back", "Cast", name, T=None, SrcT=DType.DOUBLE, DstT=DType.FLOAT)
        return [to, back], back.name, shape
    if kind == "Transpose":
        return [node(name, kind, f"{source} swap", Tperm=DType.INT32)], name, shape[::-1]
    if kind == "Reshape":
        to = draw(st.sampled_from(("wide", "high")))
        target = SHAPES[0] if to == "wide" else SHAPES[1]
        return [node(name, kind, f"{source} {to}", Tshape=DType.INT32)], name, target
    if kind in BINARY:
        fitting = sorted(t for t, s in tensors.items() if s == shape)
        other = draw(st.sampled_from(fitting))
        return [node(name, kind, f"{source} {other}")], name, shape
    return [node(name, kind, source)], name, shape

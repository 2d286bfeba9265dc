"""Small graphs for the tests of transforms, written in a few words, and shown in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.base import Context, Result, make_transform


def node(name: str, op: str, inputs: str = "", **attrs) -> Node:
    """A node; inputs divided by spaces; attributes as plain Python values, T float by default."""
    values = {"T": DType.FLOAT, **attrs}
    typed = {k: _attr(v) for k, v in values.items() if v is not None}
    return Node(name, op, tuple(parse_ref(i) for i in inputs.split()), attrs=typed)


def const(name: str, values, kind=np.float32, inputs: str = "") -> Node:
    """A Const node."""
    refs = tuple(parse_ref(i) for i in inputs.split())
    return constant(name, Tensor.of(np.asarray(values, kind)), inputs=refs)


def placeholder(name: str = "x", kind: DType = DType.FLOAT) -> Node:
    return node(name, "Placeholder", T=None, dtype=kind)


def conv(name: str, inputs: str, op: str = "Conv2D", **attrs) -> Node:
    """A convolution of stride one."""
    given = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC", **attrs}
    return node(name, op, inputs, **given)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded normally distributed float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def apply(
    name: str,
    graph: Graph,
    /,
    *,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("out",),
    tf115: bool = False,
    **options,
) -> Result:
    """What a transform makes of a graph."""
    context = Context(tuple(inputs), tuple(outputs), tf115)
    return make_transform(name, options).apply(graph, context)


def run(graph: Graph, x, output: str = "out") -> np.ndarray:
    """The value of one output for one input."""
    return Interpreter(graph).run([output], {"x": x})[0]


def shown(graph: Graph) -> str:
    """A graph as text: a line a node, constants by type and shape, or by value where scalar."""
    return "\n".join(_line(n) for n in graph)


def _line(node: Node) -> str:
    inputs = ", ".join(str(r) for r in node.inputs)
    attrs = "".join(f" {k}={_shown(v)}" for k, v in sorted(node.attrs.items()) if k != "dtype")
    return f"{node.name} = {node.op}({inputs}){attrs}"


def _shown(value: AttrValue) -> str:
    if value.kind == "tensor":
        tensor = value.value
        if tensor.size == 1:
            return f"{tensor.dtype.short}{list(tensor.shape)}:{tensor.array().reshape(-1)[0]:g}"
        return f"{tensor.dtype.short}{list(tensor.shape)}"
    if value.kind == "type":
        return value.value.short
    if value.kind == "string":
        return value.value.decode("utf-8", "backslashreplace")
    if value.kind.startswith("list"):
        return ",".join(str(v) for v in value.value)
    return str(value.value)


def _attr(value) -> AttrValue:
    if isinstance(value, AttrValue):
        return value
    if isinstance(value, DType):
        return attr.dtype(value)
    if isinstance(value, bool):
        return attr.boolean(value)
    if isinstance(value, int):
        return attr.integer(value)
    if isinstance(value, float):
        return attr.floating(value)
    if isinstance(value, str):
        return attr.string(value)
    return attr.integers(*value)


def op_counts(graph):
    return Counter(n.op for n in graph)


def pool(name, source, op="MaxPool", **attrs):
    given = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID", **attrs}
    return node(name, op, source, **given)


def with_taken(graph, name):
    """The graph with a node of a name behind its output, and one that shows its value."""
    return Graph([*graph, node(name, "Exp", "out"), node("other", "Neg", name)])

"""Graphs of one op with very large attributes, shapes, and sizes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import MobileprepError
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.ops.cases import OpCase
from tests.ops.graphs import c, f32, i32, n, op_graph
from tests.ops.quantized_graphs import quantized_graph
from tests.reference.cases import (
    arrays,
    elementwise,
    features,
    images,
    networks,
    products,
    quantized,
    reductions,
    texts,
)

_FAMILIES = (arrays, elementwise, features, images, networks, products, reductions, texts)
_OPS = Path(__file__).parent
_TABLES = ("OP_CASES", "SHAPES")
NUMBERS = (1 << 24, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
"""Sizes to request."""
LONG = 1 << 13
"""Elements of a lengthened axis: the product of two such axes is beyond the budget."""
_HOLDS_SIZES = 64
_LARGEST_INPUT = 1 << 18


@lru_cache(maxsize=1)
def examples() -> dict[str, list[tuple[Graph, str]]]:
    """Graphs with one op each, fed by constants, and the name of the node, by op."""
    graphs: dict[str, list[tuple[Graph, str]]] = {}
    for family in _FAMILIES:
        for case in family.cases():
            every = range(len(case.inputs))
            graph = op_graph(case.op, case.inputs, constants=every, **case.attrs)
            graphs.setdefault(case.op, []).append((graph, "y"))
    for case in quantized.cases():
        graph = quantized_graph(case.op, case.inputs, **case.attrs)
        graphs.setdefault(case.op, []).append((graph, "y"))
    for case_ in _op_cases():
        try:
            graph = _with_constants(case_.graph())
        except (AssertionError, MobileprepError):  # invalid, or takes no constants
            continue
        graphs.setdefault(case_.op, []).append((graph, "node"))
    for graph in _more():
        graphs.setdefault(graph["y"].op, []).append((graph, "y"))
    return graphs


def _more() -> Iterator[Graph]:
    """Graphs of ops whose cases have shapes without matching values."""
    yield op_graph("RandomUniformInt", [i32(2, 3), i32(0), i32(9)], constants=(0, 1, 2))
    parts = [f32([[1, 2], [3, 4], [5, 6]]), i32(-1), np.array([1, 2])]
    yield op_graph("TensorListSplit", parts, constants=(0, 1, 2))
    array = n("array", "TensorArrayV3", "size", dtype=np.float32)
    split = n("y", "TensorArraySplitV3", "array", "x", "lengths", "array:1", T=np.float32)
    inputs = [c("size", 2), c("x", [[1.0, 2.0], [3.0, 4.0]]), c("lengths", np.array([1, 1]))]
    yield Graph([*inputs, array, split])


def _op_cases() -> Iterator[OpCase]:
    for path in sorted(_OPS.glob("*/*.py")):
        module = importlib.import_module(f"tests.ops.{path.parent.name}.{path.stem}")
        for table in _TABLES:
            yield from (c for c in getattr(module, table, ()) if isinstance(c, OpCase))


def _with_constants(graph: Graph) -> Graph:
    """A graph with its placeholders replaced by ones."""
    return graph.with_nodes([_constant(n) if n.op == "Placeholder" else n for n in graph])


def _constant(node: Node) -> Node:
    shape = node.attr_shape("shape") or ()
    dtype = node.attr_dtype("dtype").base
    sizes = tuple(2 if d < 0 else min(d, LONG) for d in shape)
    filled: Any = (
        np.full(sizes, b"1", object) if dtype.numpy is None else np.ones(sizes, dtype.numpy)
    )
    return constant(node.name, Tensor.of(filled, dtype))


def grown(graph: Graph) -> Iterator[Graph]:
    """Variants of a graph with one large size."""
    for node in graph:
        if node.op != "Const":
            for attrs in _grown_attrs(node):
                yield _with(graph, replace(node, attrs=attrs))
    constants = [n for n in graph if n.op == "Const"]
    for node in constants:
        for tensor in _grown_sizes(node.attr_tensor("value")):
            yield _with(graph, constant(node.name, tensor))
    yield from _longer(graph, constants)


def _with(graph: Graph, *nodes: Node) -> Graph:
    by_name = {n.name: n for n in nodes}
    return graph.with_nodes([by_name.get(n.name, n) for n in graph])


def _grown_attrs(node: Node) -> Iterator[dict[str, AttrValue]]:
    for name, attr in node.attrs.items():
        for value in _grown_values(attr):
            yield {**node.attrs, name: AttrValue(attr.kind, value)}


def _grown_values(attr: AttrValue) -> Iterator[Any]:
    if attr.kind == "int":
        yield from NUMBERS
    elif attr.kind in ("list(int)", "shape") and attr.value:
        for number in NUMBERS:
            yield (number,) * len(attr.value)
            for i in range(len(attr.value)):
                yield (*attr.value[:i], number, *attr.value[i + 1 :])
    elif attr.kind == "shape":
        yield from ((number,) for number in NUMBERS)


def _grown_sizes(tensor: Tensor) -> Iterator[Tensor]:
    array = tensor.array()
    if array.dtype == object or array.dtype.kind not in "iuf" or array.size > _HOLDS_SIZES:
        return
    for number in NUMBERS:
        if array.dtype.kind in "iu":
            largest = min(number, np.iinfo(array.dtype).max)
        else:
            largest = min(float(number), float(np.finfo(array.dtype).max))
        yield Tensor.of(np.full(array.shape, largest, array.dtype), tensor.dtype)
        for index in range(array.size) if array.size > 1 else ():
            changed = array.copy()
            changed.reshape(-1)[index] = largest
            yield Tensor.of(changed, tensor.dtype)


def _longer(graph: Graph, constants: Sequence[Node]) -> Iterator[Graph]:
    """One axis of an input, or one of each of two inputs, repeated."""
    long = [(n.name, t) for n in constants for t in _longer_tensors(n.attr_tensor("value"))]
    for name, tensor in long:
        yield _with(graph, constant(name, tensor))
    for (a, first), (b, second) in combinations(long, 2):
        if a != b:
            yield _with(graph, constant(a, first), constant(b, second))


def _longer_tensors(tensor: Tensor) -> Iterator[Tensor]:
    array = tensor.array()
    for axis, size in enumerate(array.shape):
        if size and array.nbytes // size * LONG <= _LARGEST_INPUT:
            times = [1] * array.ndim
            times[axis] = math.ceil(LONG / size)
            yield Tensor.of(np.tile(array, times), tensor.dtype)

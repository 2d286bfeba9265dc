"""Convert the batch norms of a network between fused and decomposed form.

Converters write either FusedBatchNorm nodes or the equivalent sums, products, and roots.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import FUSED_BATCH_NORMS, SUMS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.runtime.interpreter import Interpreter

_FLOAT = attr.dtype(DType.FLOAT)
_EPSILON = 0.001


def with_parts(graph: Graph) -> Graph:
    """Replace each FusedBatchNorm for inference with x * m + (beta - mean * m)."""
    return graph.with_nodes(made for node in graph for made in _parts(node))


def _parts(node: Node) -> Iterator[Node]:
    if node.op not in FUSED_BATCH_NORMS or node.attr_bool("is_training", True):
        yield node
        return
    x, gamma, beta, mean, variance = map(str, node.data_inputs)
    name = node.name
    epsilon = np.float32(node.attr_float("epsilon", 1e-4))
    yield constant(f"{name}/epsilon", Tensor.of(epsilon))
    yield _node(f"{name}/sum", "AddV2", variance, f"{name}/epsilon")
    yield _node(f"{name}/root", "Rsqrt", f"{name}/sum")
    yield _node(f"{name}/m", "Mul", f"{name}/root", gamma)
    yield _node(f"{name}/product", "Mul", x, f"{name}/m")
    yield _node(f"{name}/mean", "Mul", mean, f"{name}/m")
    yield _node(f"{name}/shift", "Sub", beta, f"{name}/mean")
    yield _node(name, "AddV2", f"{name}/product", f"{name}/shift")


def with_fused(graph: Graph) -> Graph:
    """Replace each x * scale + shift with constant vectors by one FusedBatchNormV3."""
    nodes: list[Node] = []
    for node in graph:
        found = _norm(node, graph)
        nodes += [node] if found is None else _fused(node, *found)
    return graph.with_nodes(nodes)


def _norm(node: Node, graph: Graph) -> tuple[str, Array, Array] | None:
    if node.op not in SUMS:
        return None
    product, shift = (graph[r.node] for r in node.data_inputs)
    if product.op != "Mul" or len(graph.consumers[product.name]) != 1:
        return None
    x, scale = product.data_inputs
    found = [_vector(name, graph) for name in (scale.node, shift.name)]
    if found[0] is None or found[1] is None or _vector(x.node, graph) is not None:
        return None
    return str(x), found[0], found[1]


def _vector(name: str, graph: Graph) -> Array | None:
    """Return a tensor that depends only on constants, flattened; None for others and scalars."""
    if any(graph[n].op == "Placeholder" for n in reachable(graph, [name])):
        return None
    (value,) = Interpreter(graph).run([name], {})
    return value.reshape(-1) if value.size > 1 else None


def _fused(node: Node, x: str, scale: Array, shift: Array) -> list[Node]:
    statistics = {
        "scale": scale,
        "offset": shift,
        "mean": np.zeros_like(scale),
        "variance": np.full_like(scale, 1 - _EPSILON),
    }
    names = [f"{node.name}/{part}" for part in statistics]
    made = [constant(f"{node.name}/{part}", Tensor.of(v)) for part, v in statistics.items()]
    norm = _node(node.name, "FusedBatchNormV3", x, *names).with_attrs(
        U=_FLOAT,
        epsilon=attr.floating(_EPSILON),
        is_training=attr.boolean(False),
        data_format=attr.string("NHWC"),
    )
    return [*made, replace(norm, inputs=(*norm.inputs, *node.control_inputs))]


def _node(name: str, op: str, *inputs: str) -> Node:
    return Node(name, op, tuple(parse_ref(i) for i in inputs), attrs={"T": _FLOAT})

"""Weights of matrix products that run several times: in loops, or in unrolled networks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import closure, execution_order
from mobileprep.graph.refs import Edge, Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.transforms.reconstruct_weights.matrices import LayerMatrices
from mobileprep.transforms.reconstruct_weights.rounding import Moments

_PASSING = IDENTITIES | {"Enter"}


class SharedWeights(Struct, frozen=True):
    """Equal constants, and the products that use them.

    Args:
        constants: the constants.
        products: MatMul nodes with one of them as second input, in the same orientation.
    """

    constants: tuple[Node, ...]
    products: tuple[Node, ...]


def content(weights: Node) -> tuple[tuple[int, ...], bytes]:
    """Return the shape and a digest of a constant."""
    values = weights.attr_tensor("value").array()
    return values.shape, hashlib.sha256(values.tobytes()).digest()


def shared_weights(
    graph: Graph, needed: Collection[str], least: int, done: Collection[str]
) -> list[SharedWeights]:
    """Return the weights that only matrix products use, and that are not reconstructed alone.

    Args:
        needed: names of the nodes that the outputs need.
        least: the least number of elements.
        done: names of constants that are reconstructed alone.
    """
    groups: dict[tuple[tuple[int, ...], bytes, bool], list[tuple[Node, list[Node]]]] = {}
    for node in execution_order(graph):
        if node.op != "Const" or node.name in done or node.name not in needed:
            continue
        value = node.attr_tensor("value")
        if value.dtype is not DType.FLOAT or len(value.shape) != 2 or value.size < least:
            continue
        uses = list(_uses(graph, node.name))
        turns = {_is_turned(user) for user, ref in uses if _is_product(user, ref)}
        is_alike = len(turns) == 1 and all(_is_product(*use) for use in uses)
        if is_alike and np.isfinite(value.array()).all():
            key = (*content(node), turns.pop())
            products = [user for user, _ in uses if user.name in needed]
            groups.setdefault(key, []).append((node, products))
    return [
        SharedWeights(tuple(n for n, _ in members), tuple(p for _, ps in members for p in ps))
        for members in groups.values()
    ]


def measured(
    graph: Graph,
    shared: Sequence[SharedWeights],
    runs: Sequence[Mapping[str, Array]],
    outputs: Sequence[str],
) -> list[tuple[LayerMatrices, Moments] | None]:
    """Return matrices and moments of shared weights, or None for those that do not run.

    Args:
        graph: the network, with the weights that are already rounded.
        runs: inputs of the graph.
        outputs: what to compute.
    """
    sources: dict[Edge, list[int]] = {}
    for at, group in enumerate(shared):
        for product in group.products:
            sources.setdefault(edge(product.data_inputs[0]), []).append(at)
    results: list[tuple[LayerMatrices, Moments] | None] = [None] * len(shared)

    def add(source: Edge, value: Array) -> None:
        for at in sources[source]:
            result = results[at]
            if result is None:
                group = shared[at]
                weights = group.constants[0].attr_tensor("value").array()
                matrices = LayerMatrices(group.products[0], weights, value)
                result = matrices, Moments(matrices.weights, around_mean=False)
                results[at] = result
            rows = np.array(value[np.newaxis])
            result[1].add(rows, rows @ result[0].weights)

    interpreter = Interpreter(graph, watched=sources, watcher=add)
    for feeds in runs:
        interpreter.run(outputs, feeds)
    return results


def _uses(graph: Graph, name: str) -> Iterator[tuple[Node, Ref]]:
    """Yield the nodes that use a constant, also through identities and into loops."""

    def after(node: str) -> Iterator[str]:
        users = graph.consumers.get(node, ())
        return (n.name for n in users if n.op in _PASSING and Ref(node) in n.data_inputs)

    for passed in closure([name], after):
        for user in graph.consumers.get(passed, ()):
            if user.op not in _PASSING and Ref(passed) in user.data_inputs:
                yield user, Ref(passed)


def _is_product(user: Node, ref: Ref) -> bool:
    is_plain = user.op == "MatMul" and not user.attr_bool("transpose_a", False)
    return is_plain and [r == ref for r in user.data_inputs] == [False, True]


def _is_turned(product: Node) -> bool:
    return product.attr_bool("transpose_b", False)

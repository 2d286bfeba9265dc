"""A graph's nodes as TensorFlow's importer leaves them: ordered, with default attributes.

Source: ``ImportGraphDef`` of TensorFlow 1.15.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import MERGES, NEXT_ITERATIONS
from mobileprep.ir.refs import Ref
from mobileprep.opdefs.default_attributes import default_attrs

OUTPUT_SHAPES = "_output_shapes"


def imported_nodes(graph: Graph) -> list[Node]:
    """The nodes in the importer's order, as the importer completes them.

    Attributes that a node lacks get the defaults of TensorFlow 1.15's op definitions, where it
    knows the op; recorded output shapes go; control inputs are sorted, each once.

    Raises:
        InvalidGraphError: nodes feed each other in a circle.
    """
    defaults: dict[str, Mapping[str, AttrValue]] = {}
    nodes = []
    for node in import_order(graph):
        if node.op not in defaults:
            defaults[node.op] = default_attrs(node.op, graph.library) or {}
        nodes.append(_completed(node, defaults[node.op]))
    return nodes


def import_order(graph: Graph) -> list[Node]:
    """The nodes in the order that the importer creates them in.

    Of the nodes whose inputs are there, the one that the graph lists first comes next. A Merge
    that closes a loop waits for one tensor and its control inputs.

    Raises:
        InvalidGraphError: nodes feed each other in a circle.
    """
    nodes = graph.nodes
    position = {node.name: i for i, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    pending = []
    for i, node in enumerate(nodes):
        pending.append(_awaited(node, graph))
        for ref in node.inputs:
            consumers[position[ref.node]].append(i)
    ready = [i for i, count in enumerate(pending) if not count]
    order = []
    while ready:
        node = nodes[i := heapq.heappop(ready)]
        order.append(node)
        closes = node.op in NEXT_ITERATIONS
        for consumer in consumers[i]:
            if closes and nodes[consumer].op in MERGES:
                continue
            pending[consumer] -= 1
            if not pending[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < len(nodes):
        waiting = next(n.name for i, n in enumerate(nodes) if pending[i] > 0)
        message = f"{len(nodes) - len(order)} nodes feed each other in a circle, as {waiting!r}"
        raise InvalidGraphError(message, "export the graph again")
    return order


def _awaited(node: Node, graph: Graph) -> int:
    if node.op in MERGES and any(graph[r.node].op in NEXT_ITERATIONS for r in node.data_inputs):
        return len(node.control_inputs) + 1
    return len(node.inputs)


def _completed(node: Node, defaults: Mapping[str, AttrValue]) -> Node:
    attrs = node.attrs
    if OUTPUT_SHAPES in attrs or any(name not in attrs for name in defaults):
        attrs = {**defaults, **{k: v for k, v in attrs.items() if k != OUTPUT_SHAPES}}
    inputs = _inputs(node.inputs)
    if inputs is node.inputs and attrs is node.attrs:
        return node
    return replace(node, inputs=inputs, attrs=attrs)


def _inputs(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
    """Tensors as "node" or "node:1", then control inputs sorted, each once."""
    if not any(r.explicit or r.is_control for r in refs):
        return refs
    tensors = [Ref(r.node, r.index) for r in refs if not r.is_control]
    return (*tensors, *sorted_controls(r.node for r in refs if r.is_control))


def sorted_controls(names: Iterable[str]) -> Sequence[Ref]:
    """Control inputs on the named nodes, in the order that graphs are written in."""
    return [Ref(name, -1) for name in sorted(set(names))]

"""Annotate each node with its role in a graph for a remote processor."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.transforms.base import Context, Result, transform
from mobileprep.transforms.fuse_remote_graph import RemoteOptions, names

_NODE_TYPE = "_remote_fused_graph_node_type"


class _Part(enum.IntEnum):
    """Role of a node, with the numbers that executors use."""

    UNUSED = 0
    GRAPH_INPUT = 1
    GRAPH_OUTPUT = 2
    FUSED_NODE = 3
    BORDER_INPUT = 4
    BORDER_OUTPUT = 5


@transform("place_remote_graph_arguments")
class PlaceRemoteGraphArguments(RemoteOptions, frozen=True):
    """Set an attribute on every node that the counterpart of fuse_remote_graph reads at run time.

    Source: ``place_remote_graph_arguments`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Notes at each node what part it plays in a graph that a remote processor runs."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Annotate all nodes with their roles."""
        graph = self.checked(graph, context)
        fused = frozenset(names(self.fused_nodes))
        ops = frozenset(names(self.fused_op_types))
        executor = (self.remote_fused_graph_executor_name, self.remote_fused_graph_node_name)
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            parts = [
                *_at(node, _Part.GRAPH_INPUT, context.inputs, *executor),
                *_at(node, _Part.GRAPH_OUTPUT, context.outputs),
                *([str(int(_Part.FUSED_NODE))] * ((node.name in fused) + (node.op in ops))),
                *_at(node, _Part.BORDER_INPUT, names(self.border_inputs)),
                *_at(node, _Part.BORDER_OUTPUT, names(self.border_outputs)),
            ]
            matched += bool(parts)
            text = ":".join(parts) or str(int(_Part.UNUSED))
            nodes.append(node.with_attrs(**{_NODE_TYPE: attr.string(text)}))
        return Result(graph.with_nodes(nodes), matched)


def _at(node: Node, part: _Part, tensors: Sequence[str], *more: str) -> list[str]:
    """Return ``part,output,position`` for each of the tensors that the node outputs."""
    refs = [parse_ref(name) for name in tensors]
    return [
        ",".join([str(int(part)), str(ref.index), str(place), *more])
        for place, ref in enumerate(refs)
        if ref.node == node.name
    ]

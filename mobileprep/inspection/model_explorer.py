"""Graphs as JSON that Google's Model Explorer opens, and its overlays of numbers.

Source: ``GraphCollection`` and ``ModelNodeData`` of ai-edge-model-explorer's ``graph_builder.py``
and ``node_data_builder.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mobileprep.inspection.attribute_text import attribute_text
from mobileprep.inspection.drawing import shape_text
from mobileprep.ir.attrs import AttrValue, TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import CONTROL

MAIN: Final = "main"
"""The id of the graph itself; functions have their names."""

_GRADIENT: Final = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e8590c"})

Shapes = Mapping[str, tuple[TensorShape, ...]]


def graph_collection(graph: Graph, label: str, shapes: Shapes) -> dict[str, Any]:
    """A graph and its functions.

    Args:
        graph: the graph; inputs that are not there are left out.
        label: what to call it.
        shapes: those of each node's outputs, as far as they are known.
    """
    functions = graph.library.functions
    graphs = [{"id": _main(graph), "nodes": _nodes(graph.nodes, shapes, functions)}]
    graphs += [{"id": n, "nodes": _nodes(f.nodes, {}, functions)} for n, f in functions.items()]
    return {"label": label, "graphs": graphs}


def node_data(graph: Graph, values: Mapping[str, float]) -> dict[str, Any]:
    """A number for each of some nodes of the graph, colored from the least to the most."""
    results = {name: {"value": value} for name, value in values.items()}
    return {_main(graph): {"results": results, "gradient": list(_GRADIENT)}}


def _main(graph: Graph) -> str:
    """The id of the graph itself, which no function has: their names hold no slash."""
    return f"{MAIN}/" if MAIN in graph.library.functions else MAIN


def _nodes(nodes: Sequence[Node], shapes: Shapes, functions: Iterable[str]) -> list[dict[str, Any]]:
    names = {n.name for n in nodes}
    known = set(functions)
    return [_node(n, names, shapes.get(n.name, ()), known) for n in nodes]


def _node(
    node: Node, names: set[str], shapes: Sequence[TensorShape], functions: set[str]
) -> dict[str, Any]:
    told = [{"key": "name", "value": node.name}]
    told += [{"key": "device", "value": node.device}] if node.device else []
    told += [{"key": k, "value": attribute_text(v)} for k, v in sorted(node.attrs.items())]
    made: dict[str, Any] = {
        "id": node.name,
        "label": node.op,
        "namespace": node.name.rpartition("/")[0],
        "attrs": told,
        "incomingEdges": [
            {
                "sourceNodeId": ref.node,
                "sourceNodeOutputId": "control" if ref.index == CONTROL else str(ref.index),
                "targetNodeInputId": str(slot),
            }
            for slot, ref in enumerate(node.inputs)
            if ref.node in names
        ],
        "outputsMetadata": [
            {"id": str(i), "attrs": [{"key": "shape", "value": shape_text(shape)}]}
            for i, shape in enumerate(shapes)
        ],
    }
    called = sorted({f for v in node.attrs.values() if (f := _function(v)) in functions})
    if node.op in functions:
        called.append(node.op)
    return made | ({"subgraphIds": called} if called else {})


def _function(value: AttrValue) -> str:
    return value.value.name if value.kind == "func" else ""

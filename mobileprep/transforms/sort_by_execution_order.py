"""Sort nodes so that each comes after its inputs."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import execution_order
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("sort_by_execution_order")
class SortByExecutionOrder(Transform, frozen=True):
    """Store nodes so that a reader can create them one by one, with inputs first.

    Source: ``sort_by_execution_order`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Stores nodes so that each comes after its inputs."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        check_inputs(graph, self.transform_name)
        order = execution_order(graph)
        if len(order) < len(graph):
            done = set(map(id, order))  # of two nodes with the same name, one may be missing
            first = next(n.name for n in graph if id(n) not in done)
            message = f"{len(graph) - len(order)} nodes are in a circle or after one, as {first!r}"
            raise refuse(self.transform_name, message, "export the graph again")
        moved = sum(a is not b for a, b in zip(order, graph.nodes, strict=True))
        return Result(graph.with_nodes(order) if moved else graph, moved)

"""What a graph costs: operations, bytes moved, parameters, and the memory of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Edge, Ref, edge
from mobileprep.opdefs.signatures import output_types, signature_of
from mobileprep.ops.cost import Sizes, count_flops
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.accounting.tensor_memory import VIEWS, Executed, TensorLayout, peak_bytes
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.selection import needed_nodes

_UNKNOWN = TensorLayout(None, 0)

# Of their first input they look at no element, or only at those that they give.
_PARTIAL: Final = frozenset(
    {"Gather", "GatherNd", "GatherV2", "Rank", "Shape", "ShapeN", "Size", "Slice", "StridedSlice"}
)


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What a node costs, over all its executions.

    Args:
        name, op: of the node.
        flops: operations; None where op or shapes do not tell.
        read, written: bytes of its inputs, constants among them, and of its outputs.
        calls: how often it was executed.
    """

    name: str
    op: str
    flops: int | None
    read: int
    written: int
    calls: int = 1

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def and_again(self, other: NodeCost) -> NodeCost:
        """The costs of another execution added."""
        known = self.flops is not None and other.flops is not None
        return replace(
            self,
            flops=(self.flops or 0) + (other.flops or 0) if known else None,
            read=self.read + other.read,
            written=self.written + other.written,
            calls=self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True)
class GraphCosts:
    """What the computation of some tensors costs.

    Args:
        nodes: each node that runs, constants left out, in order of their first execution.
        parameters: elements of the constants that are read.
        parameter_bytes: their bytes.
        peak_bytes: most bytes of tensors, constants left out, that are there at once, each freed
            after its last use and none written over in place.
        unknown: nodes whose outputs have no known size, which the other numbers leave out.
    """

    nodes: tuple[NodeCost, ...]
    parameters: int
    parameter_bytes: int
    peak_bytes: int
    unknown: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Operations of all nodes whose operations are known."""
        return sum(n.flops or 0 for n in self.nodes)

    @property
    def moved(self) -> int:
        """Bytes read and written by all nodes."""
        return sum(n.moved for n in self.nodes)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """The ops of nodes whose operations are not known, sorted."""
        return tuple(sorted({n.op for n in self.nodes if n.flops is None}))

    @property
    def flops_by_op(self) -> dict[str, int]:
        """Operations of each op that has some, most first."""
        totals: dict[str, int] = {}
        for node in self.nodes:
            if node.flops:
                totals[node.op] = totals.get(node.op, 0) + node.flops
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def inferred_costs(
    graph: Graph,
    fetches: Iterable[str],
    feeds: Mapping[str, TensorShape],
    where: str = "graph",
    assumed: Mapping[str, TensorShape] | None = None,
) -> GraphCosts:
    """The costs as far as inferred shapes tell, each node executed once.

    Args:
        graph: the graph.
        fetches: names of the tensors wanted.
        feeds: shapes of the tensors that are fed, by name.
        where: what the graph is called, for messages.
        assumed: shapes of other tensors, where inference does not find them.

    Raises:
        InvalidGraphError: a missing input, or a cycle.
        UsageError: a fetch or a feed is not in the graph.
    """
    wanted = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = [edge(known_ref(graph, name, "feed", where)) for name in feeds]
    shapes = infer_shapes(graph, {**(assumed or {}), **feeds})
    ran = [
        Executed(n, _specs(n, graph, shapes.get(n.name, ())))
        for n in needed_nodes(graph, wanted, set(fed), where)
        if n.op != "Const"
    ]
    specs = {name: _specs(graph[name], graph, shapes.get(name, ())) for name, _ in fed}
    given = {(n, i): specs[n][i] if i < len(specs[n]) else _UNKNOWN for n, i in fed}
    return executed_costs(graph, ran, given, [edge(r) for r in wanted])


def _specs(node: Node, graph: Graph, shapes: Sequence[TensorShape]) -> tuple[TensorLayout, ...]:
    definition = signature_of(node, graph.library)
    try:
        types = output_types(node, definition) if definition is not None else []
    except InvalidGraphError:
        types = []
    sizes = [t.base.itemsize for t in types] + [0] * (len(shapes) - len(types))
    return tuple(TensorLayout(s, n) for s, n in zip(shapes, sizes, strict=False))


def executed_costs(
    graph: Graph,
    ran: Sequence[Executed],
    given: Mapping[Edge, TensorLayout],
    wanted: Sequence[Edge],
) -> GraphCosts:
    """The costs of what was executed.

    Args:
        graph: where the constants are.
        ran: the executions, in order.
        given: the tensors that were fed.
        wanted: the tensors that were fetched.
    """
    known = _Known(graph, dict(given))
    costs: dict[str, NodeCost] = {}
    for executed in ran:
        cost = known.cost(executed)
        seen = costs.get(cost.name)
        costs[cost.name] = cost if seen is None else seen.and_again(cost)
    tensors = [graph[name].attr_tensor("value") for name in sorted(known.constants)]
    return GraphCosts(
        tuple(costs.values()),
        sum(t.size for t in tensors),
        sum(t.nbytes for t in tensors),
        peak_bytes(ran, given, wanted),
        tuple(dict.fromkeys(e.node.name for e in ran if not _is_known(e))),
    )


def _is_known(executed: Executed) -> bool:
    return all(s.shape is not None and min(s.shape, default=0) >= 0 for s in executed.outputs)


class _Known:
    """What is known of tensors while executions go by."""

    def __init__(self, graph: Graph, specs: dict[Edge, TensorLayout]) -> None:
        self._graph = graph
        self._specs = specs
        self.constants: set[str] = set()

    def cost(self, executed: Executed) -> NodeCost:
        """What one execution costs; what it made is known from now on."""
        node = executed.node
        inputs = [self._spec(r) for r in node.data_inputs]
        self._specs.update(((node.name, i), s) for i, s in enumerate(executed.outputs))
        sizes = Sizes(node, [s.shape for s in inputs], [s.shape for s in executed.outputs])
        read, written = _moved(node, inputs, executed.outputs)
        return NodeCost(node.name, node.op, count_flops(sizes), read, written)

    def _spec(self, ref: Ref) -> TensorLayout:
        """A tensor as it was made last; through control flow that is not executed as such."""
        for _ in range(len(self._graph)):
            found = self._specs.get(edge(ref))
            node = self._graph.get(ref.node)
            if found is not None or node is None:
                return found or _UNKNOWN
            if node.op == "Const":
                self.constants.add(node.name)
                tensor = node.attr_tensor("value")
                return TensorLayout(tensor.shape, tensor.dtype.itemsize)
            if node.op not in VIEWS or not node.data_inputs:
                return _UNKNOWN
            ref = node.data_inputs[0]
        return _UNKNOWN


def _moved(
    node: Node, inputs: Sequence[TensorLayout], outputs: Sequence[TensorLayout]
) -> tuple[int, int]:
    """Bytes read and written by one execution."""
    if node.op in VIEWS:
        return 0, 0
    written = sum(s.nbytes for s in outputs)
    if node.op in _PARTIAL:
        first = min(written, inputs[0].nbytes if inputs else 0)
        return first + sum(s.nbytes for s in inputs[1:]), written
    return sum(s.nbytes for s in inputs), written

"""What a model is made of and what one run costs, by op and by name scope."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tflite import is_tflite_graph
from mobileprep.ops.cost import Sizes, count_flops
from mobileprep.ops.shape_inference import shape_of

if TYPE_CHECKING:
    from mobileprep.runtime.accounting.costs import NodeCost

# A constant counts for the op that uses it, behind ops that only hand it on.
_HANDS_ON: Final = frozenset({"Identity", "Enter", "Dequantize"})


@dataclass(frozen=True)
class LoopCount:
    """A while loop.

    Args:
        name: the name of its frame.
        iterations: how often its body runs each time that the loop is reached; None if constants
            and shapes do not tell, and one iteration is counted.
    """

    name: str
    iterations: int | None


@dataclass(frozen=True)
class Share:
    """What some nodes have of the whole.

    Args:
        name: the op or the name scope; empty for nodes outside all scopes.
        nodes: how many nodes.
        parameters: elements of their constants.
        bytes: bytes of these.
        flops: operations of one run, as far as they are known.
        share: their part of all operations, from 0 to 1.
    """

    name: str
    nodes: int
    parameters: int
    bytes: int
    flops: int
    share: float


@dataclass(frozen=True)
class ModelCosts:
    """What computing some tensors takes.

    Args:
        batch: what unknown sizes of the inputs, such as the number of samples, are taken for.
        flops: operations of one run; a multiplication and an addition are two.
        parameters: elements of the constants that are read.
        bytes: bytes of these.
        moved: bytes that nodes read and write.
        peak: most bytes of tensors, constants left out, that are there at once.
        uncounted: ops whose operations are not known, from their inferred shapes.
        by_op: of each op, constants with the op that uses them; most operations first.
        by_scope: of each name scope; likewise.
        loops: the while loops that the operations count in.
    """

    batch: int
    flops: int
    parameters: int
    bytes: int
    moved: int
    peak: int
    uncounted: tuple[str, ...]
    by_op: tuple[Share, ...]
    by_scope: tuple[Share, ...]
    loops: tuple[LoopCount, ...] = ()


@dataclass
class _Sum:
    nodes: int = 0
    parameters: int = 0
    bytes: int = 0
    flops: int = 0


@dataclass
class _Sums:
    """Sums by name."""

    sums: dict[str, _Sum] = field(default_factory=dict)

    def add(
        self, name: str, *, nodes: int = 0, flops: int = 0, constant: Node | None = None
    ) -> None:
        found = self.sums.setdefault(name, _Sum())
        found.nodes += nodes
        found.flops += flops
        if constant is not None:
            tensor = constant.attr_tensor("value")
            found.parameters += tensor.size
            found.bytes += tensor.nbytes

    def shares(self, flops: int) -> tuple[Share, ...]:
        """The sums, most operations first, of equal ones most bytes."""
        made = [
            Share(name, s.nodes, s.parameters, s.bytes, s.flops, s.flops / flops if flops else 0.0)
            for name, s in self.sums.items()
        ]
        return tuple(sorted(made, key=lambda s: (-s.flops, -s.bytes, s.name)))


def model_costs(
    graph: Graph,
    outputs: Sequence[str],
    feeds: Mapping[str, TensorShape],
    *,
    depth: int = 1,
    batch: int = 1,
    where: str = "graph",
) -> ModelCosts:
    """What one run costs, from shapes inferred through the graph, or those of a .tflite file.

    A loop counts as often as constants and shapes tell, and otherwise once.

    Args:
        graph: the graph.
        outputs: the tensors to compute.
        feeds: shapes of the inputs, None where the rank is not known.
        depth: how many parts of a name are its scope.
        batch: what to take for sizes that are not known.
        where: what the graph is called, for messages.

    Raises:
        InvalidGraphError: a missing input, or a cycle.
        UsageError: an output or an input is not in the graph.
    """
    shapes = {
        name: None if shape is None else tuple(batch if n < 0 else n for n in shape)
        for name, shape in feeds.items()
    }
    loops: tuple[LoopCount, ...] = ()
    if is_tflite_graph(graph):
        from mobileprep.inspection.lite_costs import lite_costs

        costs = lite_costs(graph, outputs, shapes, batch)
    else:
        from mobileprep.inspection.loops import costs_with_loops

        graph, costs, loops = costs_with_loops(graph, outputs, shapes, where)
    ran = {cost.name for cost in costs.nodes}
    constants = list(_constants(graph, ran))
    return ModelCosts(
        batch,
        costs.flops,
        sum(c.attr_tensor("value").size for c in constants),
        sum(c.attr_tensor("value").nbytes for c in constants),
        costs.moved,
        costs.peak_bytes,
        costs.uncounted,
        _by_op(graph, costs.nodes, constants).shares(costs.flops),
        _by_scope(costs.nodes, constants, lambda name: scope_of(name, depth)).shares(costs.flops),
        loops,
    )


def scope_of(name: str, depth: int) -> str:
    """The first parts of a name, its last one left out: ``a/b`` of ``a/b/c`` at a depth of 2."""
    return "/".join(name.split("/")[:-1][:depth])


def _constants(graph: Graph, ran: Iterable[str]) -> Iterable[Node]:
    """The constants that some nodes take, each once, in graph order."""
    taken = {r.node for name in ran for r in graph[name].data_inputs}
    return (n for n in graph if n.op == "Const" and n.name in taken)


def _by_op(graph: Graph, costs: Sequence[NodeCost], constants: Iterable[Node]) -> _Sums:
    sums, ran = _Sums(), {cost.name for cost in costs}
    for cost in costs:
        sums.add(cost.op, nodes=1, flops=cost.flops or 0)
    for constant in constants:
        sums.add(_user(graph, constant, ran), constant=constant)
    return sums


def _by_scope(
    costs: Iterable[NodeCost], constants: Iterable[Node], scope: Callable[[str], str]
) -> _Sums:
    sums = _Sums()
    for cost in costs:
        sums.add(scope(cost.name), nodes=1, flops=cost.flops or 0)
    for constant in constants:
        sums.add(scope(constant.name), nodes=1, constant=constant)
    return sums


def _user(graph: Graph, constant: Node, ran: Collection[str]) -> str:
    """The op that a constant is for, among the nodes that run."""
    node = constant
    for _ in graph:
        taken = [n for n in graph.consumers.get(node.name, []) if n.name in ran]
        if not taken:
            break
        node = taken[0]
        if node.op not in _HANDS_ON:
            break
    return node.op


def node_flops(graph: Graph, shapes: Mapping[str, tuple[TensorShape, ...]]) -> dict[str, float]:
    """The operations of each node in one run, of those that have some and are known.

    Args:
        graph: the graph.
        shapes: those of each node's outputs; unknown sizes count as 1.
    """
    known = {
        name: tuple(None if s is None else tuple(max(n, 1) for n in s) for s in outputs)
        for name, outputs in shapes.items()
    }
    found: dict[str, float] = {}
    for node in graph:
        inputs = [shape_of(known, ref) for ref in node.data_inputs]
        flops = count_flops(Sizes(node, inputs, known.get(node.name, ())))
        if flops:
            found[node.name] = flops
    return found

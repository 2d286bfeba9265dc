"""Costs of a model run, by op and by name scope."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import MobileprepError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import node_behind, source_behind
from mobileprep.graph.frames import Frame, Frames
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, MERGES, NEXT_ITERATIONS, SUMS, SWITCHES
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.tflite import is_tflite_graph
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.kernel import Sizes, count_flops
from mobileprep.ops.shape_inference import infer_shapes, shape_of
from mobileprep.runtime.accounting.costs import (
    Executed,
    GraphCosts,
    NodeCost,
    TensorLayout,
    inferred_costs,
    inferred_run,
    run_costs,
)
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.interpreter import in_line, runs_functions
from mobileprep.runtime.selection import needed_nodes
from mobileprep.targets.op_classes import ClassCost, class_costs

# Ops between a constant and the op that its parameters count for.
_HANDS_ON: Final = frozenset({"Identity", "Enter", "Dequantize"})


class LoopCount(Struct, frozen=True):
    """A while loop.

    Args:
        name: name of its frame.
        iterations: number of iterations each time the loop is reached; None if constants and shapes
            do not determine it, in which case one iteration is counted.
    """

    name: str
    iterations: int | None


class Share(Struct, frozen=True):
    """Share of some nodes in the total.

    Args:
        name: op or name scope; empty for nodes outside all scopes.
        nodes: number of nodes.
        parameters: number of elements of their constants.
        bytes: size of their constants in bytes.
        flops: operations of one run, as far as known.
        share: fraction of all operations, from 0 to 1.
    """

    name: str
    nodes: int
    parameters: int
    bytes: int
    flops: int
    share: float


class ModelCosts(Struct, frozen=True):
    """Cost of computing some tensors.

    Args:
        batch: size used for unknown input dimensions, such as the number of samples.
        flops: operations of one run; a multiplication and an addition are two.
        parameters: number of elements of the constants that are read.
        bytes: size of these constants in bytes.
        moved: bytes that nodes read and write.
        peak: peak size of all live tensors in bytes, without constants.
        uncounted: ops with an unknown number of operations.
        by_op: share of each op, including the constants it uses; most operations first.
        by_scope: share of each name scope; most operations first.
        loops: while loops that are included in the operations.
        classes: costs by class of op.
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
    classes: tuple[ClassCost, ...] = ()


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
        total = self.sums.setdefault(name, _Sum())
        total.nodes += nodes
        total.flops += flops
        if constant is not None:
            tensor = constant.attr_tensor("value")
            total.parameters += tensor.size
            total.bytes += tensor.nbytes

    def shares(self, flops: int) -> tuple[Share, ...]:
        """Return the sums, sorted by operations, then by bytes, largest first."""
        shares = [
            Share(name, s.nodes, s.parameters, s.bytes, s.flops, s.flops / flops if flops else 0.0)
            for name, s in self.sums.items()
        ]
        return tuple(sorted(shares, key=lambda s: (-s.flops, -s.bytes, s.name)))


class CountedRun(Struct, frozen=True):
    """The cost of computing some tensors, node by node.

    Args:
        graph: the graph, with inlined functions.
        costs: cost of each node that runs.
        loops: while loops that are included in the operations.
        batch: size that was used for unknown input dimensions.
    """

    graph: Graph
    costs: GraphCosts
    loops: tuple[LoopCount, ...] = ()
    batch: int = 1

    def constants(self) -> tuple[Node, ...]:
        """Return the constants that the run reads, in graph order."""
        names = {r.node for cost in self.costs.nodes for r in self.graph[cost.name].data_inputs}
        return tuple(n for n in self.graph if n.op == "Const" and n.name in names)


def counted_run(
    graph: Graph,
    outputs: Sequence[str],
    feeds: Mapping[str, TensorShape],
    *,
    batch: int = 1,
    where: str = "graph",
) -> CountedRun:
    """Compute the cost of one run from inferred shapes, or from those of a .tflite file.

    A loop with an unknown number of iterations counts once.

    Args:
        feeds: shapes of the inputs, or None if the rank is unknown.
        batch: size to use for unknown dimensions.
    """
    shapes = {
        name: None if shape is None else tuple(batch if n < 0 else n for n in shape)
        for name, shape in feeds.items()
    }
    if is_tflite_graph(graph):
        from mobileprep.inspection.lite_costs import lite_costs

        return CountedRun(graph, lite_costs(graph, outputs, shapes, batch), batch=batch)
    return CountedRun(*costs_with_loops(graph, outputs, shapes, where), batch)


def model_costs(run: CountedRun, *, depth: int = 1) -> ModelCosts:
    """Sum the cost of a run by op and by name scope.

    Args:
        depth: number of name components of a scope.
    """
    costs, constants = run.costs, run.constants()
    by_op = _by_op(run.graph, costs.nodes, constants)
    by_scope = _by_scope(costs.nodes, constants, lambda name: scope_of(name, depth))
    return ModelCosts(
        run.batch,
        costs.flops,
        sum(c.attr_tensor("value").size for c in constants),
        sum(c.attr_tensor("value").nbytes for c in constants),
        costs.moved,
        costs.peak_bytes,
        costs.uncounted,
        by_op.shares(costs.flops),
        by_scope.shares(costs.flops),
        run.loops,
        class_costs(costs.nodes),
    )


def scope_of(name: str, depth: int) -> str:
    """Return the first components of a node's scope: ``a/b`` of ``a/b/c`` at a depth of 2."""
    return "/".join(name.split("/")[:-1][:depth])


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
    """Return the op that uses a constant, among the nodes that run."""
    node = constant
    for _ in graph:
        users = [n for n in graph.consumers.get(node.name, []) if n.name in ran]
        if not users:
            break
        node = users[0]
        if node.op not in _HANDS_ON:
            break
    return node.op


def node_flops(graph: Graph, shapes: Mapping[str, tuple[TensorShape, ...]]) -> dict[str, float]:
    """Count the operations of each node in one run, omitting zero and unknown counts.

    Args:
        shapes: shapes of each node's outputs; unknown dimensions have size 1.
    """
    closed = {
        name: tuple(None if s is None else tuple(max(n, 1) for n in s) for s in outputs)
        for name, outputs in shapes.items()
    }
    counts: dict[str, float] = {}
    for node in graph:
        inputs = [shape_of(closed, ref) for ref in node.data_inputs]
        flops = count_flops(Sizes(node, inputs, closed.get(node.name, ())))
        if flops:
            counts[node.name] = flops
    return counts


_MAX_ZEROS: Final = 1 << 28
"""Maximum number of elements of an input of zeros for determining shapes."""
_MAX_DEPTH: Final = 4
"""Maximum depth of nested loops whose variables get shapes."""
# For each comparison of a counter with a bound, whether the loop still runs at the bound.
_BELOW: Final = {"Less": False, "LessEqual": True}
_ABOVE: Final = {"Greater": False, "GreaterEqual": True}


def costs_with_loops(
    graph: Graph, outputs: Sequence[str], shapes: Mapping[str, TensorShape], where: str
) -> tuple[Graph, GraphCosts, tuple[LoopCount, ...]]:
    """Compute the costs of a run, counting each loop once if its iterations are unknown.

    Returns:
        The graph with inlined functions, its costs, and its loops.
    """
    graph, nodes, fed = _inlined(graph, outputs, shapes, where)
    if not any(n.op in NEXT_ITERATIONS for n in nodes):
        return graph, inferred_costs(graph, outputs, shapes, where), ()
    assumed = _first_shapes(graph, nodes, shapes)
    costs = inferred_costs(graph, outputs, shapes, where, assumed)
    loops = Loops(graph, nodes, infer_shapes(graph, shapes), fed)
    # A loop that ends depending on data may not end on zeros.
    if costs.uncounted and all(loop.iterations is not None for loop in loops.counts()):
        costs = _with_run(graph, costs, outputs, shapes)
    times = tuple(_times(cost, loops.runs(cost.name)) for cost in costs.nodes)
    return graph, replace(costs, nodes=times), loops.counts()


def _inlined(
    graph: Graph, outputs: Sequence[str], shapes: Mapping[str, TensorShape], where: str
) -> tuple[Graph, list[Node], frozenset[Edge]]:
    """Return the graph with inlined functions if possible, the needed nodes, and fed tensors."""
    fetches = [known_ref(graph, name, "fetch", where) for name in outputs]
    feeds = [known_ref(graph, name, "feed", where) for name in shapes]
    fed = {edge(ref) for ref in feeds}
    if any(runs_functions(n, graph) for n in needed_nodes(graph, fetches, fed, where)):
        with contextlib.suppress(MobileprepError):
            graph = in_line(graph, fetches, feeds, where)
    return graph, needed_nodes(graph, fetches, fed, where), frozenset(fed)


def run_once(
    graph: Graph, outputs: Sequence[str], shapes: Mapping[str, TensorShape], where: str
) -> tuple[Graph, list[Executed], dict[Edge, TensorLayout]]:
    """Return the graph with inlined functions, the executed nodes, and the layouts of the feeds.

    Each loop runs once.
    """
    graph, nodes, _ = _inlined(graph, outputs, shapes, where)
    has_loops = any(n.op in NEXT_ITERATIONS for n in nodes)
    assumed = _first_shapes(graph, nodes, shapes) if has_loops else {}
    return (graph, *inferred_run(graph, outputs, shapes, where, assumed))


def _first_shapes(
    graph: Graph, nodes: Sequence[Node], shapes: Mapping[str, TensorShape]
) -> dict[str, TensorShape]:
    """Return the shapes of loop variables in the first iteration. Few loops change them."""
    loop_shapes: dict[str, TensorShape] = {}
    for _ in range(_MAX_DEPTH):
        inferred = infer_shapes(graph, {**loop_shapes, **shapes})
        before = len(loop_shapes)
        for node in nodes:
            enters = [graph[r.node] for r in node.data_inputs if graph[r.node].op in ENTERS]
            is_variable = node.op in MERGES and enters and enters[0].data_inputs
            shape = shape_of(inferred, enters[0].data_inputs[0]) if is_variable else None
            if shape is not None:
                loop_shapes[node.name] = shape
        if len(loop_shapes) == before:
            break
    return loop_shapes


def _times(cost: NodeCost, count: int) -> NodeCost:
    """Multiply the cost by the number of executions."""
    flops = None if cost.flops is None else cost.flops * count
    read, written = cost.read * count, cost.written * count
    return replace(cost, flops=flops, read=read, written=written, calls=count)


def _with_run(
    graph: Graph, costs: GraphCosts, outputs: Sequence[str], shapes: Mapping[str, TensorShape]
) -> GraphCosts:
    """Fill in unknown costs from a run on zeros, if it succeeds.

    The element shapes of a TensorArray are only known at run time.
    """
    try:
        ran = {c.name: c for c in run_costs(graph, _zeros(graph, shapes), outputs).nodes}
    except MobileprepError:
        return costs
    completed = []
    for cost in costs.nodes:
        measured = ran.get(cost.name)
        if cost.flops is None and measured is not None and measured.flops is not None:
            calls = measured.calls
            once = (
                round(measured.flops / calls),
                measured.read // calls,
                measured.written // calls,
            )
            cost = replace(cost, flops=once[0], read=once[1], written=once[2])
        completed.append(cost)
    return replace(costs, nodes=tuple(completed))


def _zeros(graph: Graph, shapes: Mapping[str, TensorShape]) -> dict[str, Array]:
    """Return zeros for inputs of known shapes."""
    feeds = {}
    for name, shape in shapes.items():
        ref = parse_ref(name)
        types = _types(graph, ref.node)
        dtype = types[ref.index].numpy if ref.index < len(types) else None
        if shape is None or dtype is None or math.prod(shape) > _MAX_ZEROS:
            message = f"the input {name!r} cannot be fed with zeros"
            raise UsageError(message)
        feeds[name] = np.zeros(shape, dtype)
    return feeds


def _types(graph: Graph, name: str) -> Sequence[DType]:
    """Return the dtypes of a node's outputs; empty for an unknown op."""
    definition = signature_of(graph[name], graph.library)
    return () if definition is None else output_types(graph[name], definition)


class Loops:
    """Loops among some nodes.

    Args:
        nodes: nodes that run, in topological order except for the back edges of loops.
        shapes: shapes of all nodes' outputs.
        fed: tensors with feeds.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        shapes: Mapping[str, tuple[TensorShape, ...]],
        fed: frozenset[Edge],
    ) -> None:
        self._graph = graph
        self._frames = Frames(nodes, fed, "graph")
        names = frozenset(name for name, _ in fed)
        self._values = StaticValues(graph.by_name, lambda ref: shape_of(shapes, ref), names)
        self._found: dict[Frame, int | None] = {}
        for node in nodes:
            for frame in self._frames.of_node[node.name].ancestors():
                if frame.parent is not None and frame not in self._found:
                    self._found[frame] = self._iterations(frame)

    def counts(self) -> tuple[LoopCount, ...]:
        """Return every loop, in graph order."""
        return tuple(LoopCount(frame.name, count) for frame, count in self._found.items())

    def runs(self, name: str) -> int:
        """Return how often a node runs. Loops with an unknown count have one iteration."""
        frames = self._frames.of_node[name].ancestors()
        counts = (self._found.get(frame) for frame in frames if frame.parent is not None)
        return math.prod(1 if count is None else count for count in counts)

    def _iterations(self, frame: Frame) -> int | None:
        ends = frame.of_op({"LoopCond"})
        if len(ends) != 1:
            return None
        return self._until(node_behind(self._graph, ends[0].data_inputs[0]), frame)

    def _until(self, test: Node, frame: Frame) -> int | None:
        """Return how often a condition holds, or None if unknown."""
        if test.op == "LoopCond":
            test = node_behind(self._graph, test.data_inputs[0])
        if len(test.data_inputs) != 2:
            return None
        if test.op == "LogicalAnd":
            parts = [self._until(node_behind(self._graph, ref), frame) for ref in test.data_inputs]
            counts = [count for count in parts if count is not None]
            return min(counts) if len(counts) == len(parts) else None
        first, second = test.data_inputs
        if test.op in _BELOW:
            return self._steps(first, second, frame, at_bound=_BELOW[test.op])
        if test.op in _ABOVE:
            return self._steps(second, first, frame, at_bound=_ABOVE[test.op])
        return None

    def _steps(self, counter: Ref, bound: Ref, frame: Frame, *, at_bound: bool) -> int | None:
        """Count the steps of a counter that increases up to a bound."""
        last = self._value(bound, frame)
        merge = node_behind(self._graph, counter)
        if last is None or merge.op not in MERGES:
            return None
        begin, again = self._variable(merge)
        if begin is None or again is None:
            return None
        first, step = self._value(Ref(begin.name), frame), self._step(merge, again, frame)
        if first is None or step is None or step <= 0:
            return None
        return max(math.ceil((last - first + (1 if at_bound else 0)) / step), 0)

    def _variable(self, merge: Node) -> tuple[Node | None, Node | None]:
        """Return the nodes with the initial value of a loop variable, and with the later ones."""
        sources = [self._graph[ref.node] for ref in merge.data_inputs]
        return (
            next((s for s in sources if s.op in ENTERS), None),
            next((s for s in sources if s.op in NEXT_ITERATIONS), None),
        )

    def _step(self, merge: Node, again: Node, frame: Frame) -> float | None:
        """Return the increment of a loop variable per iteration; None for any other change."""
        added = node_behind(self._graph, again.data_inputs[0])
        if added.op not in SUMS or len(added.data_inputs) != 2:
            return None
        for variable, step in (added.data_inputs, added.data_inputs[::-1]):
            switch = node_behind(self._graph, variable)
            if switch.op in SWITCHES and switch.data_inputs[0].node == merge.name:
                return self._value(step, frame)
        return None

    def _value(self, ref: Ref, frame: Frame) -> float | None:
        """Return a number that is the same in each iteration, or None if unknown."""
        source = source_behind(self._graph, ref)
        node = self._graph[source.node]
        if node.op in ENTERS:
            return self._value(node.data_inputs[0], frame)
        if node.op in SWITCHES:
            merge = node_behind(self._graph, node.data_inputs[0])
            return self._value(Ref(merge.name), frame) if merge.op in MERGES else None
        if node.op in MERGES:
            begin, again = self._variable(node)
            if begin is None or again is None:
                return None
            switch = node_behind(self._graph, again.data_inputs[0])
            is_same = switch.op in SWITCHES and switch.data_inputs[0].node == node.name
            return self._value(Ref(begin.name), frame) if is_same else None
        value = self._values.value(source)
        if value is None or value.size != 1 or value.dtype.kind not in "iuf":
            return None
        return float(value.reshape(-1)[0])

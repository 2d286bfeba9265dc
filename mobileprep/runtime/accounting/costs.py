"""Costs of graphs: operations, memory, and one sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, MobileprepError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import NEXT_ITERATIONS
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Sizes, count_flops
from mobileprep.ops.shape_function import is_full
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.interpreter import in_line, runs_functions
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.selection import needed_nodes

# Ops whose output is their first input, with another name or shape.
VIEWS: Final = frozenset(
    {
        "Bitcast",
        "CheckNumerics",
        "CheckNumericsV2",
        "EnsureShape",
        "Enter",
        "Exit",
        "ExpandDims",
        "Identity",
        "LoopCond",
        "Merge",
        "NextIteration",
        "PlaceholderWithDefault",
        "PreventGradient",
        "Print",
        "QuantizedReshape",
        "RefIdentity",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
        "Switch",
    }
)


class TensorLayout(Struct, frozen=True):
    """A tensor's shape, and the size of one element in bytes (0 for strings and handles)."""

    shape: TensorShape
    itemsize: int

    @classmethod
    def of(cls, array: Array) -> TensorLayout:
        """Create the layout of an array."""
        return cls(array.shape, 0 if array.dtype == object else array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, 0 if unknown."""
        if self.shape is None or min(self.shape, default=0) < 0:
            return 0
        return math.prod(self.shape) * self.itemsize


class Executed(Struct, frozen=True):
    """One execution of a node, and the layouts of its outputs."""

    node: Node
    outputs: tuple[TensorLayout, ...]

    @property
    def is_known(self) -> bool:
        """Whether all sizes of the outputs are known."""
        return all(is_full(output.shape) for output in self.outputs)


@dataclass(slots=True)
class Recorder:
    """An interpreter observer that records every execution of a single node."""

    ran: list[Executed] = field(default_factory=list)

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if len(nodes) == 1:
            self.ran.append(Executed(nodes[0], tuple(map(TensorLayout.of, outputs))))


@dataclass(slots=True)
class _Buffer:
    """The memory of one tensor and its views: bytes, and the first and last step that use it."""

    nbytes: int
    first: int
    last: int


def peak_bytes(
    ran: Sequence[Executed], feeds: Mapping[Edge, TensorLayout], fetches: Sequence[Edge]
) -> int:
    """Return the peak memory of fed and computed tensors in bytes; constants do not count.

    A tensor is live from the step that computes it to the last step that reads it. Fed tensors are
    live from the start, and fetched ones until the end. Views do not take memory.
    """
    buffers = [_Buffer(s.nbytes, 0, 0) for s in feeds.values()]
    current = dict(zip(feeds, buffers, strict=True))
    for step, executed in enumerate(ran):
        node = executed.node
        sources = [current.get(edge(r)) for r in node.data_inputs]
        for source in sources:
            if source is not None:
                source.last = step
        viewed = sources[0] if node.op in VIEWS and sources else None
        for index, spec in enumerate(executed.outputs):
            # A view of a constant is a constant.
            size = 0 if node.op in VIEWS and sources else spec.nbytes
            buffer = viewed if viewed is not None else _Buffer(size, step, step)
            if buffer is not viewed:
                buffers.append(buffer)
            current[(node.name, index)] = buffer
    for tensor in fetches:
        if tensor in current:
            current[tensor].last = len(ran)
    return _most(buffers, len(ran) + 1)


def _most(buffers: Sequence[_Buffer], steps: int) -> int:
    """Return the highest sum of buffers that are live in the same step."""
    change = [0] * (steps + 1)
    for buffer in buffers:
        change[buffer.first] += buffer.nbytes
        change[buffer.last + 1] -= buffer.nbytes
    most = total = 0
    for difference in change:
        total += difference
        most = max(most, total)
    return most


_UNKNOWN = TensorLayout(None, 0)

# Ops that read no element of their first input, or only the elements that they return.
_PARTIAL: Final = frozenset(
    {"Gather", "GatherNd", "GatherV2", "Rank", "Shape", "ShapeN", "Size", "Slice", "StridedSlice"}
)


class NodeCost(Struct, frozen=True):
    """The cost of a node over all its executions.

    Args:
        name, op: of the node.
        flops: operations; None if the op or its shapes do not determine them.
        read, written: bytes of its inputs, including constants, and of its outputs.
        calls: number of executions.
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
        """Add the costs of another execution."""
        is_known = self.flops is not None and other.flops is not None
        return replace(
            self,
            flops=(self.flops or 0) + (other.flops or 0) if is_known else None,
            read=self.read + other.read,
            written=self.written + other.written,
            calls=self.calls + other.calls,
        )


class GraphCosts(Struct, frozen=True):
    """The cost of computing some tensors.

    Args:
        nodes: each executed node except constants, in order of first execution.
        parameters: number of elements in the constants that are read.
        parameter_bytes: their size in bytes.
        peak_bytes: peak memory of live tensors except constants, if each is freed after its last
            use and none is overwritten in place.
        unknown: nodes whose outputs have unknown sizes, which the other numbers omit.
    """

    nodes: tuple[NodeCost, ...]
    parameters: int
    parameter_bytes: int
    peak_bytes: int
    unknown: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Operations of all nodes with a known operation count."""
        return sum(n.flops or 0 for n in self.nodes)

    @property
    def moved(self) -> int:
        """Bytes read and written by all nodes."""
        return sum(n.moved for n in self.nodes)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """The ops of nodes with an unknown operation count, sorted."""
        return tuple(sorted({n.op for n in self.nodes if n.flops is None}))

    @property
    def flops_by_op(self) -> dict[str, int]:
        """Operations of each op with a nonzero count, highest first."""
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
    """Compute the costs from inferred shapes, with each node executed once.

    Args:
        feeds: shapes of the fed tensors, by name.
        assumed: shapes of other tensors, used if inference does not find them.
    """
    ran, layouts = inferred_run(graph, fetches, feeds, where, assumed)
    refs = [known_ref(graph, name, "fetch", where) for name in fetches]
    return executed_costs(graph, ran, layouts, [edge(r) for r in refs])


def inferred_run(
    graph: Graph,
    fetches: Iterable[str],
    feeds: Mapping[str, TensorShape],
    where: str = "graph",
    assumed: Mapping[str, TensorShape] | None = None,
) -> tuple[list[Executed], dict[Edge, TensorLayout]]:
    """Return the nodes that a run executes, except constants, and the layouts of its feeds.

    See ``inferred_costs``.
    """
    refs = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = [edge(known_ref(graph, name, "feed", where)) for name in feeds]
    shapes = infer_shapes(graph, {**(assumed or {}), **feeds})
    ran = [
        Executed(n, _specs(n, graph, shapes.get(n.name, ())))
        for n in needed_nodes(graph, refs, set(fed), where)
        if n.op != "Const"
    ]
    specs = {name: _specs(graph[name], graph, shapes.get(name, ())) for name, _ in fed}
    return ran, {(n, i): specs[n][i] if i < len(specs[n]) else _UNKNOWN for n, i in fed}


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
    feeds: Mapping[Edge, TensorLayout],
    fetches: Sequence[Edge],
) -> GraphCosts:
    """Compute the costs of the executed nodes."""
    replay = _Replay(graph, dict(feeds))
    costs: dict[str, NodeCost] = {}
    for executed in ran:
        cost = replay.cost(executed)
        seen = costs.get(cost.name)
        costs[cost.name] = cost if seen is None else seen.and_again(cost)
    tensors = [graph[name].attr_tensor("value") for name in sorted(replay.constants)]
    return GraphCosts(
        tuple(costs.values()),
        sum(t.size for t in tensors),
        sum(t.nbytes for t in tensors),
        peak_bytes(ran, feeds, fetches),
        tuple(dict.fromkeys(e.node.name for e in ran if not e.is_known)),
    )


class _Replay:
    """The known tensor layouts during a replay of executions."""

    def __init__(self, graph: Graph, specs: dict[Edge, TensorLayout]) -> None:
        self._graph = graph
        self._specs = specs
        self.constants: set[str] = set()

    def cost(self, executed: Executed) -> NodeCost:
        """Return the cost of one execution and record its outputs."""
        node = executed.node
        inputs = [self._spec(r) for r in node.data_inputs]
        self._specs.update(((node.name, i), s) for i, s in enumerate(executed.outputs))
        sizes = Sizes(node, [s.shape for s in inputs], [s.shape for s in executed.outputs])
        read, written = _moved(node, inputs, executed.outputs)
        return NodeCost(node.name, node.op, count_flops(sizes), read, written)

    def _spec(self, ref: Ref) -> TensorLayout:
        """Return the last layout of a tensor; follow views that were not executed as such."""
        for _ in range(len(self._graph)):
            layout = self._specs.get(edge(ref))
            node = self._graph.get(ref.node)
            if layout is not None or node is None:
                return layout or _UNKNOWN
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
    """Return the bytes read and written by one execution."""
    if node.op in VIEWS:
        return 0, 0
    written = sum(s.nbytes for s in outputs)
    if node.op in _PARTIAL:
        first = min(written, inputs[0].nbytes if inputs else 0)
        return first + sum(s.nbytes for s in inputs[1:]), written
    return sum(s.nbytes for s in inputs), written


_MOST_ELEMENTS: Final = 1 << 28
"""The limit for an input that is fed only to determine shapes."""


def sample_costs(graph: Graph, inputs: Sequence[FedTensor], fetches: Sequence[str]) -> GraphCosts:
    """Return the cost of one run with one sample, or with the fixed batch size of the graph.

    A graph with loops or functions is run on zeros. If that fails and all sizes are known, loops
    count once, and functions are listed in ``uncounted``.
    """
    shapes = {fed.name: _one_sample(fed) for fed in inputs}
    costs = inferred_costs(graph, fetches, shapes)
    if not costs.unknown and not _runs_others(graph, costs):
        return costs
    try:
        feeds = {fed.name: _zeros(fed, shapes[fed.name]) for fed in inputs}
        return run_costs(graph, feeds, fetches)
    except MobileprepError as error:
        if not costs.unknown:
            return costs
        names = ", ".join(repr(name) for name in costs.unknown[:3])
        message = f"the sizes of {len(costs.unknown)} tensors are not known, such as of {names}"
        first = inputs[0].name if inputs else "INPUT"
        hint = (
            f"declare the whole shape of the inputs, such as 'inputs: {{{first}: {{shape: "
            f"[1, 224, 224, 3]}}}}'; a run on zeros does not determine them: {error.message}"
        )
        raise UsageError(message, hint) from error


def run_costs(
    graph: Graph,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    where: str = "graph",
    *,
    seed: int | None = None,
) -> GraphCosts:
    """Compute the costs from the shapes of an interpreter run."""
    recorder = Recorder()
    NumpyEngine(graph, where, combine=False, observer=recorder, seed=seed).run(fetches, feeds)
    feed_layouts = {parse_ref(n): TensorLayout.of(a) for n, a in feeds.items()}
    refs = [parse_ref(n) for n in fetches]
    # The run used the inlined graph, and so did its constants.
    ran_graph = in_line(graph, refs, list(feed_layouts), where)
    layouts = {edge(r): layout for r, layout in feed_layouts.items()}
    return executed_costs(ran_graph, recorder.ran, layouts, [edge(r) for r in refs])


def _runs_others(graph: Graph, costs: GraphCosts) -> bool:
    """Return whether an executed node runs others, in functions or loops."""
    ran = (graph[cost.name] for cost in costs.nodes)
    return any(n.op in NEXT_ITERATIONS or runs_functions(n, graph) for n in ran)


def _one_sample(fed: FedTensor) -> tuple[int, ...]:
    """Return the shape of an input with one sample."""
    shape = fed.shape
    if shape is not None and shape[:1] == (-1,):
        shape = (1, *shape[1:])
    if shape is None or min(shape, default=0) < 0:
        missing = "a shape" if fed.shape is None else f"all sizes of {list(fed.shape)}"
        message = f"what one sample costs is not known without {missing} of the input {fed.name!r}"
        hint = f"declare it: 'inputs: {{{fed.name}: {{shape: [1, 224, 224, 3]}}}}'"
        raise UsageError(message, hint)
    return shape


def _zeros(fed: FedTensor, shape: tuple[int, ...]) -> Array:
    if math.prod(shape) > _MOST_ELEMENTS:
        message = f"the input {fed.name!r} of shape {list(shape)} is too large to run"
        raise UsageError(message, "give it the size of one sample")
    if fed.dtype is DType.STRING:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, fed.dtype.base.numpy)

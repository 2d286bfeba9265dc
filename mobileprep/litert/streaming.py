"""Turn a network over whole sequences into one that runs a few time steps and returns its states.

Each loop over the time steps starts from states that are inputs, and their values after the last
step are outputs. All other nodes between the inputs and the outputs have to compute each time step
on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.streaming import State, Streaming
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import source_behind
from mobileprep.graph.graph import Function, Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.graph.verify import execution_order
from mobileprep.litert.fused_cells import LSTM, RNN
from mobileprep.litert.prepare import CutInput, Prepared, prepared_step
from mobileprep.litert.recurrent_loops import LAST_ROW, LAST_STATE, LOOPS, ROWS, Loop, Sizes
from mobileprep.litert.refusals import MALFORMED, CannotExpressError, Refusal, malformed, refused
from mobileprep.litert.streamed_loops import shorten_loop
from mobileprep.litert.time_axes import Along, Last, Mark, Steps
from mobileprep.litert.time_steps import shorten
from mobileprep.ops.constant_evaluation import evaluate_node
from mobileprep.ops.shape_inference import infer_shapes, shape_of

# Two numbers of time steps in place of an open one. What depends on the number differs.
LENGTHS: Final = (127, 131)
_GIVE_BATCH: Final = (
    "give the input a shape in which only the number of time steps is open, such as [1, -1, 40]"
)


class Streamed(Struct, frozen=True):
    """A network that runs some time steps.

    Args:
        source: the network, whose last inputs and outputs are the states.
        inputs: the names of its inputs.
        outputs: the names of its outputs.
        streaming: its time steps and states.
    """

    source: Prepared
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    streaming: Streaming


def with_length(graph: Graph, inputs: Sequence[CutInput], length: int) -> list[CutInput]:
    """Return the inputs with a number of time steps in place of their open size.

    Raises:
        UsageError: an input has several open sizes.
    """
    closed = []
    for spec in inputs:
        node = graph[spec.name.removesuffix(":0")] if spec.shape is None else None
        shape = spec.shape
        if node is not None and node.op in (*PLACEHOLDERS, "PlaceholderWithDefault"):
            shape = node.attr_shape("shape")
        if shape is not None and shape.count(-1) > 1:
            message = f"streaming needs the batch size of {spec.name!r}, which has {list(shape)}"
            raise UsageError(message, _GIVE_BATCH)
        sizes = None if shape is None else tuple(length if s < 0 else s for s in shape)
        closed.append(replace(spec, shape=sizes))
    return closed


def streamed(
    sources: Sequence[Prepared],
    inputs: Sequence[str],
    outputs: Sequence[str],
    count: int,
    where: str = "",
    *,
    inline: bool = True,
) -> Streamed:
    """Return the network for a number of time steps at a time.

    Args:
        sources: the network for each of ``LENGTHS``, or only once if no input has an open size.
        inputs: the names of its inputs.
        outputs: the names of its outputs.
        count: the number of time steps of each call.
        where: the location of the graph, for messages.
        inline: whether loops for a single time step are not loops any more; their tensors have no
            measured ranges.

    Raises:
        InexpressibleError: a node may combine time steps, or depends on their number.
    """
    results = [_streamed(source, inputs, outputs, count, where, inline) for source in sources]
    first = results[0]
    for other in results[1:]:
        _check_same(first.source.graph, other.source.graph, where)
    return first


def _streamed(
    source: Prepared,
    inputs: Sequence[str],
    outputs: Sequence[str],
    count: int,
    where: str,
    inline: bool,
) -> Streamed:
    refusals: list[Refusal] = []
    for time, axes in _candidates(source):
        work = _Work(source, time, axes, count, inline)
        try:
            result = work.streamed(inputs, outputs)
        except _RefusedNodeError as error:
            refusals.append(error.refusal)
            continue
        if result.streaming.states:
            return result
    if refusals:
        raise refused(refusals[:1], where)
    message = "streaming needs a network with a loop over the time steps of an input"
    raise UsageError(message, f"leave out 'streaming'; or {_GIVE_BATCH}", where)


def _candidates(source: Prepared) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield numbers of time steps, and an axis of this size for inputs of the network."""
    graph, shapes = source.graph, infer_shapes(source.graph)
    times: list[int] = []
    sizes = [shape_of(shapes, Ref(name)) or () for name in source.inputs]
    for node in graph:
        if node.op in (LSTM, RNN):
            shape = shape_of(shapes, node.data_inputs[0])
            times += [] if shape is None else shape[:1]
        elif node.op in LOOPS:
            times += Loop(graph, node, Sizes(graph), prepared_step(source)).steps()
    if times or any(node.op in LOOPS for node in graph):
        # A loop may not run for all time steps, or a node before it may change them: an error.
        times += [shape[1] for shape in sizes if len(shape) > 1]
    for time in dict.fromkeys(times):
        choices = [[i for i in (1, 0, *range(2, len(s))) if s[i : i + 1] == (time,)] for s in sizes]
        for chosen in product(*([*axes, None] for axes in choices)):
            axes = {n: i for n, i in zip(source.inputs, chosen, strict=True) if i is not None}
            if axes and all(
                size not in LENGTHS or i == axes.get(name)
                for name, shape in zip(source.inputs, sizes, strict=True)
                for i, size in enumerate(shape)
            ):
                yield time, axes


class _RefusedNodeError(Exception):
    """A node that prevents streaming."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


class _Work:
    """The conversion of a network for given axes of its inputs."""

    def __init__(
        self, source: Prepared, time: int, axes: Mapping[str, int], count: int, inline: bool
    ) -> None:
        self._source = source
        self._inline = inline
        self._axes = axes
        graph = source.graph
        names = FreshNames([*graph.by_name, *graph.library.functions])
        self._shapes = infer_shapes(graph)
        self._steps = Steps(graph, self._shapes, time, count, names)
        self._functions: dict[str, Function] = {}
        self._states: list[tuple[State, Ref]] = []
        self._late: list[Node] = []

    def streamed(self, inputs: Sequence[str], outputs: Sequence[str]) -> Streamed:
        """Return the network."""
        steps, source = self._steps, self._source
        for node in execution_order(source.graph, ""):
            try:
                self._node(node)
            except CannotExpressError as error:
                raise _refused(node, error) from error
            except MALFORMED as error:
                raise malformed(node, error) from error
        marks = {name: self._output(ref) for name, ref in zip(outputs, source.outputs, strict=True)}
        streaming = Streaming(
            steps.count,
            {
                name: self._axes[fed]
                for name, fed in zip(inputs, source.inputs, strict=True)
                if fed in self._axes
            },
            {name: mark.axis for name, mark in marks.items() if isinstance(mark, Along)},
            tuple(state for state, _ in self._states),
        )
        own = [state.input for state, _ in self._states]
        library = source.graph.library
        functions = {**library.functions, **self._functions}
        fed = (*source.inputs, *own)
        ends = tuple(map(steps.final, (*source.outputs, *(ref for _, ref in self._states))))
        late = [n.with_inputs(tuple(map(steps.final, n.inputs))) for n in self._late]
        whole = source.graph.with_nodes([*steps.nodes, *late])
        needed = {*fed, *reachable(whole, [ref.node for ref in ends])}
        nodes = [node for node in whole if node.name in needed]
        graph = Graph(nodes, replace(library, functions=functions), source.graph.versions)
        return Streamed(
            replace(source, graph=graph, inputs=fed, outputs=ends),
            (*inputs, *own),
            (*outputs, *(state.output for state, _ in self._states)),
            streaming,
        )

    def _output(self, ref: Ref) -> Mark:
        mark = self._steps.mark(ref)
        node = self._source.graph[ref.node]
        if isinstance(mark, Along) and mark.outer != 1:
            reason = "it joins the axes of the batch and the time steps, and is an output"
            hint = "name the tensor before it as the output"
            raise _refused(node, CannotExpressError(reason, hint))
        return mark

    def _node(self, node: Node) -> None:
        steps = self._steps
        if node.name in self._axes:
            axis = self._axes[node.name]
            sizes = [*steps.shape(Ref(node.name))]
            sizes[axis] = steps.count
            steps.marks[node.name, 0] = Along(axis)
            steps.add(node.with_attrs(shape=attr.shape(tuple(sizes))))
            return
        marks = [steps.mark(ref) for ref in node.data_inputs]
        if any(isinstance(mark, Along) for mark in marks):
            if any(isinstance(mark, Last) for mark in marks):
                reason = "it combines the result of the last time step with all time steps"
                raise CannotExpressError(reason, "end the model before this node")
            if node.op in (LSTM, RNN):
                self._sequence(node)
            elif node.op in LOOPS:
                self._loop(node)
            else:
                changed, results = shorten(steps, node)
                steps.add(changed)
                steps.marks.update({(node.name, i): mark for i, mark in enumerate(results)})
            return
        steps.add(node)
        if any(mark is not None for mark in marks):
            steps.last.add(node.name)

    def _sequence(self, node: Node) -> None:
        """Give a fused recurrence its states."""
        steps = self._steps
        x, *rest = node.data_inputs
        if steps.mark(x) != Along(0):
            reason = "its steps are not those of the inputs"
            raise CannotExpressError(reason, _OTHER_STEPS)
        ends = (LAST_ROW, LAST_STATE) if node.op == LSTM else (LAST_ROW,)
        states = [
            self.state(node, first, Ref(node.name, end))
            for first, end in zip(rest, ends, strict=False)
        ]
        steps.add(node.with_inputs((x, *states, *rest[len(ends) :])))
        steps.last.add(node.name)
        steps.marks[node.name, ROWS] = Along(0)

    def _loop(self, node: Node) -> None:
        """Give a loop over the time steps its states, and run it for fewer steps."""
        graph = self._source.graph
        loop = Loop(graph, node, Sizes(graph), prepared_step(self._source))
        functions = shorten_loop(self._steps, node, loop, self.state, inline=self._inline)
        self._functions.update(functions)

    def state(self, node: Node, first: Ref, end: Ref) -> Ref:
        """Add a state, and return its value before the first step.

        Args:
            node: the node that uses the state.
            first: its value at the start of a sequence.
            end: its value after the last step.
        """
        steps = self._steps
        if steps.mark(first) is not None:
            reason = "its first state is computed from the sequence"
            raise CannotExpressError(reason, "split the model into an encoder and a decoder")
        value = _constant_value(self._source.graph, first)
        if value is None:
            reason = f"its first state, {first!s}, is not constant"
            raise CannotExpressError(reason, "leave the state out of the inputs")
        kind = value.dtype
        number = len(self._states)
        given, returned = (steps.names.name(f"state_{number}{s}") for s in ("", "_next"))
        state = State(given, returned, kind.short, value.shape)
        attrs = {"dtype": attr.dtype(kind), "shape": attr.shape(value.shape)}
        steps.add(Node(state.input, "Placeholder", (), "", attrs))
        if not np.any(value.array()):
            self._states.append((state, end))
            return Ref(state.input)
        # Apps start with zeros, so the states between calls are differences to the first one.
        if kind is not DType.FLOAT:
            reason = "its first state is not zero"
            raise CannotExpressError(reason, "start from zeros")
        before = steps.names.name(f"{node.name}/state_{number}")
        kinds = {"T": attr.dtype(kind)}
        steps.add(Node(before, "AddV2", (Ref(state.input), first), node.device, kinds))
        after = Node(state.output, "Sub", (end, first), node.device, kinds)
        self._states.append((state, Ref(state.output)))
        self._late.append(after)
        return Ref(before)


def _constant_value(graph: Graph, ref: Ref) -> Tensor | None:
    """Return the value of a tensor that is computed from constants, or None."""
    ref = source_behind(graph, ref)
    node = graph[ref.node]
    if node.op == "Const":
        return node.attr_tensor("value")
    inputs = [_constant_value(graph, r) for r in node.data_inputs]
    known = [value for value in inputs if value is not None]
    if not known or len(known) < len(inputs):
        return None
    return evaluate_node(node, known)[ref.index]


_OTHER_STEPS: Final = "run one loop for each time step of the inputs"


def _refused(node: Node, error: CannotExpressError) -> _RefusedNodeError:
    return _RefusedNodeError(Refusal(node.name, node.op, error.reason, error.hint))


def _check_same(one: Graph, other: Graph, where: str) -> None:
    """Raise an error for a node that depends on the number of time steps."""
    for node, twin in zip(one, other, strict=True):
        if node != twin:
            reason = "it depends on the number of all time steps"
            hint = "compute it from single time steps, or leave out 'streaming'"
            raise refused([Refusal(node.name, node.op, reason, hint)], where)

"""Replace loops over recurrent cells with nodes that run whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import FEEDABLE, SUMS
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.litert.fused_cells import LSTM, RNN, Cell, CellMatcher
from mobileprep.litert.refusals import MALFORMED
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

LOOPS: Final = frozenset({"While", "StatelessWhile"})
"""Ops that run a function in a loop."""

# The first size that takes the place of an open one, and the distance to the next, in each trial.
# Sizes that are equal in both trials are equal.
_TRIALS: Final = ((7919, 1013), (9901, 1009))
ROWS, LAST_STATE, LAST_ROW = range(3)
"""Outputs of a sequence node."""
_INT32: Final = attr.dtype(DType.INT32)


class Step(Struct, frozen=True):
    """The nodes of a function, its arguments, and its results.

    Args:
        graph: the nodes; arguments are placeholders.
        inputs: the names of the placeholders, in order.
        outputs: the results, in order.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[Ref, ...]


Prepare = Callable[[str, Sequence[tuple[DType, TensorShape]]], Step]
"""Returns a library function for arguments of the given dtypes and shapes."""


def with_whole_sequences(
    graph: Graph, outputs: Sequence[Ref], prepare: Prepare, *, open_states: bool
) -> tuple[Graph, tuple[Ref, ...]]:
    """Replace the loops of a graph that run an LSTM or RNN cell for each step of a sequence.

    Args:
        graph: the graph.
        outputs: its outputs.
        prepare: returns the functions that its loops run.
        open_states: whether to replace loops whose states have an open size, such as the batch.

    Returns:
        The graph and its outputs.
    """
    if not any(node.op in LOOPS for node in graph):
        return graph, tuple(outputs)
    sizes = Sizes(graph)
    read = {edge(r) for r in outputs} | {edge(r) for n in graph for r in n.data_inputs}
    fresh = FreshNames(graph.by_name)
    same: dict[Edge, Ref] = {}
    instead: dict[str, list[Node]] = {}
    for node in graph:
        if node.op in LOOPS:
            try:
                loop = Loop(graph, node, sizes, prepare)
                sequence = loop.sequence()
            except MALFORMED:
                continue  # Its lowering reports the error.
            if sequence is not None and loop.has_open_state(sequence) and not open_states:
                continue
            used = [i for i in range(len(node.data_inputs)) if (node.name, i) in read]
            if sequence is not None and all(i in sequence.results for i in used):
                work = _Replacement(node, sequence, fresh)
                same.update({(node.name, i): work.result(i) for i in used})
                instead[node.name] = work.nodes
    if not instead:
        return graph, tuple(outputs)

    def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(r if r.is_control else same.get(edge(r), r) for r in refs)

    nodes = [n for node in graph for n in instead.get(node.name, [node])]
    whole = graph.with_nodes(n.with_inputs(moved(n.inputs)) for n in nodes)
    return whole.with_nodes(_with_plain_rows(whole, n) for n in whole), moved(outputs)


def _with_plain_rows(graph: Graph, node: Node) -> Node:
    """Return an Identity instead of a node that selects the only row of a widened tensor."""
    if node.op != "StridedSlice" or node.attr_int("shrink_axis_mask", 0) != 1:
        return node
    wide = graph[node.data_inputs[0].node]
    begin = constant_behind(graph, node.data_inputs[1])
    is_wide = wide.op == "ExpandDims" and graph[wide.data_inputs[0].node].op in (LSTM, RNN)
    if not is_wide or begin is None or begin.array().tolist() not in ([0], [-1]):
        return node
    return Node(
        node.name, "Identity", wide.data_inputs[:1], node.device, {"T": attr.dtype(DType.FLOAT)}
    )


class _Placed(Struct, frozen=True, eq=False):
    """A cell of a loop, and the node that replaces it.

    Args:
        op: op of the node.
        cell: the weights.
        sequence: the loop variable that the cell reads; None if it reads another cell.
        before: index of the cell whose output it reads.
        states: the loop variables of its output and of its state, if it has one.
    """

    op: str
    cell: Cell
    sequence: int | None
    before: int
    states: tuple[int, ...]


class _Result(Struct, frozen=True):
    """An output of a loop: an output of a node that replaces a cell, or another tensor.

    Args:
        cell: index of the cell.
        index: the output of the node.
        is_wide: whether it has a first axis of size 1.
        ref: the other tensor.
    """

    cell: int
    index: int
    is_wide: bool = False
    ref: Ref | None = None


class _Sequence(Struct, frozen=True, eq=False):
    """A recognized loop.

    Args:
        cells: its cells, each after those whose outputs it reads.
        entered: the initial values of the loop variables.
        results: the outputs of the loop that the cells compute.
    """

    cells: tuple[_Placed, ...]
    entered: tuple[Ref, ...]
    results: Mapping[int, _Result]


class Sizes:
    """Sizes and integers of a graph, for two different choices of its open sizes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def shapes(self) -> Mapping[str, Shapes]:
        """The shapes of all tensors."""
        return infer_shapes(self._graph)

    @cached_property
    def _trials(self) -> list[tuple[Mapping[str, Shapes], StaticValues]]:
        trials = []
        for first, distance in _TRIALS:
            rest = count(first, distance)
            feeds = {}
            for node in self._graph:
                shape = node.attr_shape("shape") if node.op in FEEDABLE else None
                if shape is not None and -1 in shape:
                    feeds[node.name] = tuple(next(rest) if s < 0 else s for s in shape)
            shapes = infer_shapes(self._graph, feeds)
            trials.append((shapes, StaticValues(self._graph.by_name, partial(shape_of, shapes))))
        return trials

    def of(self, ref: Ref, axis: int = 0) -> tuple[int, ...]:
        """Return a size of a tensor in each trial; empty if it is unknown."""
        shapes = [shape_of(shapes, ref) for shapes, _ in self._trials]
        known = tuple(shape[axis] for shape in shapes if shape and len(shape) > axis)
        return known if len(known) == len(_TRIALS) and min(known) >= 0 else ()

    def number(self, ref: Ref) -> tuple[int, ...]:
        """Return the integer that a tensor contains in each trial; empty if it is unknown."""
        values = [values.value(ref) for _, values in self._trials]
        known = tuple(int(v.reshape(())) for v in values if v is not None and v.size == 1)
        return known if len(known) == len(_TRIALS) else ()


class Loop:
    """A loop node, and the functions that it runs.

    Args:
        graph: the graph with the loop.
        node: the loop.
        sizes: the sizes of the graph.
        prepare: returns its functions.
    """

    def __init__(self, graph: Graph, node: Node, sizes: Sizes, prepare: Prepare) -> None:
        self._graph = graph
        self.entered = node.data_inputs
        self._sizes = sizes
        kinds = node.attr_dtypes("T")
        shapes = [shape_of(sizes.shapes, ref) for ref in self.entered]
        arguments = list(zip(kinds, shapes, strict=True))
        self._test = prepare(node.attr_func("cond").name, arguments)
        self.body = prepare(node.attr_func("body").name, arguments)
        self._shapes = dict(zip(self.body.inputs, shapes, strict=True))
        self.args = [Ref(name) for name in self.body.inputs]
        self.ends = [source_behind(self.body.graph, r) for r in self.body.outputs]

    def sequence(self) -> _Sequence | None:
        """Return the cells that the loop computes, or None if it does anything else."""
        steps = self.steps()
        cells = self._cells() if steps else []
        if not cells or not all(self._is_whole(placed, steps) for placed in cells):
            return None
        results: dict[int, _Result] = {}
        outputs: dict[Ref, int] = {}
        for number, placed in enumerate(cells):
            for index, k in zip((LAST_ROW, LAST_STATE), placed.states, strict=False):
                results[k] = _Result(number, index)
            outputs[self.ends[placed.states[0]]] = number
        for k, (arg, end) in enumerate(zip(self.args, self.ends, strict=True)):
            written = self.written(k)
            if arg == end:
                results[k] = _Result(-1, -1, ref=self.entered[k])
            elif written is not None and written[1] in outputs:
                is_last = written[0] is None
                if self._sizes.of(self.entered[k]) == ((1,) * len(steps) if is_last else steps):
                    index = LAST_ROW if is_last else ROWS
                    results[k] = _Result(outputs[written[1]], index, is_wide=is_last)
        return _Sequence(tuple(cells), self.entered, results)

    def _cells(self) -> list[_Placed]:
        """Return the cells of all states, each after those that it reads, or no cells."""
        graph = self.body.graph
        matcher = CellMatcher(graph, infer_shapes(graph, self._shapes))
        waiting = {
            k
            for k, (arg, end) in enumerate(zip(self.args, self.ends, strict=True))
            if arg != end and not self.is_counter(k) and self.written(k) is None
        }
        found: list[_Placed] = []
        while waiting:
            placed = self._next(matcher, sorted(waiting), found)
            if placed is None:
                return []
            found.append(placed)
            waiting.difference_update(placed.states)
        return found

    def _next(
        self, matcher: CellMatcher, waiting: Sequence[int], before: Sequence[_Placed]
    ) -> _Placed | None:
        """Return a cell that reads a sequence or one of the cells before it."""
        outputs = {self.ends[placed.states[0]]: n for n, placed in enumerate(before)}
        for hidden in waiting:
            for state in (None, *waiting):
                if state == hidden:
                    continue
                ends = (self.args[hidden], self.ends[hidden])
                cell = (
                    matcher.rnn(*ends)
                    if state is None
                    else matcher.lstm(self.args[state], self.ends[state], *ends)
                )
                if cell is None:
                    continue
                sequence, other = self.sequence_of(cell.x), outputs.get(cell.x)
                if sequence is not None or other is not None:
                    states = (hidden,) if state is None else (hidden, state)
                    op = RNN if state is None else LSTM
                    return _Placed(op, cell, sequence, -1 if other is None else other, states)
        return None

    def _is_whole(self, placed: _Placed, steps: tuple[int, ...]) -> bool:
        """Return whether a cell reads every row of its sequence, for as many rows as its states."""
        if placed.sequence is None:
            return True
        source = self.entered[placed.sequence]
        batch = self._sizes.of(source, 1)
        states = [self._sizes.of(self.entered[k]) for k in placed.states]
        return self._sizes.of(source) == steps and all(size == batch for size in states)

    def has_open_state(self, sequence: _Sequence) -> bool:
        """Return whether the size of a state is open."""
        entered = [self.entered[k] for placed in sequence.cells for k in placed.states]
        shapes = [shape_of(self._sizes.shapes, ref) for ref in entered]
        return any(shape is None or -1 in shape for shape in shapes)

    def steps(self) -> tuple[int, ...]:
        """Return the number of turns in each trial; empty if it is unknown or differs."""
        graph, waiting = self._test.graph, [self._test.outputs[0]]
        limits: set[tuple[int, ...]] = set()
        while waiting:
            node = graph[source_behind(graph, waiting.pop()).node]
            if node.op == "LogicalAnd":
                waiting += node.data_inputs
                continue
            counter = self.argument(self._test, node.data_inputs[0]) if node.op == "Less" else None
            if counter is None or not self.is_counter(counter):
                return ()
            limits.add(self._limit(node.data_inputs[1]))
        return limits.pop() if len(limits) == 1 else ()

    def _limit(self, ref: Ref) -> tuple[int, ...]:
        value = constant_behind(self._test.graph, ref)
        if value is not None and value.size == 1:
            return (int(value.array().reshape(())),) * len(_TRIALS)
        k = self.argument(self._test, ref)
        is_fixed = k is not None and self.args[k] == self.ends[k]
        return self._sizes.number(self.entered[k]) if k is not None and is_fixed else ()

    def argument(self, step: Step, ref: Ref) -> int | None:
        name = source_behind(step.graph, ref).node
        return step.inputs.index(name) if name in step.inputs else None

    def is_counter(self, k: int) -> bool:
        """Return whether a loop variable starts at 0 and grows by 1."""
        graph = self.body.graph
        node = graph[self.ends[k].node]
        if node.op not in SUMS or self._sizes.number(self.entered[k]) != (0,) * len(_TRIALS):
            return False
        for one, other in (node.data_inputs, node.data_inputs[::-1]):
            step = constant_behind(graph, other)
            if source_behind(graph, one) == self.args[k] and step is not None and step.size == 1:
                return int(step.array().reshape(())) == 1
        return False

    def written(self, k: int) -> tuple[int | None, Ref] | None:
        """Return the counter and the row that a turn writes into a loop variable.

        The counter is None if each turn writes the only row.
        """
        graph = self.body.graph
        node = graph[self.ends[k].node]
        if node.op != "TensorScatterUpdate":
            return None
        target, place, rows = (source_behind(graph, r) for r in node.data_inputs)
        wide = graph[rows.node]
        if target != self.args[k] or wide.op != "ExpandDims" or not self._is_zero(wide):
            return None
        row = source_behind(graph, wide.data_inputs[0])
        fixed = constant_behind(graph, place)
        if fixed is not None:
            return (None, row) if fixed.array().tolist() == [[0]] else None
        index = graph[place.node]
        counter = self.argument(self.body, index.data_inputs[0]) if index.op == "Reshape" else None
        return (counter, row) if counter is not None and self.is_counter(counter) else None

    def _is_zero(self, node: Node) -> bool:
        """Return whether the last input of a node is the constant 0."""
        value = constant_behind(self.body.graph, node.data_inputs[-1])
        return value is not None and not value.array().any()

    def sequence_of(self, x: Ref) -> int | None:
        """Return the loop variable whose row of each turn is a tensor."""
        graph = self.body.graph
        node = graph[x.node]
        if node.op != "GatherV2" or not self._is_zero(node) or node.attr_int("batch_dims", 0):
            return None
        source, counter = (self.argument(self.body, r) for r in node.data_inputs[:2])
        if source is None or counter is None or not self.is_counter(counter):
            return None
        return source if self.args[source] == self.ends[source] else None


class SequenceNodes:
    """New nodes that run whole sequences.

    Args:
        node: the node that they replace.
        names: generator of new names.
    """

    def __init__(self, node: Node, names: FreshNames) -> None:
        self._node = node
        self._names = names
        self.nodes: list[Node] = []

    def lstm(self, cell: Cell, inputs: tuple[Ref, ...]) -> str:
        """Add an LSTM over ``[time, batch, features]``, an output, and a state."""
        weights = {
            **_weights(cell),
            "peepholes": cell.peepholes,
            "projection": cell.projection,
            "projection_bias": cell.projection_bias,
        }
        clips = {
            "cell_clip": attr.floating(cell.cell_clip),
            "projection_clip": attr.floating(cell.projection_clip),
        }
        return self._weighed(LSTM, cell, weights, inputs, **clips)

    def rnn(self, cell: Cell, inputs: tuple[Ref, ...]) -> str:
        """Add an RNN over ``[time, batch, features]`` and an output."""
        return self._weighed(RNN, cell, _weights(cell), inputs)

    def constant(self, what: str, value: Array | np.generic) -> Ref:
        """Add a constant."""
        name = self._names.name(f"{self._node.name}/{what}")
        self.nodes.append(constant(name, Tensor.of(np.asarray(value))))
        return Ref(name)

    def add(self, what: str, op: str, inputs: tuple[Ref, ...], **attrs: attr.AttrValue) -> Ref:
        """Add a node."""
        name = self._names.name(f"{self._node.name}/{what}")
        self.nodes.append(Node(name, op, inputs, self._node.device, attrs))
        return Ref(name)

    def _weighed(
        self,
        op: str,
        cell: Cell,
        weights: Mapping[str, Array],
        inputs: tuple[Ref, ...],
        **options: attr.AttrValue,
    ) -> str:
        constants = [self.constant(name, values) for name, values in weights.items()]
        activation = attr.string(cell.activation)
        refs = (*inputs, *constants)
        return self.add("sequence", op, refs, activation=activation, **options).node


def _weights(cell: Cell) -> dict[str, Array]:
    return {"kernel": cell.kernel, "recurrent": cell.recurrent, "bias": cell.bias}


class _Replacement:
    """The nodes that replace a loop."""

    def __init__(self, loop: Node, sequence: _Sequence, names: FreshNames) -> None:
        self._work = SequenceNodes(loop, names)
        self._sequence = sequence
        self._cells: dict[int, str] = {}

    @property
    def nodes(self) -> list[Node]:
        return self._work.nodes

    def result(self, index: int) -> Ref:
        """Return the tensor that replaces an output of the loop."""
        result = self._sequence.results[index]
        if result.ref is not None:
            return result.ref
        ref = Ref(self._cell(result.cell), result.index)
        if not result.is_wide:
            return ref
        inputs = (ref, self._work.constant("axis", np.int32(0)))
        kinds = {"T": attr.dtype(DType.FLOAT), "Tdim": _INT32}
        return self._work.add("wide", "ExpandDims", inputs, **kinds)

    def _cell(self, number: int) -> str:
        """Return the name of the node that replaces a cell."""
        if number not in self._cells:
            placed = self._sequence.cells[number]
            entered = self._sequence.entered
            if placed.sequence is None:
                rows = Ref(self._cell(placed.before), ROWS)
            else:
                rows = entered[placed.sequence]
            add = self._work.lstm if placed.op == LSTM else self._work.rnn
            inputs = (rows, *(entered[k] for k in placed.states))
            self._cells[number] = add(placed.cell, inputs)
        return self._cells[number]

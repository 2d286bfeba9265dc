"""Recognize loops that run recurrent cells over sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import constant_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FEEDABLE, SUMS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.tensor import Array
from mobileprep.litert.affine import PARTS, Affine, AffineForms
from mobileprep.litert.fused_cells import LSTM, RNN, Cell, CellMatcher
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

LOOPS: Final = frozenset({"While", "StatelessWhile"})
"""Ops that run a function in a loop."""

# The first size that takes the place of an open one, and the distance to the next, in each trial.
# Sizes that are equal in both trials are equal.
_TRIALS: Final = ((7919, 1013), (9901, 1009))
# The input of an op whose elements its output repeats.
_FILLED_FROM: Final = {"Fill": 1, "BroadcastTo": 0}
ROWS, LAST_STATE, LAST_ROW = range(3)
"""Outputs of a sequence node."""
_FLOAT: Final = attr.dtype(DType.FLOAT)


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


class Mask(Struct, frozen=True, eq=False):
    """The steps in which the cells of a loop run; in others, they keep their state.

    Args:
        source: a tensor outside of the loop; None for a constant.
        values: the constant.
        is_length: whether it contains the length of each sequence, ``[batch]``, and not a boolean
            for each step, ``[time, batch, 1]``.
    """

    source: Ref | None
    values: Array | None
    is_length: bool

    def equals(self, other: Mask) -> bool:
        """Return whether another mask is of the same steps."""
        is_same = self.source == other.source and self.is_length == other.is_length
        if self.values is None or other.values is None:
            return is_same and self.values is other.values
        return is_same and np.array_equal(self.values, other.values)


class Variable(Struct, frozen=True, eq=False):
    """A loop variable, or some columns of one.

    Args:
        index: the loop's input.
        arg: the value before a step.
        end: the value after a step that is not masked.
        mask: the steps; None for all.
        columns: the range of columns; None for all.
    """

    index: int
    arg: Ref
    end: Ref
    mask: Mask | None = None
    columns: tuple[int, int] | None = None


class PlacedCell(Struct, frozen=True, eq=False):
    """A cell of a loop, and the node that replaces it.

    Args:
        op: op of the node.
        cell: the weights.
        sequence: the loop variable that the cell reads; None if it reads another cell.
        before: index of the cell whose output it reads.
        states: its output and its state, if it has one.
    """

    op: str
    cell: Cell
    sequence: int | None
    before: int
    states: tuple[Variable, ...]


class LoopResult(Struct, frozen=True):
    """An output of a loop: an output of a node that replaces a cell, or another tensor.

    Args:
        cell: index of the cell.
        index: the output of the node.
        is_wide: whether it has a first axis of size 1.
        first: the value if no step is unmasked; None if masked rows are 0.
        ref: the other tensor.
        parts: the results that are joined along the columns.
    """

    cell: int = -1
    index: int = -1
    is_wide: bool = False
    first: Variable | None = None
    ref: Ref | None = None
    parts: tuple[LoopResult, ...] = ()


class CellLoop(Struct, frozen=True, eq=False):
    """A recognized loop.

    Args:
        cells: its cells, each after those whose outputs it reads.
        entered: the initial values of the loop variables.
        results: the outputs of the loop that the cells compute.
        mask: the steps in which the cells run; None for all.
    """

    cells: tuple[PlacedCell, ...]
    entered: tuple[Ref, ...]
    results: Mapping[int, LoopResult]
    mask: Mask | None


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

    def cell_loop(self) -> CellLoop | None:
        """Return the cells that the loop computes, or None if it does anything else."""
        limits = self._limits()
        variables = self._variables() if limits else []
        cells = self._cells(variables)
        mask = variables[0].mask if variables else None
        if not cells or not all(_is_equal(mask, v.mask) for v in variables):
            return None
        first = cells[0].sequence
        steps = () if first is None else self._sizes.of(self.entered[first])
        if not steps or not all(self._covers(limit, steps, mask) for limit in limits):
            return None
        sources = [self.entered[placed.sequence] for placed in cells if placed.sequence is not None]
        if mask is not None and mask.source is not None and not mask.is_length:
            sources.append(mask.source)
        batch = self._sizes.of(sources[0], 1)
        if not all(self._is_whole(ref, steps, batch) for ref in sources):
            return None
        states = [self.entered[v.index] for placed in cells for v in placed.states]
        if not all(self._sizes.of(ref) == batch for ref in states):
            return None
        return CellLoop(
            tuple(cells), self.entered, self._results(cells, variables, steps, mask), mask
        )

    def _results(
        self,
        cells: Sequence[PlacedCell],
        variables: Sequence[Variable],
        steps: tuple[int, ...],
        mask: Mask | None,
    ) -> dict[int, LoopResult]:
        """Return the outputs of the loop that nodes for whole sequences can compute."""
        outputs = {placed.states[0].end: n for n, placed in enumerate(cells)}
        states = {} if mask else {p.states[1].end: n for n, p in enumerate(cells) if p.states[1:]}
        parts: dict[int, list[LoopResult | None]] = {}
        for v in variables:
            result = None
            if v.end in outputs:
                result = LoopResult(outputs[v.end], LAST_ROW, first=v)
            elif v.end in states:
                result = LoopResult(states[v.end], LAST_STATE)
            parts.setdefault(v.index, []).append(result)
        results = {}
        for k, own in parts.items():
            known = tuple(result for result in own if result is not None)
            if len(known) == len(own):
                results[k] = known[0] if len(known) == 1 else LoopResult(parts=known)
        for k, (arg, end) in enumerate(zip(self.args, self.ends, strict=True)):
            if arg == end:
                results[k] = LoopResult(ref=self.entered[k])
                continue
            result = self._rows(k, outputs, variables, steps, mask)
            if result is not None:
                results[k] = result
        return results

    def _rows(
        self,
        k: int,
        outputs: Mapping[Ref, int],
        variables: Sequence[Variable],
        steps: tuple[int, ...],
        mask: Mask | None,
    ) -> LoopResult | None:
        """Return the result for a loop variable into which each step writes a row."""
        written = self.written(k)
        if written is None:
            return None
        counter, row = written
        is_last = counter is None
        masked, end, other = self._unmasked(row)
        if end not in outputs or not _is_equal(mask, masked):
            return None
        if self._sizes.of(self.entered[k]) != ((1,) * len(steps) if is_last else steps):
            return None
        holder = next((v for v in variables if v.arg == other and v.end == end), None)
        if mask is not None and mask.is_length:
            # The loop may end before the sequence, and then writes no more rows.
            holder = None
        is_blank = mask is None or holder is not None or (not is_last and self._is_blank(k, other))
        index = LAST_ROW if is_last else ROWS
        return LoopResult(outputs[end], index, is_last, holder) if is_blank else None

    def _is_blank(self, k: int, other: Ref | None) -> bool:
        """Return whether the rows of masked steps, and those that no step writes, are 0."""
        if other is None or not is_zero(self._graph, self.entered[k]):
            return False
        index = self._argument(self.body, other)
        if index is None:
            return is_zero(self.body.graph, other)
        return self._is_fixed(index) and is_zero(self._graph, self.entered[index])

    def _is_fixed(self, k: int) -> bool:
        """Return whether no step changes a loop variable."""
        return self.args[k] == self.ends[k]

    def _variables(self) -> list[Variable]:
        """Return the loop variables that may be states; joined states are split."""
        variables = []
        for k, (arg, end) in enumerate(zip(self.args, self.ends, strict=True)):
            if arg == end or self.is_counter(k) or self.written(k) is not None:
                continue
            mask, unmasked, other = self._unmasked(end)
            if mask is not None and other != arg:
                mask, unmasked = None, end
            variables += self._split(Variable(k, arg, unmasked, mask))
        # The graph may have changed since the first one.
        graph = self.body.graph
        return [replace(v, end=source_behind(graph, v.end)) for v in variables]

    def _split(self, whole: Variable) -> list[Variable]:
        """Return the parts of a variable that is only read by columns, or the variable."""
        graph = self.body.graph
        shapes = infer_shapes(graph, self._shapes)
        parts = list(_joined(graph, whole.end))
        widths = [(shape_of(shapes, part) or (-1,))[-1] for part in parts]
        if len(parts) < 2 or min(widths) < 0:
            return [whole]
        stops = np.cumsum(widths).tolist()
        ranges = list(zip([0, *stops], stops, strict=False))
        fresh = FreshNames(graph.by_name)
        names = [fresh.name(f"{whole.arg.node}/part") for _ in ranges]
        forms = AffineForms(graph, shapes)
        instead: dict[Edge, Ref] = {}
        for node in graph:
            if node.op in PARTS:
                for index in range(len(shapes.get(node.name, ()))):
                    span = _columns_of(forms.of(Ref(node.name, index)), edge(whole.arg))
                    if span in ranges:
                        instead[node.name, index] = Ref(names[ranges.index(span)])

        def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
            return tuple(r if r.is_control else instead.get(edge(r), r) for r in refs)

        batch = (self._shapes[whole.arg.node] or (-1,))[0]
        added = [
            Node(
                name, "Placeholder", (), "", {"dtype": _FLOAT, "shape": attr.shape((batch, width))}
            )
            for name, width in zip(names, widths, strict=True)
        ]
        changed = graph.with_nodes([*added, *(n.with_inputs(moved(n.inputs)) for n in graph)])
        if whole.arg.node in reachable(changed, [r.node for r in self.body.outputs]):
            return [whole]
        self.body = replace(self.body, graph=changed)
        self._shapes.update({n.name: (batch, w) for n, w in zip(added, widths, strict=True)})
        return [
            Variable(whole.index, Ref(name), end, whole.mask, span)
            for name, end, span in zip(names, moved(parts), ranges, strict=True)
        ]

    def _unmasked(self, ref: Ref) -> tuple[Mask | None, Ref, Ref | None]:
        """Return the mask of a selection, and its values with and without the mask."""
        graph = self.body.graph
        node = graph[ref.node]
        if node.op not in ("Select", "SelectV2"):
            return None, ref, None
        test, one, other = (source_behind(graph, r) for r in node.data_inputs)
        mask = self._length_mask(test) if node.op == "Select" else None
        if mask is not None:
            return mask, other, one
        mask = self._row_mask(test)
        return (None, ref, None) if mask is None else (mask, one, other)

    def _length_mask(self, test: Ref) -> Mask | None:
        """Return the mask if a tensor tells which sequences ended before this step."""
        graph = self.body.graph
        node = graph[test.node]
        if node.op != "GreaterEqual" or node.attr_dtype("T") is not DType.INT32:
            return None
        counter, length = (source_behind(graph, r) for r in node.data_inputs)
        k = self._argument(self.body, counter)
        if k is None or not self.is_counter(k):
            return None
        values = constant_behind(graph, length)
        if values is not None:
            return Mask(None, values.array(), is_length=True) if len(values.shape) == 1 else None
        k = self._argument(self.body, length)
        if k is None or not self._is_fixed(k) or len(self._shapes[length.node] or ()) != 1:
            return None
        return Mask(self.entered[k], None, is_length=True)

    def _row_mask(self, test: Ref) -> Mask | None:
        """Return the mask if a tensor is a row ``[batch, 1]`` of a sequence of booleans."""
        graph = self.body.graph
        node = graph[test.node]
        if node.op == "Tile":
            test = source_behind(graph, node.data_inputs[0])
        k = self.sequence_of(test)
        shape = None if k is None else self._shapes[self.body.inputs[k]]
        is_row = shape is not None and len(shape) == 3 and shape[2] == 1
        return Mask(self.entered[k], None, is_length=False) if k is not None and is_row else None

    def _cells(self, variables: Sequence[Variable]) -> list[PlacedCell]:
        """Return the cells of all states, each after those that it reads, or no cells."""
        graph = self.body.graph
        matcher = CellMatcher(graph, infer_shapes(graph, self._shapes))
        waiting = list(variables)
        cells: list[PlacedCell] = []
        while waiting:
            placed = self._next(matcher, waiting, cells)
            if placed is None:
                break
            cells.append(placed)
            waiting = [v for v in waiting if v not in placed.states]
        # Other variables may only hold the last output.
        ends = {placed.states[0].end for placed in cells}
        return cells if all(v.end in ends for v in waiting) else []

    def _next(
        self, matcher: CellMatcher, waiting: Sequence[Variable], before: Sequence[PlacedCell]
    ) -> PlacedCell | None:
        """Return a cell that reads a sequence or one of the cells before it."""
        outputs = {placed.states[0].end: n for n, placed in enumerate(before)}
        for hidden in waiting:
            for state in (None, *waiting):
                if state is hidden:
                    continue
                ends = (hidden.arg, hidden.end)
                cell = (
                    matcher.rnn(*ends)
                    if state is None
                    else matcher.lstm(state.arg, state.end, *ends)
                )
                if cell is None or not cell.recurrent.size:
                    continue
                sequence, other = self.sequence_of(cell.x), outputs.get(cell.x)
                if sequence is not None or other is not None:
                    states = (hidden,) if state is None else (hidden, state)
                    op = RNN if state is None else LSTM
                    return PlacedCell(op, cell, sequence, -1 if other is None else other, states)
        return None

    def _is_whole(self, ref: Ref, steps: tuple[int, ...], batch: tuple[int, ...]) -> bool:
        """Return whether a sequence has a row for each step, and a part for each state."""
        return self._sizes.of(ref) == steps and self._sizes.of(ref, 1) == batch

    def has_open_state(self, loop: CellLoop) -> bool:
        """Return whether the size of a state is open."""
        entered = [self.entered[v.index] for placed in loop.cells for v in placed.states]
        shapes = [shape_of(self._sizes.shapes, ref) for ref in entered]
        return any(shape is None or -1 in shape for shape in shapes)

    def _limits(self) -> list[Ref]:
        """Return the numbers of turns after which the loop ends, or none if it ends otherwise.

        They are tensors of the condition.
        """
        graph, waiting = self._test.graph, [self._test.outputs[0]]
        limits = []
        while waiting:
            node = graph[source_behind(graph, waiting.pop()).node]
            if node.op == "LogicalAnd":
                waiting += node.data_inputs
                continue
            counter = self._argument(self._test, node.data_inputs[0]) if node.op == "Less" else None
            if counter is None or not self.is_counter(counter):
                return []
            limits.append(node.data_inputs[1])
        return limits

    def steps(self) -> tuple[int, ...]:
        """Return the number of turns in each trial; empty if it is unknown or differs."""
        limits = {self._turns(limit) for limit in self._limits()}
        return limits.pop() if len(limits) == 1 else ()

    def _turns(self, limit: Ref) -> tuple[int, ...]:
        value = constant_behind(self._test.graph, limit)
        if value is not None and value.size == 1:
            return (int(value.array().reshape(())),) * len(_TRIALS)
        k = self._argument(self._test, limit)
        return self._sizes.number(self.entered[k]) if k is not None and self._is_fixed(k) else ()

    def _covers(self, limit: Ref, steps: tuple[int, ...], mask: Mask | None) -> bool:
        """Return whether a loop with a limit runs all unmasked steps."""
        turns = self._turns(limit)
        if turns == steps or mask is None or not mask.is_length:
            return turns == steps
        if mask.values is not None:
            return min(turns, default=-1) >= int(mask.values.max(initial=0))
        k = self._argument(self._test, limit)
        is_fixed = k is not None and self._is_fixed(k)
        return k is not None and is_fixed and self._is_longest(self.entered[k], steps, mask)

    def _is_longest(self, ref: Ref, steps: tuple[int, ...], mask: Mask) -> bool:
        """Return whether a tensor is the largest length, if it is less than the number of steps."""
        graph = self._graph
        ref = source_behind(graph, ref)
        node = graph[ref.node]
        if node.op in ("Minimum", "Maximum"):
            results = [self._is_longest(r, steps, mask) for r in node.data_inputs]
            return all(results) if node.op == "Minimum" else any(results)
        if node.op == "Max" and mask.source is not None:
            return source_behind(graph, node.data_inputs[0]) == source_behind(graph, mask.source)
        return self._sizes.number(ref) == steps

    def _argument(self, step: Step, ref: Ref) -> int | None:
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
        if target != self.args[k] or wide.op != "ExpandDims" or not self._has_axis_0(wide):
            return None
        row = source_behind(graph, wide.data_inputs[0])
        fixed = constant_behind(graph, place)
        if fixed is not None:
            return (None, row) if fixed.array().tolist() == [[0]] else None
        index = graph[place.node]
        counter = self._argument(self.body, index.data_inputs[0]) if index.op == "Reshape" else None
        return (counter, row) if counter is not None and self.is_counter(counter) else None

    def _has_axis_0(self, node: Node) -> bool:
        return is_zero(self.body.graph, node.data_inputs[-1])

    def sequence_of(self, x: Ref) -> int | None:
        """Return the loop variable whose row of each turn is a tensor."""
        graph = self.body.graph
        node = graph[x.node]
        if node.op != "GatherV2" or not self._has_axis_0(node) or node.attr_int("batch_dims", 0):
            return None
        source, counter = (self._argument(self.body, r) for r in node.data_inputs[:2])
        if source is None or counter is None or not self.is_counter(counter):
            return None
        return source if self._is_fixed(source) else None


def _is_equal(one: Mask | None, other: Mask | None) -> bool:
    return one is other or (one is not None and other is not None and one.equals(other))


def is_zero(graph: Graph, ref: Ref) -> bool:
    """Return whether all elements of a tensor are 0."""
    ref = source_behind(graph, ref)
    node = graph[ref.node]
    if node.op == "ZerosLike":
        return True
    if node.op in _FILLED_FROM:
        ref = node.data_inputs[_FILLED_FROM[node.op]]
    values = constant_behind(graph, ref)
    return values is not None and not values.array().any()


def _joined(graph: Graph, ref: Ref) -> Iterator[Ref]:
    """Yield the tensors that are joined along their columns, or the tensor."""
    node = graph[source_behind(graph, ref).node]
    axis = constant_behind(graph, node.data_inputs[-1]) if node.op == "ConcatV2" else None
    if axis is None or int(axis.array().reshape(())) not in (1, -1):
        yield source_behind(graph, ref)
        return
    for part in node.data_inputs[:-1]:
        yield from _joined(graph, part)


def _columns_of(form: Affine | None, tensor: Edge) -> tuple[int, int] | None:
    """Return the consecutive columns of another tensor that a tensor consists of."""
    matrix = form.matrix(tensor) if form is not None and len(form.parts) == 1 else None
    if form is None or matrix is None or form.bias.any():
        return None
    start = int(matrix[:, 0].argmax())
    is_part = np.array_equal(matrix, np.eye(len(matrix))[:, start : start + form.width])
    return (start, start + form.width) if is_part else None

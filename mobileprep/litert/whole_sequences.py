"""Replace loops over recurrent cells with nodes that run whole sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.litert.fused_cells import LSTM, RNN, Cell
from mobileprep.litert.recurrent_loops import (
    LOOPS,
    ROWS,
    CellLoop,
    Loop,
    LoopResult,
    Mask,
    Prepare,
    Sizes,
    Variable,
    is_zero,
)
from mobileprep.litert.refusals import MALFORMED
from mobileprep.ops.shape_inference import shape_of

_FLOAT: Final = attr.dtype(DType.FLOAT)
_INT32: Final = attr.dtype(DType.INT32)
_BOOL: Final = attr.dtype(DType.BOOL)


def with_whole_sequences(
    graph: Graph,
    outputs: Sequence[Ref],
    prepare: Prepare,
    *,
    open_states: bool,
    masks: bool = True,
) -> tuple[Graph, tuple[Ref, ...]]:
    """Replace the loops of a graph that run an LSTM or RNN cell for each step of a sequence.

    Args:
        graph: the graph.
        outputs: its outputs.
        prepare: returns the functions that its loops run.
        open_states: whether to replace loops whose states have an open size, such as the batch.
        masks: whether to replace loops whose cells skip masked steps, which moves steps.

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
                matcher = Loop(graph, node, sizes, prepare)
                loop = matcher.cell_loop()
            except MALFORMED:
                continue  # Its lowering reports the error.
            if loop is None or (matcher.has_open_state(loop) and not open_states):
                continue
            if loop.mask is not None and not masks:
                continue
            used = [i for i in range(len(node.data_inputs)) if (node.name, i) in read]
            if all(i in loop.results for i in used):
                work = SequenceNodes(node, fresh)
                whole = _Replacement(graph, work, loop, _steps(sizes, loop))
                same.update({(node.name, i): whole.result(i) for i in used})
                instead[node.name] = work.nodes
    if not instead:
        return graph, tuple(outputs)

    def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(r if r.is_control else same.get(edge(r), r) for r in refs)

    nodes = [n for node in graph for n in instead.get(node.name, [node])]
    changed = graph.with_nodes(n.with_inputs(moved(n.inputs)) for n in nodes)
    return changed.with_nodes(_with_plain_rows(changed, n) for n in changed), moved(outputs)


def _steps(sizes: Sizes, loop: CellLoop) -> int:
    """Return the number of steps of a loop, or -1 if it is open."""
    shape = shape_of(sizes.shapes, loop.entered[loop.cells[0].sequence or 0])
    return -1 if not shape else shape[0]


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

    def blank(self) -> Ref:
        """Add the constant 0."""
        return self.constant("blank", np.float32(0))

    def integers(self, what: str, value: ArrayLike) -> Ref:
        """Add a constant of integers."""
        return self.constant(what, np.asarray(value, np.int32))

    def integer(self, op: str, what: str, one: Ref, other: Ref) -> Ref:
        """Add a node that combines two tensors of integers."""
        return self.add(what, op, (one, other), T=_INT32)

    def wide(self, ref: Ref, axis: int, kind: DType) -> Ref:
        """Add an axis of size 1 to a tensor."""
        inputs = (ref, self.integers("axis", axis))
        return self.add("wide", "ExpandDims", inputs, T=attr.dtype(kind), Tdim=_INT32)

    def transposed(self, what: str, ref: Ref, order: list[int], kind: DType) -> Ref:
        """Add a transposition."""
        inputs = (ref, self.integers("order", order))
        return self.add(what, "Transpose", inputs, T=attr.dtype(kind), Tperm=_INT32)

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

    def __init__(self, graph: Graph, work: SequenceNodes, loop: CellLoop, steps: int) -> None:
        self._graph = graph
        self._work = work
        self._loop = loop
        self._cells: dict[int, str] = {}
        first = loop.entered[loop.cells[0].sequence or 0]
        self._mask = None if loop.mask is None else _Masking(work, loop.mask, first, steps)

    def result(self, index: int) -> Ref:
        """Return the tensor that replaces an output of the loop."""
        return self._tensor(self._loop.results[index])

    def _tensor(self, result: LoopResult) -> Ref:
        if result.ref is not None:
            return result.ref
        work = self._work
        if result.parts:
            inputs = (*map(self._tensor, result.parts), work.integers("axis", 1))
            count = attr.integer(len(result.parts))
            return work.add("states", "ConcatV2", inputs, N=count, T=_FLOAT, Tidx=_INT32)
        name = self._cell(result.cell)
        first = None if result.first is None else self._first(result.first)
        if self._mask is None:
            ref = Ref(name, result.index)
        elif result.index == ROWS:
            ref = self._mask.rows(Ref(name, ROWS), first)
        else:
            assert first is not None
            ref = self._mask.last(Ref(name, ROWS), first)
        return work.wide(ref, 0, DType.FLOAT) if result.is_wide else ref

    def _cell(self, number: int) -> str:
        """Return the name of the node that replaces a cell."""
        if number not in self._cells:
            placed = self._loop.cells[number]
            if placed.sequence is None:
                rows = Ref(self._cell(placed.before), ROWS)
            else:
                rows = self._loop.entered[placed.sequence]
                rows = rows if self._mask is None else self._mask.inputs(rows)
            add = self._work.lstm if placed.op == LSTM else self._work.rnn
            self._cells[number] = add(placed.cell, (rows, *map(self._entered, placed.states)))
        return self._cells[number]

    def _first(self, variable: Variable) -> Ref:
        """Return the output before the loop, which may be a scalar."""
        is_blank = is_zero(self._graph, self._loop.entered[variable.index])
        return self._work.blank() if is_blank else self._entered(variable)

    def _entered(self, variable: Variable) -> Ref:
        """Return the value of a variable before the loop."""
        ref = self._loop.entered[variable.index]
        if variable.columns is None:
            return ref
        start, stop = variable.columns
        work = self._work
        inputs = (
            ref,
            work.integers("begin", [0, start]),
            work.integers("size", [-1, stop - start]),
        )
        return work.add("state", "Slice", inputs, T=_FLOAT, Index=_INT32)


class _Masking:
    """The nodes for loops that skip steps.

    The sequences begin with the steps that the mask contains, so that the cells need no mask.
    Their outputs are then put where they belong.

    Args:
        work: the new nodes.
        mask: the mask.
        sequence: a tensor ``[time, batch, ...]``.
        steps: its first size; -1 if it is open.
    """

    def __init__(self, work: SequenceNodes, mask: Mask, sequence: Ref, steps: int) -> None:
        self._work = work
        self._mask = mask
        self._sequence = sequence
        self._steps = steps

    def inputs(self, rows: Ref) -> Ref:
        """Return a sequence that begins with the steps of the mask."""
        if self._mask.is_length:
            return rows
        work = self._work
        # The step that comes at each place is the only one whose number is the place's.
        count = work.wide(self._by_batch(self._counts), 1, DType.INT32)
        places = work.integer("AddV2", "places", self._times, work.integers("one", 1))
        inputs = (count, work.wide(places, 1, DType.INT32))
        comes = work.add("comes", "Equal", inputs, T=_INT32)
        comes = work.add("comes", "Cast", (comes,), SrcT=_BOOL, DstT=_INT32)
        numbers = self._by_batch(self._numbers)
        times = work.wide(work.integer("Mul", "times", numbers, self._times), 1, DType.INT32)
        chosen = work.integer("Mul", "order", comes, times)
        order = work.add("order", "Sum", (chosen, work.integers("axis", 2)), T=_INT32, Tidx=_INT32)
        return self._gathered("inputs", rows, order)

    def rows(self, rows: Ref, first: Ref | None) -> Ref:
        """Return the output of each step; without the mask, the one before it, or 0.

        Args:
            rows: the outputs of the steps in the mask.
            first: the output before the first step; None for 0 in steps without the mask.
        """
        work = self._work
        if first is not None or not self._mask.is_length:
            start = work.blank() if first is None else first
            place = self._by_batch(self._places(self._counts))
            rows = self._chosen(self._counts, self._gathered("rows", rows, place), start)
        if first is not None:
            return rows
        chosen = work.wide(self._is_step, 2, DType.BOOL)
        blank = work.blank()
        return work.add("rows", "SelectV2", (chosen, rows, blank), T=_FLOAT)

    def last(self, rows: Ref, first: Ref) -> Ref:
        """Return the output of the last step in the mask, or the one before all steps."""
        work = self._work
        axis = work.integers("axis", 0)
        count = work.add("count", "Sum", (self._numbers, axis), T=_INT32, Tidx=_INT32)
        wide = work.wide(self._places(count), 1, DType.INT32)
        row = self._gathered("last", rows, wide)
        row = work.add("last", "Squeeze", (row,), T=_FLOAT, squeeze_dims=attr.integers(0))
        return self._chosen(count, row, first)

    def _by_batch(self, values: Ref) -> Ref:
        """Return integers ``[batch, time]``."""
        return self._work.transposed("by_batch", values, [1, 0], DType.INT32)

    def _places(self, count: Ref) -> Ref:
        """Return the index of the last of a number of steps, or 0."""
        work = self._work
        one, zero = work.integers("one", 1), work.integers("zero", 0)
        return work.integer("Maximum", "places", work.integer("Sub", "places", count, one), zero)

    def _chosen(self, count: Ref, rows: Ref, first: Ref) -> Ref:
        """Return rows, or the first one where no step was counted."""
        work = self._work
        inputs = (count, work.integers("zero", 0))
        has_step = work.add("has_step", "Greater", inputs, T=_INT32)
        chosen = work.wide(has_step, -1, DType.BOOL)
        return work.add("rows", "SelectV2", (chosen, rows, first), T=_FLOAT)

    def _gathered(self, what: str, rows: Ref, places: Ref) -> Ref:
        """Return rows ``[time, batch, width]`` at indices ``[batch, count]``, by time."""
        work = self._work
        inputs = (
            work.transposed(what, rows, [1, 0, 2], DType.FLOAT),
            places,
            work.integers("axis", 1),
        )
        kinds = {"Tparams": _FLOAT, "Tindices": _INT32, "Taxis": _INT32}
        chosen = work.add(what, "GatherV2", inputs, batch_dims=attr.integer(1), **kinds)
        return work.transposed(what, chosen, [1, 0, 2], DType.FLOAT)

    @cached_property
    def _count(self) -> Ref:
        """The number of steps."""
        work = self._work
        if self._steps >= 0:
            return work.integers("steps", self._steps)
        sizes = work.add("sizes", "Shape", (self._sequence,), T=_FLOAT, out_type=_INT32)
        inputs = (sizes, work.integers("zero", 0))
        kinds = {"Tparams": _INT32, "Tindices": _INT32}
        return work.add("steps", "Gather", inputs, **kinds)

    @cached_property
    def _times(self) -> Ref:
        """The indices of the steps, ``[time]``."""
        work = self._work
        if self._steps >= 0:
            return work.integers("times", np.arange(self._steps))
        inputs = (work.integers("zero", 0), self._count, work.integers("one", 1))
        return work.add("times", "Range", inputs, Tidx=_INT32)

    @cached_property
    def _is_step(self) -> Ref:
        """Whether the mask contains a step, ``[time, batch]``."""
        work, mask = self._work, self._mask
        if not mask.is_length:
            assert mask.source is not None
            axes = attr.integers(2)
            return work.add("mask", "Squeeze", (mask.source,), T=_BOOL, squeeze_dims=axes)
        lengths = mask.source
        if lengths is None:
            assert mask.values is not None
            lengths = work.integers("lengths", mask.values)
        times = work.wide(self._times, 1, DType.INT32)
        return work.add("mask", "Less", (times, lengths), T=_INT32)

    @cached_property
    def _numbers(self) -> Ref:
        """The mask as integers."""
        return self._work.add("mask", "Cast", (self._is_step,), SrcT=_BOOL, DstT=_INT32)

    @cached_property
    def _counts(self) -> Ref:
        """The number of steps in the mask up to each step, ``[time, batch]``."""
        inputs = (self._numbers, self._work.integers("axis", 0))
        return self._work.add("counts", "Cumsum", inputs, T=_INT32, Tidx=_INT32)

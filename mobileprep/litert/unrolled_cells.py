"""Replace unrolled LSTM cells, which follow one another, with a node that runs the sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import SUMS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.litert.fused_cells import ACTIVATIONS, Cell, CellMatcher
from mobileprep.litert.recurrent_loops import LAST_ROW, LAST_STATE, ROWS, is_zero
from mobileprep.litert.refusals import MALFORMED
from mobileprep.litert.whole_sequences import SequenceNodes
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

_FEWEST: Final = 2
_BLANK: Final = frozenset({"Fill", "ZerosLike", "BroadcastTo", "Const"})
_FLOAT: Final = attr.dtype(DType.FLOAT)


class _Step(Struct, frozen=True, eq=False):
    """A node that may compute the cell state of one step.

    Args:
        state: the state before it.
        new_state: the state.
        outputs: tensors that may be the output of the cell.
    """

    state: Ref
    new_state: Ref
    outputs: tuple[Ref, ...]


class _Chain(Struct, frozen=True, eq=False):
    """Consecutive steps of one cell.

    Args:
        cell: the weights.
        first: the output and the state before the first step.
        inputs: the input of each step.
        outputs: the output of each step.
        states: the state after each step.
    """

    cell: Cell
    first: tuple[Ref, Ref]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    states: tuple[Ref, ...]


def without_unrolled_cells(
    graph: Graph, outputs: Sequence[Ref], *, open_states: bool
) -> tuple[Graph, tuple[Ref, ...]]:
    """Replace chains of equal LSTM cells that feed each other.

    Args:
        graph: the graph.
        outputs: its outputs.
        open_states: whether to replace cells whose states have an open size, such as the batch.

    Returns:
        The graph and its outputs.
    """
    try:
        steps = {edge(step.new_state): step for step in _steps(graph)}
    except MALFORMED:
        steps = {}  # The lowering of the nodes reports the error.
    if len(steps) < _FEWEST:
        return graph, tuple(outputs)
    shapes = infer_shapes(graph)
    matcher = CellMatcher(graph, shapes)
    fresh = FreshNames(graph.by_name)
    ends = tuple(outputs)
    for steps_of_chain in _chains(steps):
        chain = _matched(graph, matcher, steps_of_chain)
        if chain is None or (not open_states and _is_open(shapes, chain.first)):
            continue
        changed = _replaced(graph, ends, chain, fresh)
        if changed is not None:
            graph, ends = changed
    return graph, ends


def _is_open(shapes: Mapping[str, Shapes], states: Sequence[Ref]) -> bool:
    return any(-1 in (shape_of(shapes, ref) or (-1,)) for ref in states)


def _steps(graph: Graph) -> Iterator[_Step]:
    """Yield the sums of two products of which one has a gate and a state."""
    readers = graph.consumers
    for node in graph:
        if node.op not in SUMS:
            continue
        products = [graph[source_behind(graph, r).node] for r in node.data_inputs]
        if len(products) != 2 or any(product.op != "Mul" for product in products):
            continue
        activated = [n for n in readers.get(node.name, ()) if n.op in ACTIVATIONS]
        results = tuple(
            Ref(reader.name)
            for one in activated
            for reader in readers.get(one.name, ())
            if reader.op == "Mul"
        )
        for product in products:
            for gate, state in (product.data_inputs, product.data_inputs[::-1]):
                is_gate = graph[source_behind(graph, gate).node].op == "Sigmoid"
                source = graph[source_behind(graph, state).node]
                if is_gate and source.op not in ACTIVATIONS and results:
                    yield _Step(source_behind(graph, state), Ref(node.name), results)


def _chains(steps: Mapping[Edge, _Step]) -> Iterator[list[_Step]]:
    """Yield lists of steps, each of which starts from the state of the step before it."""
    following = {edge(step.state): step for step in steps.values() if edge(step.state) in steps}
    for step in steps.values():
        if edge(step.state) in steps:
            continue
        chain = [step]
        while (after := following.get(edge(chain[-1].new_state))) is not None:
            chain.append(after)
        if len(chain) > _FEWEST:
            yield chain


def _matched(graph: Graph, matcher: CellMatcher, steps: Sequence[_Step]) -> _Chain | None:
    """Return the longest chain of equal cells.

    Unless it starts from zeros, the first step provides the state from which the sequence starts,
    because its own one is often folded into its weights.
    """
    hidden: Ref | None = None
    for output in steps[0].outputs:
        cells: list[Cell] = []
        outputs = [output]
        for step in steps[1:]:
            match = _next(matcher, step, outputs[-1])
            if match is None or (cells and not _is_equal(cells[0], match[0])):
                break
            cells.append(match[0])
            outputs.append(match[1])
        if len(cells) >= _FEWEST:
            hidden = output
            break
    if hidden is None:
        return None
    states = [step.new_state for step in steps[: len(cells) + 1]]
    inputs, first = [c.x for c in cells], (hidden, states[0])
    start = _from_zeros(graph, matcher, steps[0], hidden, cells[0])
    if start is None:
        del outputs[0], states[0]
    else:
        first = (start[0], steps[0].state)
        inputs.insert(0, start[1].x)
    return _Chain(cells[0], first, tuple(inputs), tuple(outputs), tuple(states))


def _from_zeros(
    graph: Graph, matcher: CellMatcher, step: _Step, output: Ref, cell: Cell
) -> tuple[Ref, Cell] | None:
    """Return the output before a step, which is zero, and the cell of the step if it is equal."""
    if not is_zero(graph, step.state):
        return None
    blanks = [Ref(n.name) for n in graph if n.op in _BLANK and is_zero(graph, Ref(n.name))]
    for hidden in blanks:
        first = matcher.lstm(step.state, step.new_state, hidden, output)
        if first is not None and _is_equal(first, cell):
            return hidden, first
    return None


def _next(matcher: CellMatcher, step: _Step, hidden: Ref) -> tuple[Cell, Ref] | None:
    for output in step.outputs:
        cell = matcher.lstm(step.state, step.new_state, hidden, output)
        if cell is not None and cell.recurrent.size:
            return cell, output
    return None


def _is_equal(one: Cell, other: Cell) -> bool:
    """Return whether two cells have the same weights."""
    arrays = ("kernel", "recurrent", "bias", "peepholes", "projection", "projection_bias")
    numbers = ("activation", "cell_clip", "projection_clip")
    return all(getattr(one, n) == getattr(other, n) for n in numbers) and all(
        np.array_equal(getattr(one, n), getattr(other, n)) for n in arrays
    )


def _replaced(
    graph: Graph, outputs: Sequence[Ref], chain: _Chain, fresh: FreshNames
) -> tuple[Graph, tuple[Ref, ...]] | None:
    """Return the graph with a chain replaced, or None if states of inner steps are read."""
    count = len(chain.inputs)
    work = SequenceNodes(graph[chain.states[0].node], fresh)
    number, axis = attr.integer(count), attr.integer(0)
    x = work.add("inputs", "Pack", chain.inputs, N=number, T=_FLOAT, axis=axis)
    main = work.lstm(chain.cell, (x, *chain.first))
    rows = work.add("rows", "Unpack", (Ref(main, ROWS),), num=number, T=_FLOAT, axis=axis)
    same = {edge(ref): Ref(rows.node, t) for t, ref in enumerate(chain.outputs)}
    same[edge(chain.outputs[-1])] = Ref(main, LAST_ROW)
    same[edge(chain.states[-1])] = Ref(main, LAST_STATE)

    def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(r if r.is_control else same.get(edge(r), r) for r in refs)

    # The nodes that replace the chain come after its inputs.
    nodes = [*(n.with_inputs(moved(n.inputs)) for n in graph), *work.nodes]
    ends = moved(outputs)
    whole = graph.with_nodes(nodes)
    needed = reachable(whole, [r.node for r in ends])
    inner = {ref.node for ref in chain.states[:-1]}
    if inner & set(needed):
        return None
    placeholders = {n.name for n in graph if not n.inputs and n.op != "Const"}
    kept = [n for n in whole if n.name in needed or n.name in placeholders]
    return graph.with_nodes(kept), ends

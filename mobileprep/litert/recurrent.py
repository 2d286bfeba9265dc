"""Split recurrent cells into matrix products and activations, and GatherTree into gathers.

Source: the op definitions of LSTMBlockCell, BlockLSTM, BlockLSTMV2, and GRUBlockCell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.litert.beam_trees import followed
from mobileprep.litert.plain_nodes import PlainNodes, added_loop
from mobileprep.ops.nn.recurrent import GATHER_TREES

_BLOCKS: Final = frozenset({"BlockLSTM", "BlockLSTMV2"})
_INPUT_COUNTS: Final = {
    "LSTMBlockCell": 8,
    "GRUBlockCell": 6,
    **dict.fromkeys(_BLOCKS, 9),
    **dict.fromkeys(GATHER_TREES, 4),
}
CELLS: Final = frozenset(_INPUT_COUNTS)
"""Ops that ``without_cells`` replaces."""
_INT32: Final = attr.dtype(DType.INT32)
_STATE, _HIDDEN = 1, 6


def without_cells(graph: Graph, outputs: Sequence[Ref]) -> tuple[Graph, tuple[Ref, ...]]:
    """Split recurrent cells and trees of beams into plain ops."""
    cells = [n for n in graph if _INPUT_COUNTS.get(n.op) == len(n.data_inputs)]
    if not cells:
        return graph, tuple(outputs)
    fresh = FreshNames([*graph.by_name, *graph.library.functions])
    read = {edge(r) for r in outputs} | {edge(r) for n in graph for r in n.data_inputs}
    replaced: dict[Edge, Ref] = {}
    added: dict[str, list[Node]] = {}
    functions: dict[str, Function] = {}
    for node in cells:
        work = PlainNodes(node, fresh, functions)
        indices = [i for i in range(7) if (node.name, i) in read]
        if node.op == "GRUBlockCell":
            results: Mapping[int, Ref] = dict(enumerate(_gru(work, node.data_inputs)))
        elif node.op in GATHER_TREES:
            results = {0: followed(work, graph.library)}
        elif node.op == "LSTMBlockCell":
            x, state, hidden, *weights = node.data_inputs
            results = dict(enumerate(_Lstm(node, weights).step(work, x, state, hidden)))
        else:
            results = _looped(work, graph, indices)
        added[node.name] = work.nodes
        replaced.update({(node.name, index): ref for index, ref in results.items()})

    def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(replaced.get(edge(r), r) for r in refs)

    nodes = [
        part.with_inputs(moved(part.inputs))
        for node in graph
        for part in added.get(node.name, [node])
    ]
    library = Library({**graph.library.functions, **functions}, graph.library.gradients)
    return Graph(nodes, library, graph.versions), moved(outputs)


def _gates(work: PlainNodes, x: Ref, hidden: Ref, weights: Ref, bias: Ref, count: int) -> list[Ref]:
    """Return the parts of `[x, hidden] * weights + bias`."""
    axis = work.constant("axis", 1)
    pair = work.add("ConcatV2", x, hidden, axis, N=attr.integer(2), Tidx=_INT32)
    no = attr.boolean(value=False)
    product = work.add("MatMul", pair, weights, transpose_a=no, transpose_b=no)
    total = work.add("BiasAdd", product, bias)
    if count == 1:
        return [total]
    split = work.add("Split", axis, total, num_split=attr.integer(count))
    return [Ref(split.node, index) for index in range(count)]


class _Lstm:
    """The options and weights (`w, wci, wcf, wco, b`) of an LSTM cell."""

    def __init__(self, node: Node, weights: Sequence[Ref]) -> None:
        is_newer = node.op == "BlockLSTMV2"
        self.weights, *self.peepholes, self.bias = weights
        self.has_peepholes = node.attr_bool("use_peephole", False)
        self.forget_bias = 0.0 if is_newer else node.attr_float("forget_bias", 1.0)
        self.clip = node.attr_float("cell_clip", 0.0 if is_newer else 3.0)
        # BlockLSTMV2 orders the gates like cuDNN.
        self.order = (0, 2, 1, 3) if is_newer else (0, 1, 2, 3)

    def step(self, work: PlainNodes, x: Ref, state: Ref, hidden: Ref) -> tuple[Ref, ...]:
        """Return the outputs of one step: i, cs, f, o, ci, co, h."""
        add = work.add
        parts = _gates(work, x, hidden, self.weights, self.bias, 4)
        i, ci, f, o = (parts[place] for place in self.order)
        if self.has_peepholes:
            i = add("AddV2", i, add("Mul", state, self.peepholes[0]))
            f = add("AddV2", f, add("Mul", state, self.peepholes[1]))
        if self.forget_bias:
            f = add("AddV2", f, work.constant("forget_bias", self.forget_bias, work.kind))
        i, f, ci = add("Sigmoid", i), add("Sigmoid", f), add("Tanh", ci)
        cs = add("AddV2", add("Mul", ci, i), add("Mul", state, f))
        if self.clip > 0:
            cs = add("Minimum", cs, work.constant("cell_clip", self.clip, work.kind))
            cs = add("Maximum", cs, work.constant("cell_clip", -self.clip, work.kind))
        if self.has_peepholes:
            o = add("AddV2", o, add("Mul", cs, self.peepholes[2]))
        o, co = add("Sigmoid", o), add("Tanh", cs)
        return i, cs, f, o, ci, co, add("Mul", o, co)


def _gru(work: PlainNodes, inputs: Sequence[Ref]) -> tuple[Ref, ...]:
    """Return the outputs of one step of a gated recurrent unit: r, u, c, h."""
    x, hidden, gate_weights, weights, gate_bias, bias = inputs
    add = work.add
    r, u = (add("Sigmoid", part) for part in _gates(work, x, hidden, gate_weights, gate_bias, 2))
    c = add("Tanh", *_gates(work, x, add("Mul", r, hidden), weights, bias, 1))
    rest = add("Sub", work.constant("one", 1.0, work.kind), u)
    return r, u, c, add("AddV2", add("Mul", u, hidden), add("Mul", rest, c))


def _length(work: PlainNodes) -> Ref:
    """Return the length of the longest sequence as int32."""
    kinds = {"SrcT": attr.dtype(DType.INT64), "DstT": _INT32}
    return work.put("Cast", work.node.data_inputs[:1], **kinds)


def _looped(work: PlainNodes, graph: Graph, indices: Sequence[int]) -> Mapping[int, Ref]:
    """Return the wanted outputs of a BlockLSTM, computed by a While over the time steps."""
    _, x, state, hidden, *weights = work.node.data_inputs
    is_constant = [constant_behind(graph, ref) for ref in weights]
    passed = [ref for ref, value in zip(weights, is_constant, strict=True) if value is None]
    sizes, time = _sizes(work, x, state)
    limit = work.put("Minimum", (_length(work), time), T=_INT32)
    zero, kinds = work.constant("zero", 0.0, work.kind), {"index_type": _INT32}
    zeros = [work.add("Fill", sizes, zero, **kinds) for _ in indices]
    arguments = (work.constant("first", 0), limit, x, state, hidden, *zeros, *passed)
    types = (*[DType.INT32] * 2, *[work.kind] * (len(arguments) - 2))
    kept = len(arguments) - len(passed)

    def step(inner: PlainNodes, args: Sequence[Ref]) -> Sequence[Ref]:
        rest = iter(args[kept:])
        own = [
            next(rest) if value is None else inner.constant("weights", value.array(), work.kind)
            for value in is_constant
        ]
        t, row = args[0], inner.gather(args[2], args[0], work.kind)
        results = _Lstm(work.node, own).step(inner, row, *args[3:5])
        written = [
            inner.written(args[5 + i], t, results[index], work.kind)
            for i, index in enumerate(indices)
        ]
        after = inner.put("AddV2", (t, inner.constant("one", 1)), T=_INT32)
        return (after, *args[1:3], results[_STATE], results[_HIDDEN], *written, *args[kept:])

    def goes_on(inner: PlainNodes, args: Sequence[Ref]) -> Ref:
        return inner.put("Less", args[:2], T=_INT32)

    loop = added_loop(work, arguments, types, goes_on, step, graph.library)
    return {index: Ref(loop.name, 5 + i) for i, index in enumerate(indices)}


def _sizes(work: PlainNodes, x: Ref, state: Ref) -> tuple[Ref, Ref]:
    """Return the shape of an output and its first size."""

    def size(value: Ref, axis: int) -> Ref:
        sizes = work.add("Shape", value, out_type=_INT32)
        return work.gather(sizes, work.constant("which", axis), DType.INT32)

    time = size(x, 0)
    return work.pack([time, size(state, 0), size(state, 1)], DType.INT32), time

"""The nodes of a graph in columns of numbers, for the report page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.errors import MobileprepError
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.compare import compare_graphs
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.inspection.costs import node_flops
from mobileprep.inspection.differing import renamed
from mobileprep.inspection.drawing_files import attribute_text, shape_text
from mobileprep.ops.shape_inference import infer_shapes

# Elements of a constant that is shown whole, and letters of that.
_FEW: Final = 8
_LONGEST: Final = 200

Shapes = Mapping[str, tuple[TensorShape, ...]]


class NodeTable(Struct, frozen=True):
    """A graph's nodes, a column for each thing that is told of them.

    Args:
        left_out: why there are no nodes; empty where there are.
        texts: what the numbers of ``ops``, ``attrs`` and ``shapes`` stand for.
        names: of the nodes, in the order of the graph.
        ops: for each the number of its op's name.
        inputs: for each its inputs: the node that it comes from and the output, -1 for a control
            dependency, one after another. Those that are not in the graph are left out.
        attrs: for each the numbers of its attributes' texts.
        shapes: for each the numbers of its outputs' shapes.
        bytes: of its constant; 0 for others.
        parameters: elements of its constant.
        flops: operations of one run, as far as they are known.
        functions: how many functions the graph has besides; their nodes are not told.
    """

    left_out: str
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    ops: tuple[int, ...] = ()
    inputs: tuple[tuple[int, ...], ...] = ()
    attrs: tuple[tuple[int, ...], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    bytes: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()
    flops: tuple[int, ...] = ()
    functions: int = 0


class _Texts:
    """Texts, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def node_table(graph: Graph, feeds: Mapping[str, TensorShape]) -> NodeTable:
    """The nodes of a graph; sizes that are not known count as 1 in operations.

    Args:
        feeds: shapes of the inputs, as far as they are declared.
    """
    reason = left_out(graph)
    if reason:
        return NodeTable(reason)
    shapes = _shapes(graph, feeds)
    flops = node_flops(graph, shapes)
    texts, places = _Texts(), {node.name: at for at, node in enumerate(graph)}
    sizes = [_constant_size(node) for node in graph]
    ops = tuple(texts.number(node.op) for node in graph)
    attrs = tuple(tuple(map(texts.number, _attributes(node))) for node in graph)
    outputs = tuple(
        tuple(texts.number(shape_text(shape)) for shape in shapes.get(node.name, ()))
        for node in graph
    )
    return NodeTable(
        "",
        tuple(texts.numbers),
        tuple(places),
        ops,
        tuple(_inputs(node, places) for node in graph),
        attrs,
        outputs,
        tuple(count for _, count in sizes),
        tuple(count for count, _ in sizes),
        tuple(int(flops.get(name, 0)) for name in places),
        len(graph.library.functions),
    )


def _shapes(graph: Graph, feeds: Mapping[str, TensorShape]) -> Shapes:
    """All shapes; a graph that they cannot be inferred through has none, and still ships."""
    try:
        return infer_shapes(graph, feeds, recorded=True)
    except MobileprepError:
        return {}


def _inputs(node: Node, places: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(
        number
        for ref in node.inputs
        if ref.node in places
        for number in (places[ref.node], ref.index)
    )


def _attributes(node: Node) -> list[str]:
    told = [f"device: {node.device}"] if node.device else []
    told += [f"{key}: {_text(value)}" for key, value in sorted(node.attrs.items())]
    return told


def _text(value: AttrValue) -> str:
    """An attribute in a few words; of a tensor of few elements what it holds too."""
    text = attribute_text(value)
    if value.kind != "tensor" or not 0 < value.value.size <= _FEW:
        return text
    try:
        return f"{text} {str(value.value.array().tolist())[:_LONGEST]}"
    except MobileprepError:
        return text


def _constant_size(node: Node) -> tuple[int, int]:
    """Elements and bytes of a constant's tensor."""
    value = node.attrs.get("value")
    if node.op != "Const" or value is None or value.kind != "tensor":
        return 0, 0
    return value.value.size, value.value.nbytes


MOST_NODES: Final = 50_000
"""Largest number of nodes on a page, because browsers load larger ones slowly."""
_MOST_TEXT: Final = 16 << 20


def left_out(graph: Graph) -> str:
    """Why a page tells nothing of a graph's nodes; empty where it does."""
    if len(graph) > MOST_NODES:
        return f"it has {len(graph):,} nodes; the page shows at most {MOST_NODES:,}"
    text = sum(len(node.name) for node in graph)
    if text > _MOST_TEXT:
        return f"the names of its nodes have {text:,} letters, and a page has {_MOST_TEXT:,}"
    return ""


_MOST: Final = 20_000
_LONGEST_CHANGE: Final = 300


class StepChanges(Struct, frozen=True):
    """What became of the nodes of a graph.

    Args:
        renamed: pairs of an old and a new name, where a step gave nodes other names.
        changes: of each what ``GraphDifference`` tells: kind, name after the step, detail, before
            and after in words, and of constants the largest difference or None.
        left_out: how many more there are.
    """

    renamed: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, str, str, str, str, float | None], ...]
    left_out: int


def step_changes(before: Graph, after: Graph) -> StepChanges:
    """What a step did: which nodes are new, gone, or differ, and in what.

    Nodes that stand where others of the same ops stood, all of them, have been renamed.
    """
    if before is after:
        return StepChanges((), (), 0)
    names = _new_names(before, after)
    found = compare_graphs(renamed(before, names) if names else before, after)
    told = []
    for one in found[:_MOST]:
        data = one.as_data()
        texts = (_short(data["before"]), _short(data["after"]))
        told.append((one.kind, one.name, one.detail, *texts, data["largest"]))
    return StepChanges(tuple(names.items()), tuple(told), max(len(found) - _MOST, 0))


def _new_names(before: Graph, after: Graph) -> dict[str, str]:
    pairs = list(zip(before, after, strict=False))
    if len(before) != len(after) or any(a.op != b.op for a, b in pairs):
        return {}
    names = {a.name: b.name for a, b in pairs if a.name != b.name}
    # Nodes in another order have names that were there before.
    return {} if names.keys() & set(names.values()) else names


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CHANGE else f"{text[: _LONGEST_CHANGE - 3]}..."


_MOST_TENSORS: Final = 32
_FEWEST_ELEMENTS: Final = 16
_BINS: Final = 32
# So many show the shape of a distribution; to look at millions would slow builds down. They lie in
# runs, so that little of a file is read for them.
_LOOKED_AT: Final = 1 << 16
_RUNS: Final = 16


class Spread(Struct, frozen=True):
    """The values of a constant.

    Args:
        node: its name.
        dtype: its type.
        elements: how many it has.
        low: the least that is looked at; NaN and infinity are left out.
        high: the greatest.
        zeros: the share of those looked at that are 0.
        counts: how many lie in each of equal steps from ``low`` to ``high``.
        looked_at: how many are looked at: of large ones, some runs at equal distances.
    """

    node: str
    dtype: str
    elements: int
    low: float
    high: float
    zeros: float
    counts: tuple[int, ...]
    looked_at: int


def weight_spreads(graph: Graph) -> tuple[Spread, ...]:
    """Those of the 32 largest constants of numbers, by bytes, the largest first."""
    chosen = sorted(_constants(graph), key=lambda c: (-c[1].nbytes, c[0]))[:_MOST_TENSORS]
    found = (_spread(name, tensor) for name, tensor in chosen)
    return tuple(spread for spread in found if spread is not None)


def _constants(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    for node in graph:
        value = node.attrs.get("value")
        if node.op != "Const" or value is None or value.kind != "tensor":
            continue
        tensor = value.value
        kind = tensor.dtype.numpy
        if tensor.size >= _FEWEST_ELEMENTS and kind is not None and _is_number(kind):
            yield node.name, tensor


def _is_number(kind: object) -> bool:
    # Those of ml_dtypes, such as bfloat16, are of kind V.
    return np.dtype(kind).kind in "fiuV"  # type: ignore[call-overload]


def _spread(name: str, tensor: Tensor) -> Spread | None:
    try:
        flat = tensor.array().reshape(-1)
    except MobileprepError:
        return None  # what does not fit its shape is told where it is run
    values = _sample(flat).astype(np.float64)
    looked_at = values.size
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    step = (high - low) / _BINS
    # Ends so far apart that their difference overflows are no weights of a network.
    if not np.isfinite(step):
        return None
    zeros = values.size - int(np.count_nonzero(values))
    # In place, for new memory takes longer than the arithmetic.
    values -= low
    if step:
        values /= step
    places = values.astype(int)
    np.minimum(places, _BINS - 1, out=places)
    counts = np.bincount(places, minlength=_BINS)
    return Spread(
        *(name, tensor.dtype.short, tensor.size, low, high),
        round(zeros / values.size, 4),
        tuple(counts.tolist()),
        looked_at,
    )


def _sample(flat: Array) -> Array:
    if flat.size <= _LOOKED_AT:
        return flat
    length = _LOOKED_AT // _RUNS
    starts = [(flat.size - length) * run // (_RUNS - 1) for run in range(_RUNS)]
    return np.concatenate([flat[start : start + length] for start in starts])

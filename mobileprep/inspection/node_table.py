"""Table of a graph's nodes for the report page, in columns of numbers."""

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

# Maximum number of elements of a constant that is shown completely, and of characters.
_FEW: Final = 8
_LONGEST: Final = 200

Shapes = Mapping[str, tuple[TensorShape, ...]]


class NodeTable(Struct, frozen=True):
    """Nodes of a graph, in one column per property.

    Args:
        left_out: reason for omitting the nodes; empty if they are included.
        texts: strings that ``ops``, ``attrs``, and ``shapes`` refer to by index.
        names: names of the nodes, in graph order.
        ops: for each node, the index of its op's name.
        inputs: for each node, a flat list of its inputs: index of the producer and of its output,
            or -1 for a control dependency. Inputs that are not in the graph are omitted.
        attrs: for each node, the indices of its formatted attributes.
        shapes: for each node, the indices of its outputs' formatted shapes.
        bytes: for each node, the size of its constant in bytes; 0 for other nodes.
        parameters: for each node, the number of elements of its constant.
        flops: for each node, the operations of one run, as far as known.
        functions: number of functions of the graph, whose nodes are not included.
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
    """Unique strings."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def node_table(graph: Graph, feeds: Mapping[str, TensorShape]) -> NodeTable:
    """Build the node table of a graph. Unknown dimensions have size 1 in operation counts.

    Args:
        feeds: declared shapes of the inputs.
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
    """Infer all shapes. Return none if inference fails."""
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
    lines = [f"device: {node.device}"] if node.device else []
    lines += [f"{key}: {_text(value)}" for key, value in sorted(node.attrs.items())]
    return lines


def _text(value: AttrValue) -> str:
    """Format an attribute, including the values of a small tensor."""
    text = attribute_text(value)
    if value.kind != "tensor" or not 0 < value.value.size <= _FEW:
        return text
    try:
        return f"{text} {str(value.value.array().tolist())[:_LONGEST]}"
    except MobileprepError:
        return text


def _constant_size(node: Node) -> tuple[int, int]:
    """Return the number of elements and bytes of a constant's tensor."""
    value = node.attrs.get("value")
    if node.op != "Const" or value is None or value.kind != "tensor":
        return 0, 0
    return value.value.size, value.value.nbytes


MOST_NODES: Final = 50_000
"""Maximum number of nodes on a page, because browsers load larger ones slowly."""
_MOST_TEXT: Final = 16 << 20


def left_out(graph: Graph) -> str:
    """Return the reason for omitting a graph's nodes from a page, or an empty string."""
    if len(graph) > MOST_NODES:
        return f"it has {len(graph):,} nodes; the page shows at most {MOST_NODES:,}"
    text = sum(len(node.name) for node in graph)
    if text > _MOST_TEXT:
        return f"the names of its nodes have {text:,} letters, and a page has {_MOST_TEXT:,}"
    return ""


_MOST: Final = 20_000
_LONGEST_CHANGE: Final = 300


class StepChanges(Struct, frozen=True):
    """Changes of a step to the nodes of a graph.

    Args:
        renamed: pairs of the old and the new name of renamed nodes.
        changes: fields of each ``GraphDifference``: kind, name after the step, detail, formatted
            values before and after, and for constants the largest difference or None.
        left_out: number of omitted changes.
    """

    renamed: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, str, str, str, str, float | None], ...]
    left_out: int


def step_changes(before: Graph, after: Graph) -> StepChanges:
    """Return the nodes that a step added, removed, or changed.

    If both graphs have the same sequence of ops, nodes with other names count as renamed.
    """
    if before is after:
        return StepChanges((), (), 0)
    names = _new_names(before, after)
    differences = compare_graphs(renamed(before, names) if names else before, after)
    rows = []
    for difference in differences[:_MOST]:
        data = difference.as_data()
        texts = (_short(data["before"]), _short(data["after"]))
        rows.append((difference.kind, difference.name, difference.detail, *texts, data["largest"]))
    return StepChanges(tuple(names.items()), tuple(rows), max(len(differences) - _MOST, 0))


def _new_names(before: Graph, after: Graph) -> dict[str, str]:
    pairs = list(zip(before, after, strict=False))
    if len(before) != len(after) or any(a.op != b.op for a, b in pairs):
        return {}
    names = {a.name: b.name for a, b in pairs if a.name != b.name}
    # Reordered nodes have names that existed before.
    return {} if names.keys() & set(names.values()) else names


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CHANGE else f"{text[: _LONGEST_CHANGE - 3]}..."


_MOST_TENSORS: Final = 32
_FEWEST_ELEMENTS: Final = 16
_BINS: Final = 32
# Number of values that show a distribution, since reading millions would slow builds down. They are
# read in runs, so that only little of a file is read.
_LOOKED_AT: Final = 1 << 16
_RUNS: Final = 16


class Spread(Struct, frozen=True):
    """Distribution of the values of a constant.

    Args:
        node: node name.
        dtype: dtype of the constant.
        elements: number of elements.
        low: minimum of the examined values, without NaN and infinity.
        high: maximum of the examined values, without NaN and infinity.
        zeros: fraction of the examined values that are 0.
        counts: histogram with bins of equal width from ``low`` to ``high``.
        looked_at: number of examined values; for large constants, evenly spaced runs.
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
    """Return the distributions of the 32 largest numeric constants, sorted by size in bytes."""
    chosen = sorted(_constants(graph), key=lambda c: (-c[1].nbytes, c[0]))[:_MOST_TENSORS]
    spreads = (_spread(name, tensor) for name, tensor in chosen)
    return tuple(spread for spread in spreads if spread is not None)


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
    # ml_dtypes such as bfloat16 have kind V.
    return np.dtype(kind).kind in "fiuV"  # type: ignore[call-overload]


def _spread(name: str, tensor: Tensor) -> Spread | None:
    try:
        flat = tensor.array().reshape(-1)
    except MobileprepError:
        return None  # running the graph reports values that do not fit the shape
    values = _sample(flat).astype(np.float64)
    looked_at = values.size
    finite = np.isfinite(values)
    if not finite.all():
        values = values[finite]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    step = (high - low) / _BINS
    # If the difference of the ends overflows, the values are not weights of a network.
    if not np.isfinite(step):
        return None
    zeros = values.size - int(np.count_nonzero(values))
    # In place, because allocating memory takes longer than the arithmetic.
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

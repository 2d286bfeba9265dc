"""The nodes of a graph in columns of numbers, for the report page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mobileprep.errors import MobileprepError
from mobileprep.frozen import dataclass
from mobileprep.inspection.attribute_text import attribute_text
from mobileprep.inspection.costs import node_flops
from mobileprep.inspection.drawing import shape_text
from mobileprep.inspection.page_limits import left_out
from mobileprep.ir.attrs import AttrValue, TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ops.shape_inference import infer_shapes

# Elements of a constant that is shown whole, and letters of that.
_FEW: Final = 8
_LONGEST: Final = 200

Shapes = Mapping[str, tuple[TensorShape, ...]]


@dataclass(frozen=True)
class NodeTable:
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
        graph: the graph.
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

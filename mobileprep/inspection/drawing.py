"""What is drawn of a graph: all of it, the surroundings of a node, or its name scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.inspection.visible import plain, shortened
from mobileprep.ir.attrs import AttrValue, TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import CONTROL, Ref
from mobileprep.ops.modules import family_of


@dataclass(frozen=True)
class Box:
    """A node, or a whole name scope.

    Args:
        id: the node's name; of a scope, its name with a slash at the end.
        op: the op; empty for a scope.
        nodes: how many nodes it stands for.
    """

    id: str
    op: str
    nodes: int = 1


@dataclass(frozen=True)
class Arrow:
    """Tensors, or control dependencies, between two boxes.

    Args:
        source: the id of the box that they come from.
        target: the id of the one that takes them.
        label: the shapes of the tensors.
        is_control: whether they carry nothing.
    """

    source: str
    target: str
    label: str = ""
    is_control: bool = False


@dataclass(frozen=True)
class Drawing:
    """Boxes in the graph's order, and arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawn(
    graph: Graph, *, collapse: int = 0, shapes: Mapping[str, tuple[TensorShape, ...]] | None = None
) -> Drawing:
    """What to draw of a graph.

    Args:
        graph: the graph; inputs that are not there are left out.
        collapse: how many parts of names to show: what lies deeper is one box for each scope; 0
            for all nodes.
        shapes: those of each node's outputs, for labels.
    """
    boxes: dict[str, Box] = {}
    places: dict[str, str] = {}
    for node in graph:
        box = _box(node, collapse)
        known = boxes.get(box.id)
        boxes[box.id] = box if known is None else Box(box.id, "", known.nodes + 1)
        places[node.name] = box.id
    labels: dict[tuple[str, str, bool], dict[str, None]] = {}
    for node in graph:
        for ref in node.inputs:
            ends = places.get(ref.node), places[node.name]
            if ends[0] is None or (ends[0] == ends[1] and collapse):
                continue
            known_labels = labels.setdefault((ends[0], ends[1], ref.is_control), {})
            known_labels[_label(ref, shapes or {})] = None
    arrows = [Arrow(a, b, _joined(told), is_control) for (a, b, is_control), told in labels.items()]
    return Drawing(tuple(boxes.values()), tuple(arrows))


def surroundings(graph: Graph, name: str, radius: int) -> Graph:
    """The nodes that at most so many arrows, followed either way, lead to from a node.

    Inputs from elsewhere are left out.

    Raises:
        UsageError: there is no such node.
    """
    if name not in graph:
        message = f"there is no node {name!r} in the graph"
        raise UsageError(message, nearest_hint(name, graph.by_name))
    found = {name}
    rim: Iterable[str] = (name,)
    for _ in range(radius):
        near = {r.node for n in rim for r in graph[n].inputs if r.node in graph}
        near.update(c.name for n in rim for c in graph.consumers.get(n, ()))
        rim = near - found
        if not rim:
            break
        found |= near
    kept = (n for n in graph if n.name in found)
    return graph.with_nodes(
        n.with_inputs(tuple(r for r in n.inputs if r.node in found)) for n in kept
    )


def shape_text(shape: TensorShape) -> str:
    """A shape as pictures have it: ``?x28x28x1``."""
    if shape is None:
        return "?"
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _box(node: Node, collapse: int) -> Box:
    parts = node.name.split("/")
    if not collapse or len(parts) <= collapse:
        return Box(node.name, node.op)
    return Box("/".join(parts[:collapse]) + "/", "")


def _label(ref: Ref, shapes: Mapping[str, tuple[TensorShape, ...]]) -> str:
    known = shapes.get(ref.node, ())
    return shape_text(known[ref.index]) if 0 <= ref.index < len(known) else ""


def _joined(labels: Iterable[str]) -> str:
    told = [label for label in labels if label]
    return told[0] if len(told) == 1 else f"{len(told)} shapes" if told else ""


_LONGEST: Final = 200


def attribute_text(value: AttrValue) -> str:
    """An attribute in at most 200 characters; of a tensor what it is, not what it holds."""
    found = value.value
    if isinstance(found, DType):
        return found.short
    if value.kind == "shape":
        return shape_text(found)
    if isinstance(found, bytes):
        return found[:_LONGEST].decode("utf-8", "backslashreplace")
    text = str(found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


_WIDTH: Final = 60
# Backgrounds that black text is read on, by the family of the op in TensorFlow's API.
_COLORS: Final = {
    "array": "#d8dee9",
    "audio": "#c9e4de",
    "control_flow": "#f7d9c4",
    "data_flow": "#f2e2ba",
    "image": "#c6def1",
    "io": "#e2e2df",
    "linalg": "#dbcdf0",
    "lookup": "#faedcb",
    "math": "#cfe8b9",
    "nn": "#a9d6e5",
    "quantized": "#f9c6c9",
    "random": "#f2c6de",
    "sparse": "#d2d2cf",
    "strings": "#faedcb",
}
_PLAIN: Final = "#ffffff"
_SCOPE: Final = "#eeeeee"


def original_dot(graph: Graph) -> Iterator[str]:
    """The lines that the original ``graph_to_dot`` writes, names escaped where it forgot to."""
    yield "digraph graphname {"
    for node in graph:
        name = _quoted(node.name)
        yield f"  {name} [label={_quoted(node.op)}];"
        for ref in node.inputs:
            yield f"  {_quoted(ref.node)} -> {name};"
    yield "}"


def dot(drawing: Drawing, *, colors: bool) -> Iterator[str]:
    """A drawing line by line, each box with its name and its op.

    Args:
        drawing: what to draw.
        colors: whether boxes have the color of their op's family.
    """
    yield "digraph graphname {"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    for box in drawing.boxes:
        yield f"  {_quoted(box.id)} [label={_box_label(box)}{_filled(box, colors=colors)}];"
    yield from _arrows(drawing, "")
    yield "}"


def cluster(
    drawing: Drawing, title: str, *, fills: Mapping[str, str], notes: Mapping[str, str]
) -> Iterator[str]:
    """A drawing as a part, with a title, of a larger one that may have the same names elsewhere.

    Args:
        drawing: what to draw.
        title: what stands above it.
        fills: colors of boxes, by id; others are white.
        notes: third lines of boxes, by id.
    """
    prefix = f"{title}/"
    yield f"  subgraph {_quoted(f'cluster {title}')} {{"
    yield f"  label={_quoted(title)};"
    for box in drawing.boxes:
        fill = fills.get(box.id, _PLAIN)
        label = _box_label(box, notes.get(box.id, ""))
        yield f'  {_quoted(prefix + box.id)} [label={label}, fillcolor="{fill}"];'
    yield from _arrows(drawing, prefix)
    yield "  }"


def _arrows(drawing: Drawing, prefix: str) -> Iterator[str]:
    for arrow in drawing.arrows:
        ends = _quoted(prefix + arrow.source), _quoted(prefix + arrow.target)
        yield f"  {ends[0]} -> {ends[1]}{_looks(arrow)};"


def _box_label(box: Box, note: str = "") -> str:
    second = shortened(box.op, _WIDTH) if box.op else f"{box.nodes} nodes"
    lines = [shortened(box.id, _WIDTH), second, *([shortened(note, _WIDTH)] if note else [])]
    # The break between the lines is DOT's own escape, all others are taken for what they are.
    joined = "\\n".join(_quoted(line)[1:-1] for line in lines)
    return f'"{joined}"'


def _filled(box: Box, *, colors: bool) -> str:
    if not box.op:
        return f', fillcolor="{_SCOPE}"'
    return f', fillcolor="{_COLORS.get(family_of(box.op), _PLAIN)}"' if colors else ""


def _looks(arrow: Arrow) -> str:
    looks = [f"label={_quoted(arrow.label)}"] if arrow.label else []
    looks += ["style=dashed"] if arrow.is_control else []
    return f" [{', '.join(looks)}]" if looks else ""


def _quoted(text: str) -> str:
    """A text in double quotes: controls told in escapes, all backslashes doubled."""
    shown = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown}"'


MAIN: Final = "main"
"""The id of the graph itself; functions have their names."""

_GRADIENT: Final = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e8590c"})

Shapes = Mapping[str, tuple[TensorShape, ...]]


def graph_collection(graph: Graph, label: str, shapes: Shapes) -> dict[str, Any]:
    """A graph and its functions.

    Args:
        graph: the graph; inputs that are not there are left out.
        label: what to call it.
        shapes: those of each node's outputs, as far as they are known.
    """
    functions = graph.library.functions
    graphs = [{"id": _main(graph), "nodes": _nodes(graph.nodes, shapes, functions)}]
    graphs += [{"id": n, "nodes": _nodes(f.nodes, {}, functions)} for n, f in functions.items()]
    return {"label": label, "graphs": graphs}


def node_data(graph: Graph, values: Mapping[str, float]) -> dict[str, Any]:
    """A number for each of some nodes of the graph, colored from the least to the most."""
    results = {name: {"value": value} for name, value in values.items()}
    return {_main(graph): {"results": results, "gradient": list(_GRADIENT)}}


def _main(graph: Graph) -> str:
    """The id of the graph itself, which no function has: their names hold no slash."""
    return f"{MAIN}/" if MAIN in graph.library.functions else MAIN


def _nodes(nodes: Sequence[Node], shapes: Shapes, functions: Iterable[str]) -> list[dict[str, Any]]:
    names = {n.name for n in nodes}
    known = set(functions)
    return [_node(n, names, shapes.get(n.name, ()), known) for n in nodes]


def _node(
    node: Node, names: set[str], shapes: Sequence[TensorShape], functions: set[str]
) -> dict[str, Any]:
    told = [{"key": "name", "value": node.name}]
    told += [{"key": "device", "value": node.device}] if node.device else []
    told += [{"key": k, "value": attribute_text(v)} for k, v in sorted(node.attrs.items())]
    made: dict[str, Any] = {
        "id": node.name,
        "label": node.op,
        "namespace": node.name.rpartition("/")[0],
        "attrs": told,
        "incomingEdges": [
            {
                "sourceNodeId": ref.node,
                "sourceNodeOutputId": "control" if ref.index == CONTROL else str(ref.index),
                "targetNodeInputId": str(slot),
            }
            for slot, ref in enumerate(node.inputs)
            if ref.node in names
        ],
        "outputsMetadata": [
            {"id": str(i), "attrs": [{"key": "shape", "value": shape_text(shape)}]}
            for i, shape in enumerate(shapes)
        ],
    }
    called = sorted({f for v in node.attrs.values() if (f := _function(v)) in functions})
    if node.op in functions:
        called.append(node.op)
    return made | ({"subgraphIds": called} if called else {})


def _function(value: AttrValue) -> str:
    return value.value.name if value.kind == "func" else ""

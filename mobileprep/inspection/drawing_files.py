"""Graph drawings: images, files for viewers, and event files for TensorBoard."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.core.files import NONSENSE, read_bytes, write_bytes, write_text
from mobileprep.core.printable import plain, shortened
from mobileprep.errors import (
    CorruptFileError,
    MobileprepError,
    UnsupportedError,
    UsageError,
    nearest_hint,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tf_record import framed
from mobileprep.formats.wire import delimited
from mobileprep.freezing.loading import find_source
from mobileprep.graph.attrs import AttrValue, TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import CONTROL, Ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.inspection.costs import node_flops
from mobileprep.ops.registry import family_of
from mobileprep.ops.shape_inference import infer_shapes

Format = Literal["dot", "svg", "png", "model-explorer", "tensorboard"]
FORMATS: Final[tuple[Format, ...]] = ("dot", "svg", "png", "model-explorer", "tensorboard")

_VIEWERS: Final[Mapping[Format, str]] = {
    "model-explorer": "Model Explorer",
    "tensorboard": "TensorBoard",
}
# Graphviz takes minutes for larger graphs.
_MANY: Final = 2_000
_LARGEST: Final = 64 << 20


class DrawingOptions(Struct, frozen=True):
    """Options of a drawing. The defaults draw like the original tool.

    Args:
        collapse: number of name components to show; 0 for all nodes.
        around: node whose neighborhood to draw; empty for all nodes.
        radius: maximum number of edges from ``around``.
        colors: whether to color boxes by op family.
        shapes: whether to label edges with tensor shapes.
    """

    collapse: int = 0
    around: str = ""
    radius: int = 2
    colors: bool = False
    shapes: bool = False


def draw(
    model: Graph | FilePath,
    path: FilePath,
    *,
    format: Format | None = None,
    collapse: int = 0,
    around: str = "",
    radius: int = 2,
    colors: bool = False,
    shapes: bool = False,
    damage: FilePath | None = None,
    warn: Warn | None = None,
) -> list[Path]:
    """Draw a graph as DOT, SVG, or PNG, or write it for Model Explorer or TensorBoard.

    Args:
        model: a graph, or the path of a model, which is drawn as it was saved.
        path: the file to write. Model Explorer gets further files with numbers next to it, and
            TensorBoard a directory.
        format: ``dot``, ``svg``, ``png``, ``model-explorer``, or ``tensorboard``; by default the
            extension decides, and other extensions mean ``dot``.
        collapse: number of name parts to draw; 0 draws every node.
        around: the node whose neighbors to draw; empty for the whole graph.
        radius: largest number of edges from ``around``.
        colors: color nodes by the family of their op.
        shapes: label edges with the shapes of their tensors.
        damage: output of ``debug-quantization --json``, drawn as an overlay in Model Explorer.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        The written files.

    Raises:
        UsageError: options exclude each other, or a node is not in the graph.
        CorruptFileError: a file is missing or damaged.
        UnsupportedError: Graphviz is not installed, or cannot draw the graph.
        ArtifactError: a file cannot be written.
    """
    warn, target = warn or as_warning, Path(path)
    by_name: dict[str, Format] = {".svg": "svg", ".png": "png"}
    kind = format or by_name.get(target.suffix.lower(), "dot")
    if kind in _VIEWERS and collapse:
        message = f"{_VIEWERS[kind]} collapses scopes itself"
        raise UsageError(message, "remove 'collapse'")
    if kind != "model-explorer" and damage:
        message = "'damage' is an overlay of the format model-explorer"
        raise UsageError(message, "remove it, or select this format")
    graph = model if isinstance(model, Graph) else find_source(Path(model)).source.graph
    options = DrawingOptions(collapse, around, radius, colors, shapes)
    if kind == "model-explorer":
        label = "graph" if isinstance(model, Graph) else Path(model).name
        errors = None if damage is None else Path(damage)
        return write_model_explorer(target, graph, label, options, warn, damage=errors)
    if kind == "tensorboard":
        return [write_event_file(target, _part(graph, options), shapes_of(graph, warn))]
    text = dot_text(graph, options, warn)
    if kind == "dot":
        write_text(target, text)
    else:
        write_image(target, text, kind)
    return [target]


def dot_text(graph: Graph, options: DrawingOptions, warn: Callable[[str], None]) -> str:
    """Format a graph as DOT. Without options, the output is that of ``graph_to_dot``."""
    shapes = shapes_of(graph, warn) if options.shapes else None
    part = _part(graph, options)
    if not (options.collapse or options.colors or options.shapes):
        return "\n".join(original_dot(part)) + "\n"
    drawing = drawn(part, collapse=options.collapse, shapes=shapes)
    if len(drawing.boxes) > _MANY:
        warn(f"Graphviz takes long for {len(drawing.boxes)} boxes: collapse scopes")
    return "\n".join(dot(drawing, colors=options.colors)) + "\n"


def write_image(path: Path, text: str, kind: Format) -> None:
    """Render DOT as an image with Graphviz.

    Raises:
        UnsupportedError: Graphviz is not installed, or cannot draw the graph.
    """
    program = shutil.which("dot")
    if program is None:
        message = (
            f"an image of format {kind} needs the program 'dot' of Graphviz, which is not installed"
        )
        raise UnsupportedError(message, "install graphviz, or write DOT: --format dot", str(path))
    done = subprocess.run(
        [program, f"-T{kind}"], input=text.encode(), capture_output=True, check=False
    )
    if done.returncode or not done.stdout:
        output = done.stderr.decode("utf-8", "backslashreplace").strip()[-500:]
        message = f"Graphviz could not draw it: {output!r}"
        raise UnsupportedError(message, "draw less: --collapse or --around", str(path))
    write_bytes(path, done.stdout)


def write_model_explorer(
    path: Path,
    graph: Graph,
    label: str,
    options: DrawingOptions,
    warn: Callable[[str], None],
    *,
    damage: Path | None = None,
) -> list[Path]:
    """Write a graph for Google's Model Explorer, with an overlay for each number next to it.

    Args:
        path: path of the graph's file; the overlays have the extensions ``.bytes.json``,
            ``.flops.json``, and ``.error.json``.
    """
    errors = None if damage is None else _errors(damage, graph)
    shapes = shapes_of(graph, warn)
    numbers: dict[str, Mapping[str, float]] = {
        "bytes": {n.name: n.attr_tensor("value").nbytes for n in graph if _is_constant(n)},
        "flops": node_flops(graph, shapes),
    }
    if errors is not None:
        numbers["error"] = errors
    part = _part(graph, options)
    _write(path, graph_collection(part, label, shapes))
    written = [path]
    for name, values in numbers.items():
        overlay = path.with_suffix(f".{name}.json")
        _write(overlay, node_data(part, {n: v for n, v in values.items() if n in part}))
        written.append(overlay)
    return written


def shapes_of(graph: Graph, warn: Callable[[str], None]) -> Mapping[str, tuple[TensorShape, ...]]:
    """Infer the shapes of all tensors. Warn and return none if the graph is malformed."""
    try:
        return infer_shapes(graph, recorded=True)
    except MobileprepError as error:
        warn(f"shapes are not known: {error}")
        return {}


def _part(graph: Graph, options: DrawingOptions) -> Graph:
    return surroundings(graph, options.around, options.radius) if options.around else graph


def _is_constant(node: Node) -> bool:
    value = node.attrs.get("value")
    return node.op == "Const" and value is not None and value.kind == "tensor"


def _errors(path: Path, graph: Graph) -> dict[str, float]:
    """Return the error of each tensor's node: the negated signal-to-noise ratio in dB."""
    try:
        report = json.loads(read_bytes(path, limit=_LARGEST))
        ratios = {
            t["tensor"].partition(":")[0]: float(t["damage"]["sqnr"]) for t in report["tensors"]
        }
    except NONSENSE as error:
        message = "is not what 'mobileprep debug-quantization --json' prints"
        raise CorruptFileError(message, "write it again", str(path)) from error
    finite = {n: -v for n, v in ratios.items() if n in graph and abs(v) < float("inf")}
    if not finite:
        message = "names no tensor of the graph"
        raise CorruptFileError(message, "draw the graph before quantize_nodes", str(path))
    return finite


def _write(path: Path, data: Any) -> None:  # noqa: ANN401 - JSON
    # ASCII only, so that no viewer sees bidirectional control characters.
    write_text(path, json.dumps(data, ensure_ascii=True, indent=1) + "\n")


class Box(Struct, frozen=True):
    """A node or a whole name scope.

    Args:
        id: name of the node, or of the scope with a trailing slash.
        op: the op; empty for a scope.
        nodes: number of nodes in the box.
    """

    id: str
    op: str
    nodes: int = 1


class Arrow(Struct, frozen=True):
    """Tensors or control dependencies between two boxes.

    Args:
        source: ID of the producing box.
        target: ID of the consuming box.
        label: shapes of the tensors.
        is_control: whether it is a control dependency.
    """

    source: str
    target: str
    label: str = ""
    is_control: bool = False


class Drawing(Struct, frozen=True):
    """Boxes in graph order, and arrows between them."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawn(
    graph: Graph, *, collapse: int = 0, shapes: Mapping[str, tuple[TensorShape, ...]] | None = None
) -> Drawing:
    """Convert a graph to a drawing.

    Args:
        collapse: number of name components to show; deeper nodes are one box per scope; 0 for all
            nodes.
    """
    boxes: dict[str, Box] = {}
    places: dict[str, str] = {}
    for node in graph:
        box = _box(node, collapse)
        earlier = boxes.get(box.id)
        boxes[box.id] = box if earlier is None else Box(box.id, "", earlier.nodes + 1)
        places[node.name] = box.id
    labels: dict[tuple[str, str, bool], dict[str, None]] = {}
    for node in graph:
        for ref in node.inputs:
            ends = places.get(ref.node), places[node.name]
            if ends[0] is None or (ends[0] == ends[1] and collapse):
                continue
            edge_labels = labels.setdefault((ends[0], ends[1], ref.is_control), {})
            edge_labels[_label(ref, shapes or {})] = None
    arrows = [
        Arrow(a, b, _joined(texts), is_control) for (a, b, is_control), texts in labels.items()
    ]
    return Drawing(tuple(boxes.values()), tuple(arrows))


def surroundings(graph: Graph, name: str, radius: int) -> Graph:
    """Return the nodes within a number of edges, in either direction, from a node.

    Inputs from other nodes are removed.
    """
    if name not in graph:
        message = f"the graph has no node {name!r}"
        raise UsageError(message, nearest_hint(name, graph.by_name))
    names = {name}
    rim: Iterable[str] = (name,)
    for _ in range(radius):
        near = {r.node for n in rim for r in graph[n].inputs if r.node in graph}
        near.update(c.name for n in rim for c in graph.consumers.get(n, ()))
        rim = near - names
        if not rim:
            break
        names |= near
    nodes = (n for n in graph if n.name in names)
    return graph.with_nodes(
        n.with_inputs(tuple(r for r in n.inputs if r.node in names)) for n in nodes
    )


def shape_text(shape: TensorShape) -> str:
    """Format a shape for drawings: ``?x28x28x1``."""
    if shape is None:
        return "?"
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _box(node: Node, collapse: int) -> Box:
    parts = node.name.split("/")
    if not collapse or len(parts) <= collapse:
        return Box(node.name, node.op)
    return Box("/".join(parts[:collapse]) + "/", "")


def _label(ref: Ref, shapes: Mapping[str, tuple[TensorShape, ...]]) -> str:
    outputs = shapes.get(ref.node, ())
    return shape_text(outputs[ref.index]) if 0 <= ref.index < len(outputs) else ""


def _joined(labels: Iterable[str]) -> str:
    texts = [label for label in labels if label]
    return texts[0] if len(texts) == 1 else f"{len(texts)} shapes" if texts else ""


_LONGEST: Final = 200


def attribute_text(value: AttrValue) -> str:
    """Format an attribute in at most 200 characters. Tensors are shown without their values."""
    content = value.value
    if isinstance(content, DType):
        return content.short
    if value.kind == "shape":
        return shape_text(content)
    if isinstance(content, bytes):
        return content[:_LONGEST].decode("utf-8", "backslashreplace")
    text = str(content)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


_WIDTH: Final = 60
# Background colors for black text, by op family in TensorFlow's API.
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
    """Yield the lines of the original ``graph_to_dot``, with all names escaped."""
    yield "digraph graphname {"
    for node in graph:
        name = _quoted(node.name)
        yield f"  {name} [label={_quoted(node.op)}];"
        for ref in node.inputs:
            yield f"  {_quoted(ref.node)} -> {name};"
    yield "}"


def dot(drawing: Drawing, *, colors: bool) -> Iterator[str]:
    """Yield the lines of a drawing. Each box shows its name and its op."""
    yield "digraph graphname {"
    yield "  node [shape=box, style=filled, fillcolor=white];"
    for box in drawing.boxes:
        yield f"  {_quoted(box.id)} [label={_box_label(box)}{_filled(box, colors=colors)}];"
    yield from _arrows(drawing, "")
    yield "}"


def cluster(
    drawing: Drawing, title: str, *, fills: Mapping[str, str], notes: Mapping[str, str]
) -> Iterator[str]:
    """Yield a drawing as a titled cluster of a larger one, with unique box IDs."""
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
    # The line break is DOT's own escape. All other characters are literal.
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
    """Quote a string, with control characters and backslashes escaped."""
    shown = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown}"'


MAIN: Final = "main"
"""ID of the graph itself. Functions have their names as IDs."""

_GRADIENT: Final = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e8590c"})

Shapes = Mapping[str, tuple[TensorShape, ...]]


def graph_collection(graph: Graph, label: str, shapes: Shapes) -> dict[str, Any]:
    """Return a graph and its functions.

    Args:
        shapes: shapes of each node's outputs, as far as they are known.
    """
    functions = graph.library.functions
    graphs = [{"id": _main(graph), "nodes": _nodes(graph.nodes, shapes, functions)}]
    graphs += [{"id": n, "nodes": _nodes(f.nodes, {}, functions)} for n, f in functions.items()]
    return {"label": label, "graphs": graphs}


def node_data(graph: Graph, values: Mapping[str, float]) -> dict[str, Any]:
    """Return numbers for nodes of the graph, colored from the smallest to the largest."""
    results = {name: {"value": value} for name, value in values.items()}
    return {_main(graph): {"results": results, "gradient": list(_GRADIENT)}}


def _main(graph: Graph) -> str:
    """Return the ID of the graph itself, with a slash if a function has the same name."""
    return f"{MAIN}/" if MAIN in graph.library.functions else MAIN


def _nodes(nodes: Sequence[Node], shapes: Shapes, functions: Iterable[str]) -> list[dict[str, Any]]:
    names = {n.name for n in nodes}
    function_names = set(functions)
    return [_node(n, names, shapes.get(n.name, ()), function_names) for n in nodes]


def _node(
    node: Node, names: set[str], shapes: Sequence[TensorShape], functions: set[str]
) -> dict[str, Any]:
    attributes = [{"key": "name", "value": node.name}]
    attributes += [{"key": "device", "value": node.device}] if node.device else []
    attributes += [{"key": k, "value": attribute_text(v)} for k, v in sorted(node.attrs.items())]
    data: dict[str, Any] = {
        "id": node.name,
        "label": node.op,
        "namespace": node.name.rpartition("/")[0],
        "attrs": attributes,
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
    return data | ({"subgraphIds": called} if called else {})


def _function(value: AttrValue) -> str:
    return value.value.name if value.kind == "func" else ""


FILE_NAME: Final = "events.out.tfevents.0.mobileprep"
"""Name of the file in a log directory. TensorBoard reads files with ``tfevents`` in their names."""

# TensorBoard does not show larger attributes.
_MOST_SHOWN: Final = 1024
_SHAPES: Final = "_output_shapes"
# Fields of `Event` in event.proto. The time, a double, comes first.
_TIME: Final = b"\x09" + bytes(8)
_VERSION, _GRAPH = 3, 4
_FORMAT: Final = b"brain.Event:2"


def write_event_file(
    folder: Path, graph: Graph, shapes: Mapping[str, Sequence[TensorShape]]
) -> Path:
    """Write a graph for TensorBoard, without the values of large constants.

    The attribute ``_output_shapes`` holds the shapes, which TensorBoard shows on edges. The time of
    the events is 0, so that the same graph gives the same bytes.

    Args:
        folder: log directory.
        shapes: shapes of each node's outputs, as far as they are known.

    Returns:
        The event file.

    Source: ``event.proto`` of TensorFlow, and its ``EventsWriter``, which writes the version first.
    """
    shown = graph.with_nodes(_shown(node, shapes.get(node.name, ())) for node in graph)
    events = (delimited(_VERSION, _FORMAT), delimited(_GRAPH, graph_to_bytes(shown)))
    path = folder / FILE_NAME
    write_bytes(path, b"".join(framed(_TIME + event) for event in events))
    return path


def _shown(node: Node, shapes: Sequence[TensorShape]) -> Node:
    attrs = {name: value for name, value in node.attrs.items() if not _is_large(value)}
    if shapes:
        attrs[_SHAPES] = AttrValue("list(shape)", tuple(shapes))
    return replace(node, attrs=attrs)


def _is_large(value: AttrValue) -> bool:
    return value.kind == "tensor" and value.value.nbytes > _MOST_SHOWN

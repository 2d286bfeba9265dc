"""Graphs in the language DOT of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mobileprep.inspection.drawing import Arrow, Box, Drawing
from mobileprep.inspection.visible import plain, shortened
from mobileprep.ir.graph import Graph
from mobileprep.ops.modules import family_of

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

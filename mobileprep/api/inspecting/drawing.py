"""Graphs as pictures, and as files for viewers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from mobileprep.api.models import find_source
from mobileprep.core.files import read_bytes, write_bytes, write_text
from mobileprep.errors import CorruptFileError, MobileprepError, UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.inspection.costs import node_flops
from mobileprep.inspection.drawing import (
    dot,
    drawn,
    graph_collection,
    node_data,
    original_dot,
    surroundings,
)
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.plan.record_data import NONSENSE

Format = Literal["dot", "svg", "png", "model-explorer"]
FORMATS: Final[tuple[Format, ...]] = ("dot", "svg", "png", "model-explorer")

# Graphviz takes minutes for more.
_MANY: Final = 2_000
_LARGEST: Final = 64 << 20


@dataclass(frozen=True)
class DrawingOptions:
    """How a graph is drawn; all as they are for the original's drawing.

    Args:
        collapse: how many parts of names to show; 0 for all nodes.
        around: the node whose surroundings to draw; empty for all.
        radius: how many arrows away from it.
        colors: whether boxes have the color of their op's family.
        shapes: whether arrows have the shapes of their tensors.
    """

    collapse: int = 0
    around: str = ""
    radius: int = 2
    colors: bool = False
    shapes: bool = False


def read_drawable(path: Path) -> Graph:
    """The graph of a model of any kind, as it was saved.

    Raises:
        MobileprepError: as ``find_source``.
    """
    return find_source(path).source.graph


def dot_text(graph: Graph, options: DrawingOptions, warn: Callable[[str], None]) -> str:
    """A graph in DOT; with no option in the form of the original ``graph_to_dot``.

    Args:
        graph: the graph.
        options: what to draw of it.
        warn: told what could not be drawn.

    Raises:
        UsageError: there is no node to draw the surroundings of.
    """
    shapes = shapes_of(graph, warn) if options.shapes else None
    part = _part(graph, options)
    if not (options.collapse or options.colors or options.shapes):
        return "\n".join(original_dot(part)) + "\n"
    drawing = drawn(part, collapse=options.collapse, shapes=shapes)
    if len(drawing.boxes) > _MANY:
        warn(f"Graphviz takes long for {len(drawing.boxes)} boxes: collapse scopes")
    return "\n".join(dot(drawing, colors=options.colors)) + "\n"


def write_picture(path: Path, text: str, kind: Format) -> None:
    """Have Graphviz draw a text in DOT.

    Raises:
        UnsupportedError: Graphviz is not installed, or cannot draw it.
        ArtifactError: the file cannot be written.
    """
    program = shutil.which("dot")
    if program is None:
        message = f"a picture of kind {kind} is drawn by Graphviz, whose program 'dot' is not here"
        raise UnsupportedError(message, "install graphviz, or write DOT: --format dot", str(path))
    done = subprocess.run(
        [program, f"-T{kind}"], input=text.encode(), capture_output=True, check=False
    )
    if done.returncode or not done.stdout:
        told = done.stderr.decode("utf-8", "backslashreplace").strip()[-500:]
        message = f"Graphviz could not draw it: {told!r}"
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
    """Write a graph for Google's Model Explorer, and beside it an overlay for each number.

    Args:
        path: of the graph's file; the overlays' end in ``.bytes.json``, ``.flops.json`` and
            ``.error.json``.
        graph: the graph.
        label: what to call it.
        options: which part of it to write.
        warn: told what is not known.
        damage: what ``debug-quantization --json`` printed, for the third overlay.

    Returns:
        The files that were written.

    Raises:
        ArtifactError: a file cannot be written.
        CorruptFileError: the damage cannot be read.
        UsageError: there is no node to write the surroundings of.
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
        beside = path.with_suffix(f".{name}.json")
        _write(beside, node_data(part, {n: v for n, v in values.items() if n in part}))
        written.append(beside)
    return written


def shapes_of(graph: Graph, warn: Callable[[str], None]) -> Mapping[str, tuple[TensorShape, ...]]:
    """The shapes of all tensors; none of a broken graph, which is told."""
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
    """The error of each tensor's node: how many decibels it is below the signal, negated."""
    try:
        found = json.loads(read_bytes(path, limit=_LARGEST))
        told = {t["tensor"].partition(":")[0]: float(t["damage"]["sqnr"]) for t in found["tensors"]}
    except NONSENSE as error:
        message = "is not what 'mobileprep debug-quantization --json' prints"
        raise CorruptFileError(message, "write it anew", str(path)) from error
    finite = {n: -v for n, v in told.items() if n in graph and abs(v) < float("inf")}
    if not finite:
        message = "names no tensor of the graph"
        raise CorruptFileError(message, "draw the graph before quantize_nodes", str(path))
    return finite


def _write(path: Path, data: Any) -> None:  # noqa: ANN401 - JSON
    # Not beyond ASCII: no viewer then meets a mark that turns its text.
    write_text(path, json.dumps(data, ensure_ascii=True, indent=1) + "\n")

"""Draw the effect of each transform on its example, for docs/reference/transforms.md.

python tools/make_transform_images.py && python tools/make_schemas.py

Requires Graphviz and the development dependencies: pip install -e '.[dev]'.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

# Import from the checkout.
from mobileprep.graph.graph import Graph  # noqa: E402
from mobileprep.inspection.drawing_files import cluster, drawn  # noqa: E402
from mobileprep.inspection.node_table import step_changes  # noqa: E402
from mobileprep.transforms.base import Context, transform_names  # noqa: E402
from mobileprep.transforms.chains.chain import ChainStep, run_step  # noqa: E402
from tests.transforms.busy import write_files  # noqa: E402
from tests.transforms.examples import example  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images" / "transforms"
GRAPHVIZ: Final = "2.43.0"
_MOST: Final = 14
# Not counting neighbors that differ.
_MOST_NEIGHBORS: Final = 4
_MOST_PIECES: Final = 3
_REMOVED, _ADDED, _CHANGED = "#f9c6c9", "#cfe8b9", "#f2e2ba"
_NODES_OWN: Final = ("added", "removed", "op", "inputs", "device", "attribute", "constant")
_NOTED: Final = ("device", "attribute")
_NOTE_WIDTH: Final = 32
_FONT: Final = 'font-family="sans-serif" font-size="10.00" text-anchor="middle"'
_HEAD: Final = """\
digraph graphname {
  fontname="sans-serif"; fontsize=10; ranksep=0.3; nodesep=0.15; color="#999999";
  node [shape=box, style=filled, height=0.3, margin="0.08,0.04"];
  node [fontname="sans-serif", fontsize=10];
  edge [arrowsize=0.6];"""


@dataclass
class _Side:
    """One of the two graphs, with its changed nodes and the nodes to draw."""

    graph: Graph
    fills: dict[str, str]
    notes: dict[str, str]
    shown: set[str]

    def around(self, name: str) -> set[str]:
        """Return a node and its direct neighbors; empty if this graph does not contain the node."""
        if name not in self.graph:
            return set()
        near = {ref.node for ref in self.graph[name].inputs}
        return {name} | near | {user.name for user in self.graph.consumers.get(name, ())}

    def cut_out(self) -> Graph:
        """Return the graph of the nodes to draw; the drawing omits inputs that are not in it."""
        return self.graph.with_nodes(node for node in self.graph if node.name in self.shown)

    def lines(self, title: str) -> Iterator[str]:
        """Yield this side as DOT."""
        part = drawn(self.cut_out())
        title = f"{title}: {len(part.boxes)} of {len(self.graph)} nodes"
        return cluster(part, title, fills=self.fills, notes=self.notes)


def sources() -> dict[str, str]:
    """Return the DOT sources of the drawings, by transform; only transforms that change nodes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        found = {name: _source(name, folder) for name in transform_names()}
    return {name: source for name, source in found.items() if source}


def drawing(source: str) -> str:
    """Render DOT as a small SVG that contains the digest of its source."""
    command = ["dot", "-Tsvg"]
    svg = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (id|class|xmlns:xlink)="[^"]*"', "", svg)
    svg = re.sub(r' (text-anchor|font-family|font-size)="[^"]*"', "", svg)
    svg = re.sub(r' fill="#000000"(?=>)', "", svg)
    # Rounding to 0.1 points is not visible.
    svg = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), svg)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", ">\n<").strip()
    # SVG files differ between Graphviz versions and fonts, but their DOT source does not.
    return svg.replace("<svg", f'<svg data-source="{digest(source)}" {_FONT}', 1) + "\n"


def digest(source: str) -> str:
    """Return the digest of a DOT source, which the SVG contains."""
    return hashlib.sha256(source.encode()).hexdigest()


def main() -> None:
    """Draw all transforms, and remove the drawings of transforms that no longer exist."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    images = {IMAGES / f"{name}.svg": drawing(source) for name, source in sources().items()}
    for gone in set(IMAGES.glob("*.svg")) - images.keys():
        gone.unlink()
    for path, text in images.items():
        path.write_text(text, encoding="utf-8")


def _source(name: str, folder: Path) -> str:
    graph, options, inputs, outputs = example(name)
    step = ChainStep(name, {key: _found(value, folder) for key, value in options.items()})
    after = run_step(graph, step, Context(inputs, outputs, tf115=False)).graph
    sides, names = _sides(graph, after)
    if not any(side.fills for side in sides):
        return ""
    _choose(*sides, names)
    lines = [
        line
        for side, title in zip(sides, ("before", "after"), strict=True)
        for line in side.lines(title)
    ]
    return "\n".join([_HEAD, *lines, "}\n"])


def _found(value: Any, folder: Path) -> Any:  # noqa: ANN401 - an option of any type
    is_file = isinstance(value, str) and (folder / value).is_file()
    return str(folder / value) if is_file else value


def _sides(before: Graph, after: Graph) -> tuple[tuple[_Side, _Side], dict[str, str]]:
    """Return both graphs with their changed nodes, and the new names of renamed nodes."""
    changes = step_changes(before, after)
    names = dict(changes.renamed)
    old = {new: name for name, new in names.items()}
    a, b = (_Side(graph, {}, {}, set()) for graph in (before, after))
    for name, new in names.items():
        a.fills[name] = b.fills[new] = _CHANGED
    # If the op changed, changes of its attributes add no information.
    replaced = {name for kind, name, *_ in changes.changes if kind == "op"}
    for kind, name, detail, was, now, _ in changes.changes:
        if kind not in _NODES_OWN or not (name in after or name in before):
            continue
        if kind == "removed":
            a.fills[name] = _REMOVED
        elif kind == "added":
            b.fills[name] = _ADDED
        else:
            was_called = old.get(name, name)
            a.fills[was_called] = b.fills[name] = _CHANGED
            if kind in _NOTED and name not in replaced:
                a.notes.setdefault(was_called, _note(kind, detail, was))
                b.notes.setdefault(name, _note(kind, detail, now))
            elif kind == "constant":
                # The number and size of the differences may depend on the machine.
                b.notes.setdefault(name, "other values")
    return (a, b), names


def _note(kind: str, detail: str, value: str) -> str:
    told = f"{detail or kind}: {value or 'none'}"
    return told if len(told) <= _NOTE_WIDTH else f"{told[: _NOTE_WIDTH - 3]}..."


def _choose(a: _Side, b: _Side, names: Mapping[str, str]) -> None:
    """Choose the nodes to draw: the first changed nodes and their neighbors.

    Removed and added nodes come first, unconnected nodes last. A node that is in both graphs is
    drawn on both sides or on neither.
    """
    old = {new: name for name, new in names.items()}
    left = [n.name for n in a.graph if n.name in a.fills]
    left += [old.get(n.name, n.name) for n in b.graph if n.name in b.fills]

    def place(name: str) -> tuple[bool, bool]:
        new = names.get(name, name)
        alone = len(a.around(name)) < 2 and len(b.around(new)) < 2
        return alone, name in a.graph and new in b.graph

    left = sorted(dict.fromkeys(left), key=place)
    order = {name: i for i, name in enumerate(dict.fromkeys([*a.graph.by_name, *b.graph.by_name]))}
    pieces = 0
    while left:
        # Prefer nodes that are already drawn over starting a new piece.
        drawn_already = (n for n in left if n in a.shown or names.get(n, n) in b.shown)
        name = next(drawn_already, "")
        if not name and pieces == _MOST_PIECES:
            break
        pieces += not name
        name = name or left[0]
        left.remove(name)
        mine = a.around(name)
        its = {old.get(n, n) for n in b.around(names.get(name, name))}
        told = mine ^ its | {n for n in mine | its if n in a.fills or names.get(n, n) in b.fills}
        near = sorted((mine | its) - {name}, key=lambda n: (n not in told, order[n]))
        near = [name, *near[: _MOST_NEIGHBORS + len(told - {name})]]
        shown = (
            a.shown | {n for n in near if n in a.graph},
            b.shown | {names.get(n, n) for n in near if names.get(n, n) in b.graph},
        )
        if not (a.shown or b.shown):
            shown = (
                _first(a.graph, shown[0], name),
                _first(b.graph, shown[1], names.get(name, name)),
            )
        if max(map(len, shown)) <= _MOST:
            a.shown, b.shown = shown


def _first(graph: Graph, names: Iterable[str], name: str) -> set[str]:
    """Return the first nodes up to the limit, including the node ``name``."""
    inside = {n for n in names if n != name}
    kept = [n.name for n in graph if n.name in inside][: _MOST - 1]
    return {*kept, name} if name in graph else set(kept)


if __name__ == "__main__":
    main()

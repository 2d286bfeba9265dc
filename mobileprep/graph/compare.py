"""Compare graphs: added, removed, and changed nodes, and the elements of constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct

from mobileprep.core.arguments import FilePath
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.graph.tflite import is_tflite_file, read_tflite

# Number of elements to compare at once, so that they stay in the processor's cache.
_AT_ONCE: Final = 1 << 16


class GraphDifference(Struct, frozen=True):
    """A difference between two graphs.

    Args:
        kind: "added", "removed", "op", "inputs", "device", "attribute", "constant", "function", or
            "versions".
        name: name of the node or function; empty for the versions.
        detail: name of the attribute, or empty.
        before: value in the first graph, as text.
        after: value in the second graph, as text.
        largest: largest absolute difference of numeric constants with equal dtype and shape; NaN if
            elements are NaN or infinite on one side only.
    """

    kind: str
    name: str
    detail: str = ""
    before: str = ""
    after: str = ""
    largest: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return JSON data; ``largest`` is null if it is not finite."""
        largest = self.largest if self.largest is not None and math.isfinite(self.largest) else None
        return {
            "kind": self.kind,
            "name": self.name,
            "detail": self.detail,
            "before": self.before,
            "after": self.after,
            "largest": largest,
        }

    def __str__(self) -> str:
        if self.kind == "added":
            return f"+ {self.name} ({self.after})"
        if self.kind == "removed":
            return f"- {self.name} ({self.before})"
        what = f"{self.kind} {self.detail}".strip()
        whose = f"{self.name}: " if self.name else ""
        text = f"~ {whose}{what}: {self.before} became {self.after}"
        if self.largest is None:
            return text
        if math.isnan(self.largest):
            return f"{text}, not numbers on one side only"
        return f"{text}, largest difference {self.largest:g}"


def compare(
    a: Graph | FilePath, b: Graph | FilePath, *, tolerance: float = 0.0
) -> list[GraphDifference]:
    """Compare two graphs node by node, by name.

    Args:
        a: a graph, or the path of a GraphDef or ``.tflite`` file.
        b: the other graph.
        tolerance: largest absolute difference of float constants to ignore.

    Returns:
        Removed and changed nodes in the order of ``a``, then added nodes.

    Raises:
        CorruptFileError: if a file is missing or damaged.
        InvalidGraphError: if a graph is malformed.
    """
    return compare_graphs(_read(a), _read(b), tolerance=tolerance)


def _read(graph: Graph | FilePath) -> Graph:
    if isinstance(graph, Graph):
        return graph
    path = Path(graph)
    return read_tflite(path).graph if is_tflite_file(path) else read_graph(path)


def compare_graphs(a: Graph, b: Graph, *, tolerance: float = 0.0) -> list[GraphDifference]:
    """Return the changes from ``a`` to ``b``: removed and changed nodes, then added nodes.

    Args:
        a: the first graph.
        b: the second graph.
        tolerance: largest absolute difference of float constants to ignore. The order of control
            inputs is always ignored.
    """
    differences = _versions(a, b)
    differences += _nodes(a.by_name, b.by_name, "", tolerance)
    return differences + _functions(a.library, b.library, tolerance)


def _functions(a: Library, b: Library, tolerance: float) -> list[GraphDifference]:
    old, new = a.functions, b.functions
    differences = []
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            states = ("present", "absent") if name in old else ("absent", "present")
            differences.append(GraphDifference("function", name, "", *states))
            continue
        bodies = [{n.name: n for n in f.nodes} for f in (old[name], new[name])]
        differences += _nodes(bodies[0], bodies[1], f"{name}/", tolerance)
        if old[name].signature != new[name].signature or old[name].ret != new[name].ret:
            differences.append(GraphDifference("function", name, "signature", "one", "another"))
    return differences


def _versions(a: Graph, b: Graph) -> list[GraphDifference]:
    if a.versions == b.versions:
        return []
    before, after = (
        f"producer {g.versions.producer}, at least {g.versions.min_consumer}" for g in (a, b)
    )
    return [GraphDifference("versions", "", before=before, after=after)]


def _nodes(
    old: Mapping[str, Node], new: Mapping[str, Node], prefix: str, tolerance: float
) -> list[GraphDifference]:
    differences = []
    for name, node in old.items():
        if name not in new:
            differences.append(GraphDifference("removed", prefix + name, before=node.op))
        elif node is not new[name]:
            differences += _node(node, new[name], prefix + name, tolerance)
    added = [
        GraphDifference("added", prefix + n, after=x.op) for n, x in new.items() if n not in old
    ]
    return differences + added


def _node(a: Node, b: Node, name: str, tolerance: float) -> list[GraphDifference]:
    differences = []
    if a.op != b.op:
        differences.append(GraphDifference("op", name, before=a.op, after=b.op))
    if a.data_inputs != b.data_inputs or set(a.control_inputs) != set(b.control_inputs):
        before, after = (", ".join(map(str, n.inputs)) or "none" for n in (a, b))
        differences.append(GraphDifference("inputs", name, before=before, after=after))
    if a.device != b.device:
        differences.append(
            GraphDifference("device", name, before=a.device or "none", after=b.device or "none")
        )
    for key in sorted({*a.attrs, *b.attrs}):
        differences += _attribute(name, key, a.attrs.get(key), b.attrs.get(key), tolerance)
    return differences


def _attribute(
    name: str, key: str, a: AttrValue | None, b: AttrValue | None, tolerance: float
) -> list[GraphDifference]:
    if a == b:
        return []
    if a is not None and b is not None and a.kind == b.kind == "tensor":
        return _constant(name, key, a.value, b.value, tolerance)
    return [GraphDifference("attribute", name, key, _format_value(a), _format_value(b))]


def _constant(name: str, key: str, a: Tensor, b: Tensor, tolerance: float) -> list[GraphDifference]:
    is_text = a.dtype is DType.STRING
    if a.dtype != b.dtype or a.shape != b.shape or not (is_text or a.dtype.numpy):
        return [GraphDifference("constant", name, key, repr(a), repr(b))]
    x, y = a.array(), b.array()
    count, largest = (int((x != y).sum()), None) if is_text else _numbers_differ(x, y)
    a.let_go()
    if not count:
        return []
    if largest is not None and a.dtype.is_floating and largest <= tolerance:
        return []
    after = f"other in {count:,} of {a.size:,} elements"
    return [GraphDifference("constant", name, key, repr(a), after, largest)]


def _numbers_differ(x: Array, y: Array) -> tuple[int, float]:
    """Return the number of different elements, and the largest absolute difference.

    NaN equals NaN. If only one of two elements is NaN, their difference is NaN.
    """
    x, y = x.reshape(-1), y.reshape(-1)
    count, largest = 0, 0.0
    for at in range(0, x.size, _AT_ONCE):
        a, b = x[at : at + _AT_ONCE], y[at : at + _AT_ONCE]
        differ = a != b
        if not differ.any():
            continue
        gap = _largest_gap(a, b)
        if not math.isfinite(gap):
            # Ignore elements that are NaN or the same infinity on both sides.
            differ &= (a == a) | (b == b)
            gap = _largest_gap(a[differ], b[differ])
        count += int(np.count_nonzero(differ))
        largest = float(np.maximum(largest, gap))
    return count, largest


def _largest_gap(x: Array, y: Array) -> float:
    """Return the largest absolute difference; 0 if there are no elements."""
    if x.dtype == np.float32:
        x, y = _furthest_apart(x, y)
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.abs(x.astype(wide) - y.astype(wide)).max(initial=0))


def _furthest_apart(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the pairs with the largest difference, rounded to single precision.

    Rounding preserves the order, so these pairs include the largest exact difference. Single
    precision takes a fifth of the time of double precision. If the differences are not finite,
    return all pairs.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.subtract(x, y)
        np.abs(gaps, out=gaps)
        largest = gaps.max(initial=0)
    if not np.isfinite(largest):
        return x, y
    mask = gaps == largest
    return x[mask], y[mask]


def _format_value(value: AttrValue | None) -> str:
    if value is None:
        return "absent"
    text = _in_words(value.value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _in_words(value: object) -> str:
    """Format a value for messages: types by name, strings without quotes."""
    if isinstance(value, DType):
        return value.short
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, FuncRef):
        return value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(_in_words, value))}]"
    return "unknown" if value is None else str(value)

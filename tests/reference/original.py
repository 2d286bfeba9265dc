"""Runs the original Graph Transform Tool, and compares its graphs with ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import TF115, op_def
from mobileprep.graph.tensor import Tensor

NEWEST_VERSION_OF_1_15 = 134


class OriginalError(Exception):
    """The original tool refused; its message."""


def known_to_original(graph: Graph) -> Graph:
    """The graph without the attributes and the version that TensorFlow 1.15 does not know."""
    nodes = [_known_attrs(n) for n in graph]
    producer = min(graph.versions.producer, NEWEST_VERSION_OF_1_15)
    versions = Versions(producer, min(graph.versions.min_consumer, NEWEST_VERSION_OF_1_15))
    return Graph(nodes, graph.library, versions)


def _known_attrs(node: Node) -> Node:
    definition = op_def(node.op, TF115)
    if definition is None:
        return node
    known = {a.name for a in definition.attrs}
    kept = {k: v for k, v in node.attrs.items() if k in known or k.startswith("_")}
    return replace(node, attrs=kept) if len(kept) < len(node.attrs) else node


def run_original(
    home: Path, graph: Graph, inputs: str, outputs: str, transforms: str, folder: Path
) -> Graph:
    """The original's answer to a chain, given as its ``--transforms`` string.

    Raises:
        OriginalError: the tool exited with an error.
    """
    source, target = folder / "original_in.pb", folder / "original_out.pb"
    write_graph(source, known_to_original(graph))
    done = subprocess.run(
        [
            str(home / "transform_graph"),
            f"--in_graph={source}",
            f"--out_graph={target}",
            f"--inputs={inputs}",
            f"--outputs={outputs}",
            f"--transforms={transforms}",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise OriginalError(done.stderr)
    return read_graph(target)


def differences(
    ours: Graph, theirs: Graph, *, ulp: int = 1, relative: float = 0.0, ordered: bool = True
) -> list[str]:
    """Where two graphs differ, a line each; empty when they are equal.

    Args:
        ours: our graph.
        theirs: the original's.
        ulp: how many units in the last place float constants may differ by.
        relative: alternatively, by how much of the largest magnitude of the constant.
        ordered: whether the nodes must stand in the same order.
    """
    mine, original = ours.by_name, theirs.by_name
    found = [f"only ours: {n} ({mine[n].op})" for n in mine if n not in original]
    found += [f"only theirs: {n} ({original[n].op})" for n in original if n not in mine]
    for name in mine:
        if name in original:
            found += _node_differences(mine[name], original[name], ulp, relative)
    if ordered and not found:
        for i, (a, b) in enumerate(zip(ours.nodes, theirs.nodes, strict=True)):
            if a.name != b.name:
                return [f"order: node {i} is {a.name} here and {b.name} there"]
    return found


def _node_differences(a: Node, b: Node, ulp: int, relative: float) -> list[str]:
    if a.op != b.op:
        return [f"{a.name}: op {a.op} here, {b.op} there"]
    found = []
    spelled = [str(r) for r in a.inputs], [str(r) for r in b.inputs]
    if spelled[0] != spelled[1]:
        found.append(f"{a.name}: inputs {spelled[0]} here, {spelled[1]} there")
    if a.device != b.device:
        found.append(f"{a.name}: device {a.device!r} here, {b.device!r} there")
    for key in sorted({*a.attrs, *b.attrs}):
        x, y = a.attrs.get(key), b.attrs.get(key)
        if x is None or y is None:
            found.append(f"{a.name}: attribute {key} is {x} here, {y} there")
        elif x.kind == y.kind == "tensor":
            reason = _tensor_difference(x.value, y.value, ulp, relative)
            if reason:
                found.append(f"{a.name}: {key}: {reason}")
        elif x != y:
            found.append(f"{a.name}: attribute {key} is {x.value!r} here, {y.value!r} there")
    return found


def _tensor_difference(a: Tensor, b: Tensor, ulp: int, relative: float) -> str:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a} here, {b} there"
    if a.opaque or b.opaque:
        return "" if a.opaque == b.opaque else f"{a.opaque!r} here, {b.opaque!r} there"
    x, y = a.array(), b.array()
    if a.dtype not in (DType.FLOAT, DType.DOUBLE):
        return "" if a.identical(b) else "elements differ"
    if np.array_equal(x, y, equal_nan=True):
        return ""
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return "NaN in different places"
    gap = np.nanmax(np.abs(x - y) / np.spacing(np.maximum(np.abs(x), np.abs(y))))
    if gap <= ulp:
        return ""
    worst = float(np.nanmax(np.abs(x - y)))
    if worst <= relative * float(np.nanmax(np.abs(y))):
        return ""
    return f"elements differ by {worst:g}, {gap:.0f} ulp"

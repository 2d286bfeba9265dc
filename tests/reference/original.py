"""Run the original Graph Transform Tool, and compare its graphs with ours."""

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
from mobileprep.recipe.steps import parse_transforms_flag
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain

NEWEST_VERSION_OF_1_15 = 134


class OriginalError(Exception):
    """The original tool failed; holds its standard error."""


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
    names = {a.name for a in definition.attrs}
    attrs = {k: v for k, v in node.attrs.items() if k in names or k.startswith("_")}
    return replace(node, attrs=attrs) if len(attrs) < len(node.attrs) else node


def run_original(
    home: Path, graph: Graph, inputs: str, outputs: str, transforms: str, folder: Path
) -> Graph:
    """Run the original tool with a ``--transforms`` string, and return its graph.

    Raises:
        OriginalError: the tool exited with an error.
    """
    source, target = folder / "original_in.pb", folder / "original_out.pb"
    write_graph(source, known_to_original(graph))
    process = subprocess.run(
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
    if process.returncode != 0:
        raise OriginalError(process.stderr)
    return read_graph(target)


def run_ours(
    graph: Graph, inputs: str, outputs: str, transforms: str, *, tf115: bool = True
) -> Graph:
    """Run the same chain here; takes the same strings as ``run_original``."""
    calls, _ = parse_transforms_flag(transforms)
    steps = [ChainStep(c.name, c.options, c.ignore_errors) for c in calls]
    fed, fetched = (tuple(name for name in names.split(",") if name) for names in (inputs, outputs))
    return run_chain(graph, steps, Context(fed, fetched, tf115=tf115))[0]


def differences(
    ours: Graph, theirs: Graph, *, ulp: int = 1, relative: float = 0.0, ordered: bool = True
) -> list[str]:
    """List the differences between two graphs, one line each.

    Args:
        ours: our graph.
        theirs: the original's.
        ulp: tolerance for float constants, in units in the last place.
        relative: alternative tolerance, as a share of the largest magnitude of the constant.
        ordered: whether the nodes must be in the same order.
    """
    mine, original = ours.by_name, theirs.by_name
    lines = [f"only ours: {n} ({mine[n].op})" for n in mine if n not in original]
    lines += [f"only theirs: {n} ({original[n].op})" for n in original if n not in mine]
    for name in mine:
        if name in original:
            lines += _node_differences(mine[name], original[name], ulp, relative)
    if ordered and not lines:
        for i, (a, b) in enumerate(zip(ours.nodes, theirs.nodes, strict=True)):
            if a.name != b.name:
                return [f"order: node {i} is {a.name} here and {b.name} there"]
    return lines


def _node_differences(a: Node, b: Node, ulp: int, relative: float) -> list[str]:
    if a.op != b.op:
        return [f"{a.name}: op {a.op} here, {b.op} there"]
    lines = []
    inputs = [str(r) for r in a.inputs], [str(r) for r in b.inputs]
    if inputs[0] != inputs[1]:
        lines.append(f"{a.name}: inputs {inputs[0]} here, {inputs[1]} there")
    if a.device != b.device:
        lines.append(f"{a.name}: device {a.device!r} here, {b.device!r} there")
    for key in sorted({*a.attrs, *b.attrs}):
        x, y = a.attrs.get(key), b.attrs.get(key)
        if x is None or y is None:
            lines.append(f"{a.name}: attribute {key} is {x} here, {y} there")
        elif x.kind == y.kind == "tensor":
            reason = _tensor_difference(x.value, y.value, ulp, relative)
            if reason:
                lines.append(f"{a.name}: {key}: {reason}")
        elif x != y:
            lines.append(f"{a.name}: attribute {key} is {x.value!r} here, {y.value!r} there")
    return lines


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

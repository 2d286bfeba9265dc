"""The files that a graph reads while it runs, such as the words of a lookup table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.definitions import READERS
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.ops.numerics.texts import one_text

_FOLDER = "assets"
_PASSING = frozenset({"Identity", "StopGradient", "Snapshot"})


def folders_near(path: Path) -> tuple[Path, ...]:
    """Where the files of a graph may lie: beside it, or in ``assets``."""
    return path.parent, path.parent / _FOLDER


def with_found_assets(graph: Graph, folders: Sequence[Path]) -> Graph:
    """Name each file that a graph reads by the path where it was found.

    A file of a relative path is looked for in the directories. One of a path that does not exist,
    such as an absolute path of the machine that trained the model, is looked for by its name alone.

    Args:
        folders: where to look, in this order. What is in none of them is left for the engine to
            look for, which starts at the working directory.
    """
    found = {
        node.name: path
        for node in _named_files(graph)
        if (path := _found(node, folders)) is not None
    }
    if not found:
        return graph
    return graph.with_nodes([_at(n, found[n.name]) if n.name in found else n for n in graph])


def _named_files(graph: Graph) -> list[Node]:
    """The constants that name files to read."""
    named = [
        _origin(graph, node.data_inputs[1])
        for node in graph
        if node.op in READERS and len(node.data_inputs) > 1
    ]
    return [node for node in named if node is not None and node.op == "Const"]


def _origin(graph: Graph, ref: Ref) -> Node | None:
    """The node that a tensor comes from, passed on or not."""
    seen: set[str] = set()
    node = graph.get(ref.node)
    while node is not None and node.op in _PASSING and node.data_inputs:
        if node.name in seen:
            return None
        seen.add(node.name)
        node = graph.get(node.data_inputs[0].node)
    return node


def _found(node: Node, folders: Sequence[Path]) -> Path | None:
    value = node.attr_tensor("value").array()
    if value.size != 1 or value.dtype != object:
        return None
    name = one_text(value).decode("utf-8", "surrogateescape")
    base = re.split(r"[/\\]", name)[-1]
    if "\0" in name or not base:
        return None
    try:
        if PurePath(name).is_absolute() and Path(name).is_file():
            return None
        # An absolute name replaces the directory.
        paths = (folder / part for part in (name, base) for folder in folders)
        return next((path for path in paths if path.is_file()), None)
    except OSError:  # no name of a file at all, such as a very long one
        return None


def _at(node: Node, path: Path) -> Node:
    text = np.array(str(path.absolute()).encode("utf-8", "surrogateescape"), dtype=object)
    shape = node.attr_tensor("value").shape
    return constant(node.name, Tensor.of(text).reshaped(shape), node.device)

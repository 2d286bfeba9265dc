"""Loads a transform from a user's own Python file, and answers for the user's mistakes in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import TransformError, UsageError
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.transforms.base import (
    Context,
    Result,
    Transform,
    is_built_in,
    make_transform,
    transforms_in,
)

_AUTHOR = Author("plugin", TransformError, "so that nothing would have been built")


def load_plugin(name: str, path: Path) -> type[Transform]:
    """The transform of that name in a Python file, which is run anew.

    A class that the file imports from a module of the user's counts, one of this package not.

    Raises:
        TransformError: the file cannot be run, or tries to end the program; the message names its
            line.
        UsageError: it is not there, or holds no transform of that name.
    """
    module = load_file(path, f"mobileprep_plugin_{name}", _AUTHOR)
    found = {n: kind for n, kind in transforms_in(module).items() if not is_built_in(kind)}
    if name not in found:
        there = ", ".join(sorted(found)) or "none"
        message = f"the plugin {path} holds no transform {name!r}; it holds {there}"
        raise UsageError(message, f'decorate a class with @transform("{name}")')
    return found[name]


def apply_plugin(
    name: str, options: Mapping[str, Any], path: Path, graph: Graph, context: Context
) -> Result:
    """Load and apply a user's transform.

    Raises:
        TransformError: it raised something, tried to end the program, or answered something other
            than a Result of a graph.
        UsageError: what ``load_plugin`` raises, or an option that it does not have.
    """
    kind = load_plugin(name, path)
    with blaming(path, _AUTHOR):
        result = make_transform(name, options, kind).apply(graph, context)
    if not isinstance(result, Result):
        message = f"{name}: apply answered {type(result).__name__}"
        raise TransformError(message, "let it return a Result", str(path))
    wrong = _no_graph(result.graph)
    if wrong:
        message = f"{name}: apply answered a Result whose graph {wrong}"
        raise TransformError(message, "make it with graph.with_nodes(...)", str(path))
    wrong, right = _no_numbers(result)
    if wrong:
        message = f"{name}: apply answered a Result whose {wrong}"
        raise TransformError(message, right, str(path))
    return result


def _no_graph(found: object) -> str:
    """Why something is no graph, or an empty text where it is one."""
    if not isinstance(found, Graph):
        return f"is {type(found).__name__}"
    names: set[str] = set()
    for node in found.nodes:
        wrong = _no_node(node)
        if wrong:
            return wrong
        if node.name in names:
            return f"has two nodes named {node.name!r}"
        names.add(node.name)
    return ""


def _no_node(found: object) -> str:
    """Why something is no node of a graph, or an empty text where it is one."""
    if not isinstance(found, Node):
        return f"has {type(found).__name__} among its nodes"
    # What a user's file puts there, no type checker has seen.
    name: object = found.name
    op: object = found.op
    if not isinstance(name, str):
        return f"has a name that is no text: {name!r}"
    if not isinstance(op, str):
        return f"has an op that is no text: {op!r}, of {name!r}"
    for what in found.inputs:
        if not isinstance(what, Ref):
            return f"has {type(what).__name__}, not Ref, among the inputs of {name!r}"
    return ""


def _no_numbers(result: Result) -> tuple[str, str]:
    """What no report can tell of a Result, and what it should be; empty texts where all is well."""
    matched: object = result.matched
    skipped: object = result.skipped
    warnings: object = result.warnings
    if not _is_count(matched):
        return f"matched is {matched!r}", "count the places as a whole number from 0 on"
    if not isinstance(skipped, Mapping) or not all(
        isinstance(why, str) and _is_count(count) for why, count in skipped.items()
    ):
        return f"skipped is {skipped!r}", "count places by reason: {'the reason': 2}"
    if not isinstance(warnings, tuple | list) or not all(isinstance(w, str) for w in warnings):
        return f"warnings is {warnings!r}", "make it a tuple of texts"
    return "", ""


def _is_count(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0

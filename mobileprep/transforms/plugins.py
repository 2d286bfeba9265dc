"""Loads a transform from a user's own Python file, and applies it; see ``user_code``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

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
from mobileprep.user_code import blaming, load_module

_WHAT: Final = "the plugin"


def load_plugin(name: str, path: Path) -> type[Transform]:
    """The transform of that name in a Python file, which is run anew.

    A class that the file imports from a module of the user's counts, one of this package not.

    Raises:
        TransformError: the file cannot be run, or tries to end the program; the message names its
            line.
        UsageError: it is not there, or holds no transform of that name.
    """
    module = load_module(f"mobileprep_plugin_{name}", path, TransformError, _WHAT)
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
    with blaming(path, TransformError, _WHAT):
        result = make_transform(name, options, kind).apply(graph, context)
    if not isinstance(result, Result):
        message = f"{name}: apply answered {type(result).__name__}"
        raise TransformError(message, "let it return a Result", str(path))
    wrong = _no_graph(result.graph)
    if wrong:
        message = f"{name}: apply answered a Result whose graph {wrong}"
        raise TransformError(message, "make it with graph.with_nodes(...)", str(path))
    return result


def _no_graph(found: object) -> str:
    """Why something is no graph, or an empty text where it is one."""
    if not isinstance(found, Graph):
        return f"is {type(found).__name__}"
    for node in found.nodes:
        if not isinstance(node, Node):
            return f"has {type(node).__name__} among its nodes"
        for what in node.inputs:
            if not isinstance(what, Ref):
                return f"has {type(what).__name__}, not Ref, among the inputs of {node.name!r}"
    return ""

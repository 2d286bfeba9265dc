"""Loads a transform from a user's own Python file, and answers for the user's mistakes in it.

A plugin is trusted code: it may do whatever the user who builds may do. What is guarded against
here are accidents, such as a script's ``sys.exit(0)``, which would end a build as if it had done
its work.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from mobileprep.errors import MobileprepError, TransformError, UsageError
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


def load_plugin(name: str, path: Path) -> type[Transform]:
    """The transform of that name in a Python file, which is run anew.

    A class that the file imports from a module of the user's counts, one of this package not.

    Raises:
        TransformError: the file cannot be run, or tries to end the program; the message names its
            line.
        UsageError: it is not there, or holds no transform of that name.
    """
    spec = importlib.util.spec_from_file_location(f"mobileprep_plugin_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        message = f"the plugin {path} is not there, or is no Python file"
        raise UsageError(message, "name a .py file")
    module = importlib.util.module_from_spec(spec)
    with _blaming(path):
        spec.loader.exec_module(module)
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
    with _blaming(path):
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


@contextlib.contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turns what a plugin's code raises, but an interrupt, into an error at its line."""
    with _exits.caught() as attempts:
        try:
            yield
        except (MobileprepError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise _blamed(path, error) from error
    if attempts:
        raise _blamed(path, attempts[0])


def _blamed(path: Path, error: BaseException) -> TransformError:
    """The error at the last line of the user's file that led to it."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"{path}:{lines[-1]}" if lines else str(path)
    if isinstance(error, SystemExit):
        message = "the plugin ended the program, so that nothing would have been built"
        hint = "take sys.exit, exit and os._exit out of it, or out of what runs as it is loaded"
        return TransformError(message, hint, where)
    return TransformError(f"{type(error).__name__}: {error}", "mend the plugin", where)


class _Exits:
    """Makes ``os._exit``, which no ``except`` sees, raise while a plugin's code runs.

    Several threads may run plugins at once; the last one to finish puts the function back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[list[SystemExit]] = []
        self._exit = os._exit

    @contextlib.contextmanager
    def caught(self) -> Iterator[list[SystemExit]]:
        """Inside the block attempts to exit are noted and raised as ``SystemExit``."""
        attempts: list[SystemExit] = []
        process = os.getpid()

        def refuse(status: int) -> NoReturn:
            if os.getpid() != process:  # a child that the plugin forked ends as it likes
                self._exit(status)
            error = SystemExit(status)
            for noted in self._running:
                noted.append(error)
            raise error

        with self._lock:
            if not self._running:
                self._exit = os._exit
                os._exit = refuse
            self._running.append(attempts)
        try:
            yield attempts
        finally:
            with self._lock:
                self._running = [r for r in self._running if r is not attempts]
                if not self._running:
                    os._exit = self._exit


_exits = _Exits()

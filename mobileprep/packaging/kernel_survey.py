"""Finds the kernels that nodes need, and the nodes for which a release has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ops.kernel_classes import kernel_class
from mobileprep.ops.opdefs import op_def, op_names
from mobileprep.packaging.op_lists import OpKernel

_WITHOUT_KERNEL: Final = frozenset({"AccumulateNV2"})
"""Ops that the runtime rewrites before they would run."""

_LOOKED_AT: Final = frozenset({"type", "list(type)", "list", "string", "int", "bool"})
"""The kinds of attributes that kernels can be registered for."""

Warn = Callable[[str], None]


class KernelSurvey:
    """Collects what nodes need, looking each kind of node up once."""

    def __init__(self, release: str, vouched: frozenset[str]) -> None:
        self.found: set[OpKernel] = set()
        self._release = release
        self._vouched = vouched
        self._pairs: dict[tuple[Any, ...], OpKernel | None] = {}
        self._unknown: dict[tuple[str, str], str] = {}
        self._without_kernel: dict[tuple[str, str, str], str] = {}
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, graph: Graph, file: str, *, functions: bool) -> None:
        for place, node in _nodes(graph, functions=functions):
            if node.op in graph.library.functions:
                continue
            key = _look_up_key(node)
            if key not in self._pairs:
                self._pairs[key] = self._look_up(node)
            pair = self._pairs[key]
            if pair is not None:
                self.found.add(pair)
            elif node.op not in self._vouched:
                self._note(node, place, file)

    def finish(self, warn: Warn | None) -> None:
        if self._unknown:
            problems = [
                f"TensorFlow {self._release} has no op {op!r}{self._where((op, file), place)}"
                for (op, file), place in sorted(self._unknown.items())
            ]
            op = min(self._unknown)[0]
            near = nearest_hint(op, op_names(self._release))
            mend = f"for a custom op give its kernel class too: --default_ops={op}:KERNEL,..."
            raise UnsupportedError("\n".join(problems), f"{near} {mend}".lstrip())
        lacking = [
            f"TensorFlow {self._release} has no CPU kernel of op {op!r} with {types}"
            f"{self._where((op, types, file), place)}"
            for (op, types, file), place in sorted(self._without_kernel.items())
        ]
        if lacking and warn is None:
            hint = "cast to types that the release computes with, or choose another release"
            raise UnsupportedError("\n".join(lacking), hint)
        if warn is not None:
            for sentence in lacking:
                warn(sentence)

    def _look_up(self, node: Node) -> OpKernel | None:
        kernel = kernel_class(node, self._release)
        if kernel is None and node.op not in _WITHOUT_KERNEL:
            return None
        return OpKernel(node.op, kernel)

    def _note(self, node: Node, place: str, file: str) -> None:
        key: tuple[str, ...]
        if op_def(node.op, self._release) is None:
            key = node.op, file
            self._unknown.setdefault((node.op, file), place)
        else:
            key = node.op, _types(node), file
            self._without_kernel.setdefault((node.op, _types(node), file), place)
        self._counts[key] += 1

    def _where(self, key: tuple[str, ...], place: str) -> str:
        more = f" and {self._counts[key] - 1} more" if self._counts[key] > 1 else ""
        return f" ({place}{more}{' in ' + key[-1] if key[-1] else ''})"


def _nodes(graph: Graph, *, functions: bool) -> Iterator[tuple[str, Node]]:
    """The nodes, each with words for its place."""
    for node in graph:
        yield f"node {node.name!r}", node
    if functions:
        for name, function in sorted(graph.library.functions.items()):
            for node in function.nodes:
                yield f"node {node.name!r} of function {name!r}", node


def _look_up_key(node: Node) -> tuple[Any, ...]:
    attrs = [(n, v.kind, v.value) for n, v in node.attrs.items() if v.kind in _LOOKED_AT]
    return node.op, *attrs


def _types(node: Node) -> str:
    """The type attributes as text: ``T=int32, Tidx=int64``."""
    named = [f"{n}={v.value.short}" for n, v in sorted(node.attrs.items()) if v.kind == "type"]
    return ", ".join(named) or "its attributes"

"""Finds the kernels that nodes need, and the nodes for which a release has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import OLDER_OPS, RELEASES, op_def, op_names
from mobileprep.graph.opdefs.kernel_classes import kernel_class
from mobileprep.graph.opdefs.release_gaps import WITHOUT_KERNEL, type_text
from mobileprep.targets.op_lists import OpKernel

_LOOKED_AT: Final = frozenset({"type", "list(type)", "list", "string", "int", "bool"})
"""The kinds of attributes that kernels can be registered for."""

Warn = Callable[[str], None]

_MOST_TOLD: Final = 20


class _Gap(Struct, frozen=True, order=True):
    """What a release lacks: an op (``types`` is empty), or a kernel of an op for some types."""

    op: str
    types: str
    file: str


class KernelSurvey:
    """Collects what nodes need, looking each kind of node up once.

    Args:
        release: the TensorFlow release that shall run the nodes.
        vouched: ops that somebody else provides, never missed here.
    """

    def __init__(self, release: str, vouched: Container[str] = ()) -> None:
        self.found: set[OpKernel] = set()
        self._release = release
        self._vouched = vouched
        self._pairs: dict[tuple[Any, ...], OpKernel | None] = {}
        self._gaps: dict[_Gap, str] = {}
        self._counts: Counter[_Gap] = Counter()

    def add(self, graph: Graph, file: str, *, functions: bool, created: bool = False) -> None:
        """Collect the kernels of a graph."""
        for place, node in _nodes(graph, functions=functions):
            if node.op not in graph.library.functions:
                self._add(node, place, file)
            if created:
                for other in runtime_nodes(graph, node):
                    self._add(other, place, file)

    def _add(self, node: Node, place: Callable[[Node], str], file: str) -> None:
        key = _look_up_key(node)
        if key not in self._pairs:
            self._pairs[key] = self._look_up(node)
        pair = self._pairs[key]
        if pair is not None:
            self.found.add(pair)
        elif node.op not in self._vouched:
            self._miss(node, place(node), file)

    def check(self, warn: Warn | None) -> None:
        """Tell of kernels that the release lacks."""
        unknown = sorted(gap for gap in self._gaps if not gap.types)
        if unknown:
            raise UnsupportedError(self._told(unknown), self._mend(unknown[0].op))
        lacking = sorted(self._gaps)
        if warn is not None:
            for gap in lacking:
                warn(self._sentence(gap))
        elif lacking:
            hint = "cast to types that the release computes with, or choose another release"
            raise UnsupportedError(self._told(lacking), hint)

    def _look_up(self, node: Node) -> OpKernel | None:
        kernel = kernel_class(node, self._release)
        if kernel is None and node.op not in WITHOUT_KERNEL:
            return None
        return OpKernel(node.op, kernel)

    def _miss(self, node: Node, place: str, file: str) -> None:
        known = op_def(node.op, self._release) is not None
        gap = _Gap(node.op, type_text(node) if known else "", file)
        self._gaps.setdefault(gap, place)
        self._counts[gap] += 1

    def _mend(self, op: str) -> str:
        for other in RELEASES:
            if op_def(op, other) is not None:
                newer = f"build the app with TensorFlow {other}, which has it"
                older = OLDER_OPS.get(op)
                replaced = f"run the transform `downgrade`, which replaces it with `{older}`"
                return f"{newer}, or {replaced}" if older else newer
        near = nearest_hint(op, op_names(self._release))
        own = (
            f"if the app registers the op, name its kernel: `header --default_ops={op}:KERNEL,...`"
        )
        return f"{near} {own}".lstrip()

    def _told(self, gaps: Sequence[_Gap]) -> str:
        lines = [self._sentence(gap) for gap in gaps[:_MOST_TOLD]]
        if len(gaps) > _MOST_TOLD:
            lines.append(f"and {len(gaps) - _MOST_TOLD} more of the kind")
        return "\n".join(lines)

    def _sentence(self, gap: _Gap) -> str:
        lack = f"CPU kernel of op {gap.op!r} for {gap.types}" if gap.types else f"op {gap.op!r}"
        more = f" and {self._counts[gap] - 1} more" if self._counts[gap] > 1 else ""
        file = f" of {gap.file}" if gap.file else ""
        return f"TensorFlow {self._release} has no {lack} ({self._gaps[gap]}{more}{file})"


def _nodes(graph: Graph, *, functions: bool) -> Iterator[tuple[Callable[[Node], str], Node]]:
    """The nodes, each with what words its place."""
    for node in graph:
        yield _place, node
    if functions:
        for name, function in sorted(graph.library.functions.items()):
            place = partial(_place, function=name)
            for node in function.nodes:
                yield place, node


def _place(node: Node, function: str = "") -> str:
    return f"node {node.name!r}" + (f" of function {function!r}" if function else "")


def _look_up_key(node: Node) -> tuple[Any, ...]:
    attrs = [(n, v.kind, v.value) for n, v in node.attrs.items() if v.kind in _LOOKED_AT]
    return node.op, *attrs


_LOWERED: Final = "_lower_using_switch_merge"
# Their kernels are the same for all types. IdentityN keeps the node's name for those that fetch it.
_BRANCHES: Final = ("Identity", "IdentityN", "Merge", "NoOp")
_CONTROL_FLOW: Final = {
    **dict.fromkeys(("If", "StatelessIf"), ("Switch", *_BRANCHES)),
    **dict.fromkeys(("Case", "StatelessCase"), ("_SwitchN", *_BRANCHES)),
    **dict.fromkeys(
        ("While", "StatelessWhile"),
        ("Enter", "Exit", "LoopCond", "NextIteration", "Switch", *_BRANCHES),
    ),
}
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def runtime_nodes(graph: Graph, node: Node) -> Iterator[Node]:
    """Yield a node for each kernel that the runtime needs besides the node's own."""
    if node.op in _CONTROL_FLOW and node.attr_bool(_LOWERED, default=False):
        yield from (_created(node, op, DType.FLOAT) for op in _CONTROL_FLOW[node.op])
    elif node.op in _CALLS or node.op in graph.library.functions:
        # The body of the function takes the place of the call.
        yield from (_created(node, op, DType.FLOAT) for op in ("Identity", "NoOp"))
    elif node.op == "AccumulateNV2":
        dtype = node.attr_dtype("T")
        for op in ("Assign", "AssignAdd", "DestroyTemporaryVariable", "Fill", "Identity", "Shape"):
            yield _created(node, op, dtype)
        for op in ("Const", "TemporaryVariable"):
            yield _created(node, op, dtype, key="dtype")
    elif node.op == "ParallelConcat":
        dtype = node.attr_dtype("T")
        yield _created(node, "_ParallelConcatStart", dtype, key="dtype")
        yield _created(node, "_ParallelConcatUpdate", dtype)
        yield _created(node, "Identity", dtype)


def _created(node: Node, op: str, dtype: DType, *, key: str = "T") -> Node:
    return Node(node.name, op, (), "", {key: attr.dtype(dtype)})

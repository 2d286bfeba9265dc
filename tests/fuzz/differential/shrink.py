"""Shrink a failing case to fewer outputs, nodes, and elements."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph.attrs import FuncRef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Ref, parse_ref
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.fuzz.differential.generate import Case
from tests.litert.graphs import const, feed

Fails = Callable[[Case], bool]
_MAX_TRIES = 400
_MAX_SECONDS = 5.0
"""Timeout, since a change may make a loop endless."""


def shrunk(case: Case, fails: Fails, tries: int = _MAX_TRIES) -> Case:
    """The smallest failing case within a number of tries."""
    remaining = tries
    changed = True
    while changed and remaining > 0:
        changed = False
        for tried in _smaller(case):
            remaining -= 1
            if remaining <= 0:
                break
            if _is_valid(tried) and fails(tried):
                case, changed = tried, True
                break
    return case


def _is_valid(case: Case) -> bool:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _MAX_SECONDS)
    try:
        with np.errstate(all="ignore"):
            values = NumpyEngine(case.graph, "fuzz").run(case.outputs, case.feeds)
    except Exception:  # noqa: BLE001 - a change may make the graph invalid
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return all(np.isfinite(v).all() for v in values if v.dtype.kind == "f")


def _smaller(case: Case) -> Iterator[Case]:
    for name in case.outputs:
        if len(case.outputs) > 1:
            yield pruned(replace(case, outputs=(name,)))
    for name in case.outputs:
        if len(case.outputs) > 1:
            yield pruned(replace(case, outputs=tuple(n for n in case.outputs if n != name)))
    yield from _with_inner_outputs(case)
    yield from _cut(case)
    yield from _bypassed(case)
    yield from _constant(case)
    yield from _lower_sizes(case)
    yield from _shorter_loops(case)


def pruned(case: Case) -> Case:
    """A case without nodes that its outputs do not need."""
    needed = reachable(case.graph, [parse_ref(n).node for n in case.outputs], through_control=True)
    nodes = [n for n in case.graph if n.name in needed]
    feeds = {k: v for k, v in case.feeds.items() if k in needed}
    functions = dict(_called(nodes, case.graph.library.functions))
    graph = Graph(nodes, Library(functions), case.graph.versions)
    return replace(case, graph=graph, feeds=feeds)


def _called(
    nodes: Iterable[Node], functions: Mapping[str, Function]
) -> Iterator[tuple[str, Function]]:
    """The functions that some nodes call, directly or indirectly."""
    for node in nodes:
        for value in node.attrs.values():
            if isinstance(value.value, FuncRef):
                function = functions[value.value.name]
                yield function.name, function
                yield from _called(function.nodes, functions)


def _with_inner_outputs(case: Case) -> Iterator[Case]:
    """Replace an output by an input of its node."""
    if len(case.outputs) != 1:
        return
    for ref in case.graph[parse_ref(case.outputs[0]).node].data_inputs:
        if case.graph[ref.node].op not in ("Const", "Placeholder"):
            yield pruned(replace(case, outputs=(str(ref),)))


def _cut(case: Case) -> Iterator[Case]:
    """Replace a tensor by an input."""
    outer = [n for n in case.graph if n.op not in ("Const", "Placeholder")]
    for node in outer:
        refs = {r for n in case.graph for r in n.data_inputs if r.node == node.name}
        if not refs or node.name in case.outputs:
            continue
        try:
            with np.errstate(all="ignore"):
                values = NumpyEngine(case.graph, "fuzz").run([str(r) for r in refs], case.feeds)
        except Exception:  # noqa: BLE001 - tensors in frames and branches have no value here
            continue
        yield _replaced(case, dict(zip(refs, values, strict=True)))


def _replaced(case: Case, values: dict[Ref, np.ndarray]) -> Case:
    names = {ref: Ref(f"{ref.node}_{ref.index}_fed") for ref in values}
    added = [feed(names[ref].node, v.shape, dtype_from_numpy(v.dtype)) for ref, v in values.items()]
    nodes = [n.with_inputs(tuple(names.get(r, r) for r in n.inputs)) for n in case.graph]
    feeds = {**case.feeds, **{names[ref].node: v for ref, v in values.items()}}
    return pruned(replace(case, graph=case.graph.with_nodes([*added, *nodes]), feeds=feeds))


def _bypassed(case: Case) -> Iterator[Case]:
    """Replace the output of a node by one of its inputs."""
    for node in case.graph:
        if node.op in ("Const", "Placeholder", "Merge", "Switch", "Enter", "Exit"):
            continue
        if not any(Ref(node.name) in n.inputs for n in case.graph):
            continue
        for ref in node.data_inputs:
            if _type(case.graph, ref) is not _type(case.graph, Ref(node.name)):
                continue
            nodes = [
                n.with_inputs(tuple(ref if r == Ref(node.name) else r for r in n.inputs))
                for n in case.graph
            ]
            yield pruned(replace(case, graph=case.graph.with_nodes(nodes)))


def _type(graph: Graph, ref: Ref) -> DType | None:
    node = graph[ref.node]
    definition = signature_of(node)
    types = [] if definition is None else output_types(node, definition)
    return types[ref.index] if ref.index < len(types) else None


def _constant(case: Case) -> Iterator[Case]:
    """Replace an input by a constant."""
    for name, value in case.feeds.items():
        node = const(name, value)
        nodes = [node if n.name == name else n for n in case.graph]
        feeds = {k: v for k, v in case.feeds.items() if k != name}
        if feeds:
            yield replace(case, graph=case.graph.with_nodes(nodes), feeds=feeds)


def _lower_sizes(case: Case) -> Iterator[Case]:
    """Shorten all dimensions of one size at once."""
    sizes = {d for v in case.feeds.values() for d in v.shape if d > 1}
    sizes |= {d for n in case.graph if n.op == "Const" for d in _array(n).shape if d > 1}
    for size in sorted(sizes, reverse=True):
        for new in (1, 2):
            if new < size:
                yield _resized(case, size, new)
    for name, value in case.feeds.items():
        if value.ndim > 1 and 1 in value.shape:
            axis = value.shape.index(1)
            less = np.squeeze(value, axis)
            nodes = [
                feed(name, less.shape, dtype_from_numpy(less.dtype)) if n.name == name else n
                for n in case.graph
            ]
            graph = case.graph.with_nodes(nodes)
            yield replace(case, graph=graph, feeds={**case.feeds, name: less})


def _resized(case: Case, size: int, new: int) -> Case:
    def cut(value: np.ndarray) -> np.ndarray:
        return value[tuple(slice(new) if d == size else slice(None) for d in value.shape)]

    nodes = []
    for node in case.graph:
        if node.op == "Placeholder":
            value = cut(case.feeds[node.name])
            node = feed(node.name, value.shape, dtype_from_numpy(value.dtype))
        elif node.op == "Const":
            value = cut(_array(node))
            if value.dtype.kind == "i":
                value = np.where(value == size, new, value).astype(value.dtype)
            node = const(node.name, value).with_inputs(node.inputs)
        nodes.append(node)
    feeds = {k: cut(v) for k, v in case.feeds.items()}
    return replace(case, graph=case.graph.with_nodes(nodes), feeds=feeds)


def _shorter_loops(case: Case) -> Iterator[Case]:
    """Fewer iterations."""
    for node in case.graph:
        if node.op == "Const" and node.name.endswith("/turns") and _array(node) > 1:
            other = const(node.name, np.int32(_array(node) - 1)).with_inputs(node.inputs)
            nodes = [other if n is node else n for n in case.graph]
            yield replace(case, graph=case.graph.with_nodes(nodes))
    functions = case.graph.library.functions
    for name, function in functions.items():
        for inner in function.nodes:
            if inner.op == "Const" and inner.name.endswith("_most") and _array(inner) > 1:
                other = const(inner.name, np.int32(_array(inner) - 1))
                nodes = tuple(other if n is inner else n for n in function.nodes)
                changed = {**functions, name: replace(function, nodes=nodes)}
                library = replace(case.graph.library, functions=changed)
                graph = Graph(case.graph.nodes, library, case.graph.versions)
                yield replace(case, graph=graph)


def _array(node: Node) -> np.ndarray:
    return node.attr_tensor("value").array()

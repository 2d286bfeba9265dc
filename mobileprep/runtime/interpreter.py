"""The interpreter: runs a graph with numpy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from mobileprep.core.limits import flop_limit, working
from mobileprep.errors import UsageError, nearest_hint
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph.dropout import is_unseeded, with_known_masks
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FEEDABLE
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Observer, Printer, RunContext, Watcher
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.runtime.executor import DEAD, ExecutionPlan, placed, run_plan, watches
from mobileprep.runtime.functions.inline import CALLS, FUNCTIONAL
from mobileprep.runtime.regions import NOWHERE, Region, fold
from mobileprep.runtime.selection import Survey, needed_nodes, refuse, survey


def checked_feed(graph: Graph, ref: Ref, array: Array, where: str) -> Array:
    """Check a fed array; strings become an object array of bytes."""
    array = np.asarray(array)
    dtype = tensor_dtype(graph, ref)
    if dtype is DType.STRING and array.dtype.kind in "OSU":
        return _as_bytes(array)
    expected = dtype.numpy if dtype is not None else None
    if expected is not None and array.dtype != expected:
        actual = dtype_from_numpy(array.dtype)
        message = f"{str(ref)!r} takes {dtype.short if dtype else ''}, and is fed "
        message += actual.short if actual is not None else str(array.dtype)
        raise UsageError(message, "convert the array to the type of the tensor", where)
    _check_shape(graph, ref, array, where)
    return array


def converted(array: Array, dtype: DType | None) -> Array:
    """Convert an array to a tensor's type if only the width differs: float64 to float32."""
    kind = None if dtype is None else dtype.numpy
    if kind is None or not np.can_cast(array.dtype, kind, "same_kind"):
        return array
    return array.astype(kind, copy=False)


def _check_shape(graph: Graph, ref: Ref, array: Array, where: str) -> None:
    node = graph[ref.node]
    if node.op not in FEEDABLE:
        return
    shape = node.attr_shape("shape")
    # Old graphs use an empty shape for an unknown one.
    if not shape:
        return
    fits = len(shape) == array.ndim and all(
        expected in (-1, actual) for expected, actual in zip(shape, array.shape, strict=False)
    )
    if not fits:
        expected = ", ".join("?" if d < 0 else str(d) for d in shape)
        actual = str(list(array.shape)) if array.ndim else "a scalar"
        message = f"{str(ref)!r} takes the shape [{expected}], and is fed {actual}"
        raise UsageError(message, "reshape or resize the value", where)


def _as_bytes(array: Array) -> Array:
    flat = np.empty(array.size, dtype=object)
    if array.dtype.kind == "S" and array.size == 1:
        # A file's contents may end in zero bytes, which numpy treats as padding and hides.
        flat[0] = array.tobytes()
        return flat.reshape(array.shape)
    flat[:] = [x.encode() if isinstance(x, str) else bytes(x) for x in array.ravel().tolist()]
    return flat.reshape(array.shape)


_HIGHEST_THRESHOLD = (32 << 20) - (64 << 10)


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed tensors of up to 32 MB.

    By default, glibc returns it to the system and allocates it again for the next tensor, page by
    page, which takes as long as a small convolution. Its threshold rises to the largest block freed
    so far (mallopt(3), M_MMAP_THRESHOLD): this frees one of that size without touching it. It does
    not affect other C libraries.
    """
    np.empty(_HIGHEST_THRESHOLD, np.uint8)


# Plans hold prepared weights: many at once would multiply a model's size.
_KEPT_PLANS = 4


class Interpreter:
    """Runs a graph. The order of work is planned once for each set of fetches and feeds.

    Args:
        graph: the graph.
        where: name of the graph in messages.
        combine: whether to compute constant expressions only once; observers do not see those
            steps.
        observer: receives every step.
        seed: of random numbers, the same in every run; without it, nodes that draw them raise an
            error unless they have their own seed. The numbers differ from TensorFlow's.
        printer: receives the output of Print and PrintV2; without it, they are silent.
        watched: tensors to report when they are computed, in loops once per iteration; tensors that
            the fetches do not need, and those of branches that do not run, are skipped.
        watcher: receives those tensors.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        where: str = "graph",
        combine: bool = True,
        observer: Observer | None = None,
        seed: int | None = None,
        printer: Printer | None = None,
        watched: Collection[Edge] = (),
        watcher: Watcher | None = None,
    ) -> None:
        self._graph = graph
        self._where = where
        self._combine = combine
        self._observer = observer
        self._seed = seed
        self._printer = printer
        self._watched = frozenset(watched)
        self._watcher = watcher
        self._resources: dict[str, Any] = {}
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...]], ExecutionPlan] = {}

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the tensors named by ``fetches``.

        Args:
            fetches: tensor names such as "probabilities" or "split:1".
            feeds: values for tensors by name; any tensor may be fed, not only placeholders.

        Returns:
            An array for each fetch; strings as object arrays of bytes. The arrays may share memory
            with constants of the graph and must not be modified.

        Raises:
            UsageError: a name is not in the graph, a feed does not fit its placeholder, or a
                required placeholder is not fed.
            UnsupportedError: a required op does not have a kernel.
            InvalidGraphError: the graph is malformed, or a node's inputs do not fit its op.
        """
        keep_freed_memory()
        plan = self._plan(tuple(fetches), tuple(feeds))
        arrays = [
            checked_feed(self._graph, parse_ref(name), array, self._where)
            for name, array in feeds.items()
        ]
        context = RunContext(
            self._resources, self._seed, self._observer, self._printer, self._watcher
        )
        # Infinities and NaN are valid results, like in TensorFlow.
        processors = all_processors() if feeds else nullcontext()
        with np.errstate(all="ignore"), processors, working(flop_limit()):
            results = run_plan(plan, arrays, context, self._where)
        for name, value in zip(fetches, results, strict=True):
            if value is DEAD:
                message = f"{name!r} was not computed: its branch was not taken"
                raise UsageError(message, "fetch a tensor after the branches join", self._where)
        return results

    def _plan(self, fetches: tuple[str, ...], feeds: tuple[str, ...]) -> ExecutionPlan:
        key = (fetches, feeds)
        plan = self._plans.get(key)
        if plan is None:
            fetch_refs = [self._ref(name, "fetch") for name in fetches]
            feed_refs = [self._ref(name, "feed") for name in feeds]
            plan = make_plan(
                self._graph,
                fetch_refs,
                feed_refs,
                self._where,
                combine=self._combine,
                watched=self._watched,
                has_seed=self._seed is not None,
            )
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[key] = plan
        return plan

    def _ref(self, name: str, what: str) -> Ref:
        ref = parse_ref(name)
        if ref.node not in self._graph or ref.is_control:
            message = f"the {what} {name!r} is not in the graph"
            raise UsageError(message, nearest_hint(ref.node, self._graph.by_name), self._where)
        return ref


def make_plan(
    graph: Graph,
    fetches: Sequence[Ref],
    feeds: Sequence[Ref],
    where: str,
    *,
    combine: bool,
    watched: Collection[Edge] = (),
    has_seed: bool = True,
) -> ExecutionPlan:
    """Plan the computation of ``fetches`` from ``feeds`` and the graph's constants.

    Args:
        has_seed: whether the run has a seed; without one, dropout that keeps everything does not
            draw numbers.
    """
    fed = {edge(r) for r in feeds}
    fetch_edges = [edge(r) for r in fetches]
    nodes = needed_nodes(graph, fetches, fed, where)
    if any(runs_functions(n, graph) for n in nodes):
        graph = in_line(graph, fetches, feeds, where)
        nodes = needed_nodes(graph, fetches, fed, where)
    if not has_seed and any(is_unseeded(n) for n in nodes):
        part = graph.with_nodes(_with_fed(nodes, feeds, graph))
        shown = {name for name, _ in (*fetch_edges, *watched)}
        nodes = needed_nodes(with_known_masks(part, shown), fetches, fed, where)
    # Without feeds, everything is constant, so precomputing saves nothing.
    combine = combine and bool(feeds)
    facts = survey(nodes, fed, fetch_edges, where, combine=combine, watched=watched)
    _check_fetches(fetches, facts)
    region = Region(facts, facts.frames.root, {})
    refuse(region.lacking, where)
    for ref in fetches:
        if edge(ref) not in fed and region.tensor(ref) == NOWHERE:
            message = f"{str(ref)!r} is in a branch that never runs"
            raise UsageError(message, "fetch a tensor after the branches join", where)
    feed_edges = [edge(r) for r in feeds]
    actions, constants = [*watches(feed_edges, watched), *region.actions], region.constants
    if facts.combine:
        actions, constants = fold(actions, constants, fetch_edges, where)
    return placed(actions, constants, feed_edges, fetch_edges, where)


def in_line(graph: Graph, fetches: Sequence[Ref], feeds: Sequence[Ref], where: str) -> Graph:
    """Return the nodes that a plan needs, with functions inlined."""
    from mobileprep.runtime.functions.inline import inline_calls  # few graphs have calls

    nodes = needed_nodes(graph, fetches, {edge(r) for r in feeds}, where)
    names = {r.node for r in (*fetches, *feeds)}
    whole = graph.with_nodes(_with_fed(nodes, feeds, graph))
    return inline_calls(whole, names, where, lower_control_flow=True)


def runs_functions(node: Node, graph: Graph) -> bool:
    """Return whether a node runs functions of the graph's library."""
    return node.op in CALLS or node.op in FUNCTIONAL or node.op in graph.library.functions


def _with_fed(nodes: Sequence[Node], feeds: Sequence[Ref], graph: Graph) -> list[Node]:
    """Return the nodes, preceded by those with fed outputs, which other nodes still reference."""
    there = {n.name for n in nodes}
    return [
        *(graph[name] for name in dict.fromkeys(r.node for r in feeds) if name not in there),
        *nodes,
    ]


def _check_fetches(fetches: Sequence[Ref], facts: Survey) -> None:
    for ref in fetches:
        if facts.frames.of_output(ref.node) is not facts.frames.root:
            message = f"{str(ref)!r} is inside a while loop, and has a value for each iteration"
            raise UsageError(message, "fetch what leaves the loop", facts.where)

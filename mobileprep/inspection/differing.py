"""Compare two models: their nodes, regardless of names, and their outputs."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.graph.compare import GraphDifference, compare_graphs
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import FEEDABLE
from mobileprep.graph.reachability import colocated, ends, placeholders, reachable
from mobileprep.graph.refs import FreshNames, Ref, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.graph.tensor_digests import own_digest
from mobileprep.graph.verify import execution_order
from mobileprep.inspection.benchmark import opened
from mobileprep.runtime.engines.agreement import Engine
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.sampling.draw import draw_samples
from mobileprep.runtime.sampling.inputs import fed_tensors


class OutputDifference(Struct, frozen=True):
    """Difference of an output from the first model's for the same samples.

    Args:
        output: tensor in the first model.
        other: tensor in the second model.
        largest: largest absolute difference; for strings, the number of different ones; infinite or
            NaN if shapes or dtypes differ, or only one side is finite.
        peak: largest absolute value in the first model.
    """

    output: str
    other: str
    largest: float
    peak: float


class ModelDifference(Struct, frozen=True):
    """Differences between two models.

    Args:
        a: the first model.
        b: the second model.
        nodes_a: number of nodes of the first model.
        nodes_b: number of nodes of the second model.
        matched: number of matched nodes, equal or changed.
        renamed: for matched nodes with different names, the name in the second model by that in the
            first; these do not count as differences.
        differences: differences between the graphs, by node name in the second model, or in the
            first for nodes that only the first has.
        samples: number of samples that both models ran.
        outputs: differences of their outputs.
        equal: whether no difference was found.
    """

    a: str
    b: str
    nodes_a: int
    nodes_b: int
    matched: int
    renamed: Mapping[str, str]
    differences: tuple[GraphDifference, ...]
    samples: int
    outputs: tuple[OutputDifference, ...]
    equal: bool

    def as_data(self) -> dict[str, Any]:
        """Return the result as JSON-serializable data, with null for infinity and NaN."""
        plain: dict[str, Any] = to_builtins(self)
        return plain | {
            "differences": [d.as_data() for d in self.differences],
            "outputs": [
                to_builtins(o) | {"largest": _finite(o.largest), "peak": _finite(o.peak)}
                for o in self.outputs
            ],
        }


def diff(
    a: Graph | FilePath,
    b: Graph | FilePath,
    *,
    tolerance: float = 0.0,
    samples: int = 0,
    outputs: Sequence[str] = (),
    warn: Warn | None = None,
) -> ModelDifference:
    """Compare two models. Nodes are matched regardless of their names.

    Args:
        a: a graph, or the path of any model that ``freeze`` accepts, which is frozen first.
        b: the other model.
        tolerance: largest absolute difference to ignore, in constants and outputs.
        samples: number of random samples to run both models on; 0 to compare only the graphs.
        outputs: tensors of ``a`` to compare on samples; by default a signature's outputs, or the
            graph's final nodes.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: an output is not in the first model, or no samples can be drawn for it.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: a graph is malformed.
        UnsupportedError: a model cannot be frozen or run.
    """
    warn = warn or as_warning
    first, second = (opened(model, (), warn) for model in (a, b))
    names = matching_nodes(first.graph, second.graph)
    alone = _alone(first.graph, names, second.graph)
    renamed_first = renamed(first.graph, {**names, **alone})
    own = {name: before for before, name in alone.items()}
    differences = tuple(
        replace(d, name=own.get(d.name, d.name)) if d.kind == "removed" else d
        for d in compare_graphs(renamed_first, second.graph, tolerance=tolerance)
    )
    output_differences: tuple[OutputDifference, ...] = ()
    if samples:
        requested = [
            first.tensor(n) for n in names_of(outputs) or first.outputs or ends(first.graph)
        ]
        engines = [open_engine("numpy", m.graph, m.path, tell=warn) for m in (first, second)]
        # Inputs and outputs keep their names even if all nodes between them differ.
        alike = {n.name: n.name for n in first.graph if n.name in second.graph}
        output_differences = _on_samples(
            (first.graph, second.graph), engines, {**alike, **names}, requested, samples
        )
    return ModelDifference(
        str(first.path) if isinstance(a, Graph) else str(a),
        str(second.path) if isinstance(b, Graph) else str(b),
        len(first.graph),
        len(second.graph),
        len(names),
        {name: other for name, other in names.items() if name != other},
        differences,
        samples,
        output_differences,
        not differences and all(o.largest <= tolerance for o in output_differences),
    )


def _alone(graph: Graph, names: Mapping[str, str], other: Graph) -> dict[str, str]:
    """Return unique names for the nodes that only the first graph has.

    Names that also occur in the second graph get a suffix that is not valid in TensorFlow.
    """
    fresh = FreshNames([*other.by_name])
    return {
        n.name: fresh.name(f"{n.name} (of the first)" if n.name in other else n.name)
        for n in graph
        if n.name not in names
    }


def _on_samples(
    graphs: Sequence[Graph],
    engines: Sequence[Engine],
    names: Mapping[str, str],
    requested: Sequence[str],
    samples: int,
) -> tuple[OutputDifference, ...]:
    others = [_other(name, names, graphs[0]) for name in requested]
    needed = reachable(graphs[0], [parse_ref(name).node for name in requested])
    fed = fed_tensors(graphs[0], [name for name in placeholders(graphs[0]) if name in needed])
    drawn = draw_samples(graphs[0], fed, samples, lambda f: engines[0].run(requested, f))
    pairs: list[list[tuple[Array, Array]]] = [[] for _ in requested]
    for feeds, results in zip(drawn.feeds, drawn.outputs, strict=True):
        there = {_other(name, names, graphs[0]): array for name, array in feeds.items()}
        for column, x, y in zip(pairs, results, _run(engines[1], others, there), strict=True):
            column.append((x, y))
    return tuple(
        OutputDifference(name, other, max(_gap(x, y) for x, y in column), _peak(column))
        for name, other, column in zip(requested, others, pairs, strict=True)
    )


def _run(engine: Engine, fetches: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    try:
        return engine.run(fetches, feeds)
    except MobileprepError as error:
        message = f"the second model does not run on the first one's samples: {error.message}"
        raise UsageError(message, error.hint, error.where) from error


def _other(name: str, names: Mapping[str, str], graph: Graph) -> str:
    """Return the tensor of the second model that matches a tensor of the first."""
    ref = parse_ref(name)
    if ref.node in names:
        return str(ref.renamed(names[ref.node]))
    if ref.node not in graph:
        message = f"the first model has no tensor {name!r}"
        raise UsageError(message, "name tensors of the first model in --outputs")
    message = f"the second model has no match for {name!r} of the first"
    raise UsageError(message, "name outputs that both have: --outputs a,b")


def _gap(x: Array, y: Array) -> float:
    if x.shape != y.shape or (x.dtype == object) != (y.dtype == object):
        return math.inf
    if x.dtype == object:
        return float(np.sum(x != y))
    same = (x == y) | ((x != x) & (y != y))  # NaN equals NaN
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        gaps = np.abs(x[~same].astype(np.complex128) - y[~same].astype(np.complex128))
    # A maximum of NaN would pass every comparison.
    return math.inf if np.isnan(gaps).any() else float(gaps.max())


def _peak(column: Sequence[tuple[Array, Array]]) -> float:
    numbers = [x for x, _ in column if x.size and x.dtype != object]
    return max((float(np.abs(x).max()) for x in numbers), default=0.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Attributes that contain node names or inferred shapes.
_NAMING: Final = ("_class", "_output_shapes")

# The op of a consumer, its input slot, and the output index that it reads.
_Use: TypeAlias = tuple[str, int, int]


def matching_nodes(a: Graph, b: Graph) -> dict[str, str]:
    """Match nodes of ``a`` to nodes of ``b``, by name. Each node of ``b`` is matched at most once.

    Nodes with equal digests of op, attributes, constants, and all inputs are matched first.
    Matches then propagate to inputs and consumers, so that nodes after a changed constant are
    matched too. If most nodes of a graph have the same name in the other, nodes with equal names
    and ops are matched before that; generated names are not reliable. Remaining nodes with equal
    digests, such as equal constants, are matched in graph order.
    """
    matching = _Matching(a, b)
    rounds = [[_digests(graph, by_name=named) for graph in (a, b)] for named in (True, False)]
    for first, second in rounds:
        matching.surely(first, second)
    if sum(_has(b, node) for node in a) * 2 > min(len(a), len(b)):
        matching.by_name()
    matching.along_edges()
    for first, second in rounds:
        matching.in_order(first, second)
    matching.along_edges(in_order=True)
    return matching.found


def _has(graph: Graph, node: Node) -> bool:
    """Return whether a graph has a node of the same name and op."""
    other = graph.get(node.name)
    return other is not None and other.op == node.op


def _digests(graph: Graph, *, by_name: bool) -> dict[str, bytes]:
    """Compute a digest of each node's computation.

    Args:
        by_name: whether to distinguish placeholders by name instead of by dtype and shape.
    """
    digests: dict[str, bytes] = {}
    for node in execution_order(graph, ""):
        digest = hashlib.sha256(own_digest(node.without_attrs(*_NAMING)))
        if by_name and node.op in FEEDABLE:
            digest.update(node.name.encode())
        for ref in node.data_inputs:
            # The back edge of a loop is not computed yet.
            digest.update(digests.get(ref.node, b"loop") + str(ref.index).encode())
        for before in sorted(digests.get(r.node, b"loop") for r in node.control_inputs):
            digest.update(b"^" + before)
        digests[node.name] = digest.digest()
    return digests


class _Matching:
    """Matched nodes. Matches propagate along edges."""

    def __init__(self, a: Graph, b: Graph) -> None:
        self._a, self._b = a, b
        self._uses = _uses(a), _uses(b)
        self.found: dict[str, str] = {}
        self._taken: set[str] = set()
        self._fresh: deque[tuple[str, str]] = deque()
        self._first: Mapping[str, bytes] = {}
        self._second: Mapping[str, bytes] = {}

    def surely(self, first: Mapping[str, bytes], second: Mapping[str, bytes]) -> None:
        """Match nodes with a unique digest, then those with equal digest and name."""
        self._first, self._second = first, second
        groups = _groups(first), _groups(second)
        for digest, names in groups[0].items():
            others = groups[1].get(digest, [])
            if len(names) == len(others) == 1:
                self._pair(names[0], others[0])
        self._spread(exact=True)
        for name, digest in first.items():
            if second.get(name) == digest:
                self._pair(name, name)
        self._spread(exact=True)

    def in_order(self, first: Mapping[str, bytes], second: Mapping[str, bytes]) -> None:
        """Match remaining nodes with equal digests in graph order."""
        self._first, self._second = first, second
        groups = _groups({n: d for n, d in second.items() if n not in self._taken})
        others = {digest: iter(names) for digest, names in groups.items()}
        for name, digest in first.items():
            if name in self.found:
                continue
            unmatched = (n for n in others.get(digest, ()) if n not in self._taken)
            other = next(unmatched, None)
            if other is not None:
                self._pair(name, other)
                self._spread(exact=True)

    def by_name(self) -> None:
        """Match remaining nodes by name and op."""
        for node in self._a:
            if _has(self._b, node):
                self._pair(node.name, node.name)

    def along_edges(self, *, in_order: bool = False) -> None:
        """Match nodes of one op that have the same edges to matched nodes, if unique."""
        self._fresh.extend(self.found.items())
        self._spread(exact=False, in_order=in_order)

    def _pair(self, name: str, other: str) -> None:
        if name not in self.found and other not in self._taken:
            self.found[name] = other
            self._taken.add(other)
            self._fresh.append((name, other))

    def _spread(self, *, exact: bool, in_order: bool = False) -> None:
        """Propagate matches to inputs, and to consumers unless digests must be equal."""
        while self._fresh:
            name, other = self._fresh.popleft()
            first, second = self._a[name].inputs, self._b[other].inputs
            for ref, other_ref in zip(first, second, strict=False):
                self._try(ref.node, other_ref.node, exact=exact)
            if not exact:
                self._follow(name, other, in_order=in_order)

    def _follow(self, name: str, other: str, *, in_order: bool) -> None:
        first, second = self._uses
        other_users = _users(second.get(other, ()), self._taken)
        for use, users in _users(first.get(name, ()), self.found).items():
            candidates = other_users.get(use, [])
            if in_order or len(users) == len(candidates) == 1:
                for user, candidate in zip(users, candidates, strict=False):
                    self._try(user, candidate, exact=False)

    def _try(self, name: str, other: str, *, exact: bool) -> None:
        node, other_node = self._a.get(name), self._b.get(other)
        if node is None or other_node is None or node.op != other_node.op:
            return
        if not exact or self._first.get(name) == self._second.get(other):
            self._pair(name, other)


def _groups(digests: Mapping[str, bytes]) -> dict[bytes, list[str]]:
    groups: dict[bytes, list[str]] = {}
    for name, digest in digests.items():
        groups.setdefault(digest, []).append(name)
    return groups


def _uses(graph: Graph) -> dict[str, list[tuple[str, _Use]]]:
    """Return the consumers of each node, with their use, in graph order."""
    consumers: dict[str, list[tuple[str, _Use]]] = {}
    for user in graph:
        for slot, ref in enumerate(user.inputs):
            consumers.setdefault(ref.node, []).append((user.name, (user.op, slot, ref.index)))
    return consumers


def _users(uses: Iterable[tuple[str, _Use]], done: Container[str]) -> dict[_Use, list[str]]:
    """Return the unmatched consumers, by their use."""
    unmatched: dict[_Use, list[str]] = {}
    for user, use in uses:
        if user not in done:
            unmatched.setdefault(use, []).append(user)
    return unmatched


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return a graph with renamed nodes, including all references to them."""
    return graph.with_nodes(_renamed(node, names) for node in graph)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(_ref(ref, names) for ref in node.inputs)
    moved = replace(node, name=names.get(node.name, node.name), inputs=inputs)
    return colocated(moved, lambda name: names.get(name, name))


def _ref(ref: Ref, names: Mapping[str, str]) -> Ref:
    return ref.renamed(names[ref.node]) if ref.node in names else ref

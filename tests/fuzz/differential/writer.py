"""Add nodes to a graph one by one, and record the value of each tensor."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from tests.fuzz.differential.items import Item, dtype_of, graph_of, typed
from tests.litert.graphs import const, feed, op

MAX_SIZE = 400
_EMPTY = 0.004
"""Share of shapes without elements."""
_MAX_FLOAT, _MAX_INTEGER = 3e3, 1 << 20


class Tensor(Struct, frozen=True, eq=False):
    """A tensor of the graph with its value for the feeds."""

    ref: str
    value: Array
    is_constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)


@dataclass
class Names:
    """Numbers for names, shared by a graph and the bodies in it."""

    count: int = 0
    refused: list[str] = field(default_factory=list)
    """Error messages of the interpreter about invalid random nodes."""

    def next(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


@dataclass
class Writer:
    """Builds a graph or a body.

    Args:
        rng: random numbers.
        names: names for nodes.
        kind: ``float``, or the mode that quantizes.
        depth: number of bodies around this one.
        is_function: whether the bodies around it are functions.
    """

    rng: random.Random
    names: Names
    kind: str = "float"
    depth: int = 0
    is_function: bool = False
    items: list[Item] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)
    open_sizes: bool = False

    # Sources

    def numbers(self, shape: Sequence[int], dtype: DType = DType.FLOAT) -> Array:
        """Random values; floats are often multiples of 1/8, for exact sums and products."""
        state = np.random.default_rng(self.rng.getrandbits(48))
        if dtype is DType.BOOL:
            return state.random(shape) < 0.5
        if dtype is not DType.FLOAT:
            low = 0 if dtype is DType.UINT8 else -7
            return state.integers(low, 8, shape).astype(dtype.numpy)
        if self.kind == "float" and self.rng.random() < 0.7:
            return (state.integers(-24, 25, shape) / 8).astype(np.float32)
        scale = self.rng.choice([0.02, 0.3, 1, 1, 1, 8, 60]) if self.kind != "float" else 1
        return (state.standard_normal(shape) * scale).astype(np.float32)

    def constant(self, array: Array) -> Tensor:
        node = const(self.names.next("c"), np.asarray(array))
        self.items.append(node)
        return Tensor(node.name, np.asarray(array), is_constant=True)

    def placeholder(self, array: Array) -> Tensor:
        shape = list(array.shape)
        if self.open_sizes:
            for i in range(self.rng.randint(0, min(2, len(shape)))):
                shape[i] = -1
        node = feed(self.names.next("x"), shape, dtype_of(array))
        self.items.append(node)
        self.feeds[node.name] = array
        tensor = Tensor(node.name, array)
        self.tensors.append(tensor)
        return tensor

    def source(self, shape: Sequence[int], dtype: DType = DType.FLOAT) -> Tensor:
        """A tensor of a shape: an existing one, a constant, or a new input."""
        matches = [t for t in self.tensors if t.shape == tuple(shape) and t.dtype is dtype]
        draw = self.rng.random()
        if matches and draw < 0.6:
            return self.rng.choice(matches)
        array = self.numbers(shape, dtype)
        if draw < 0.8 or self.depth:
            return self.constant(array)
        return self.placeholder(array)

    def pick(self, accepts: Callable[[Tensor], bool]) -> Tensor | None:
        """An existing tensor; newer ones more often."""
        matches = [t for t in self.tensors if accepts(t)]
        if not matches:
            return None
        return self.rng.choice(matches[-4:] if self.rng.random() < 0.6 else matches)

    def shape(self, low: int = 0, high: int = 6) -> tuple[int, ...]:
        """A random shape of limited size."""
        weights = [2, 3, 5, 5, 6, 3, 2]
        ranks = range(low, high + 1)
        rank = self.rng.choices(ranks, weights[low : high + 1])[0]
        sizes = [self.rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 7]) for _ in range(rank)]
        if self.kind == "float" and sizes and self.rng.random() < _EMPTY:
            sizes[self.rng.randrange(rank)] = 0
        while np.prod(sizes, dtype=int) > MAX_SIZE:
            sizes[sizes.index(max(sizes))] = 2
            if max(sizes) <= 2:
                break
        return tuple(sizes)

    def floats(self, low: int = 0, high: int = 6) -> Tensor:
        """A float tensor whose rank is in bounds."""
        match = None
        if self.rng.random() < 0.85:
            match = self.pick(lambda t: t.dtype is DType.FLOAT and low <= t.rank <= high)
        return match or self.source(self.shape(low, high))

    def of(self, dtypes: Sequence[DType], low: int = 0, high: int = 6) -> Tensor:
        """A tensor of one of some dtypes whose rank is in bounds."""
        match = self.pick(lambda t: t.dtype in dtypes and low <= t.rank <= high)
        return match or self.source(self.shape(low, high), self.rng.choice(list(dtypes)))

    # Nodes

    def add(
        self, kind: str, inputs: Sequence[Tensor], outputs: int = 1, **attrs: object
    ) -> list[Tensor] | None:
        """Add a node; None if its values are not suitable."""
        name = self.names.next("n")
        node = op(
            name, kind, [t.ref for t in inputs], **typed(kind, [t.dtype for t in inputs], attrs)
        )
        return self.add_item(node, inputs, [name, *(f"{name}:{i}" for i in range(1, outputs))])

    def add_item(
        self, item: Item, inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> list[Tensor] | None:
        """Add a part of the graph, unless its values are too large or not finite."""
        inputs_by_ref = {t.ref: t for t in inputs}
        before: list[Item] = []
        feeds, aliases = {}, {}
        for i, (ref, t) in enumerate(inputs_by_ref.items()):
            if t.is_constant:
                before.append(const(ref, t.value))
            else:
                aliases[ref] = f"given{i}"
                before.append(feed(f"given{i}", t.shape, t.dtype))
                feeds[f"given{i}"] = t.value
        try:
            with np.errstate(all="ignore"):
                values = _run(item, before, aliases, feeds, outputs)
        except InvalidGraphError as error:
            self.names.refused.append(str(error))
            return None
        if any(not _is_tame(v) for v in values):
            return None
        self.items.append(item)
        results = [Tensor(ref, v) for ref, v in zip(outputs, values, strict=True)]
        self.tensors += results
        return results

    def one(self, kind: str, *inputs: Tensor, **attrs: object) -> Tensor | None:
        """Add a node with one output."""
        results = self.add(kind, inputs, **attrs)
        return None if results is None else results[0]


def _run(
    item: Item,
    before: Sequence[Item],
    aliases: Mapping[str, str],
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
) -> list[Array]:
    """The values of a part of the graph, which runs alone."""
    if isinstance(item, Node):
        refs = tuple(parse_ref(aliases.get(str(r), str(r))) for r in item.inputs)
        graph, names = Graph([*before, replace(item, inputs=refs)]), list(outputs)
    else:
        moved = replace(item, inputs=tuple(aliases.get(r, r) for r in item.inputs))
        graph, names = graph_of([*before, moved], outputs)
    return NumpyEngine(graph, "fuzz").run(names, feeds)


def _is_tame(value: Array) -> bool:
    if value.size > MAX_SIZE or value.ndim > 6:
        return False
    if not value.size or value.dtype == np.bool_:
        return True
    if value.dtype.kind == "f":
        return bool(np.isfinite(value).all() and np.abs(value).max() <= _MAX_FLOAT)
    return bool(np.abs(value.astype(np.int64)).max() <= _MAX_INTEGER)

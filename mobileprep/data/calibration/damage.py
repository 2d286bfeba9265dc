"""Quantization error per tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import output_types, signature_of
from mobileprep.graph.reachability import conditional_nodes, dependents
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.differences import Damage, DamageSum, Grid
from mobileprep.ops.numerics.quantization import Dequantizer, Limits
from mobileprep.runtime.interpreter import Interpreter

_EIGHT_BITS: Final = frozenset({DType.QUINT8, DType.QINT8})
# Name suffixes of nodes that hold the integers of a float tensor.
_ENDINGS: Final = ("_eightbit/quantize", "/eightbit/requantize", "/eightbit")
_WEIGHTS: Final = "_eightbit/values"
_SCALES: Final = "_eightbit/scales"
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})


class Counterpart(Struct, frozen=True):
    """A tensor of the float graph and its counterpart in the quantized graph.

    Args:
        tensor: the tensor of the float graph.
        values: the tensor of the quantized graph: floats or 8-bit integers.
        ends: the minimum and maximum of the integers' range; None if the values are floats.
        scales: per-channel factors of the dequantized values; or None.
        is_weights: whether the tensor holds weights rather than activations.
    """

    tensor: Edge
    values: Ref
    ends: tuple[Ref, Ref] | None = None
    scales: Ref | None = None
    is_weights: bool = False


def counterparts(graph: Graph, quantized: Graph, inputs: tuple[str, ...]) -> list[Counterpart]:
    """Return the pairs of tensors that can be compared.

    Tensors in branches and loops are skipped, as are those that depend only on weights. If a tensor
    exists both as 8-bit integers and as floats, the integers are compared.
    """
    conditional = conditional_nodes(graph) | conditional_nodes(quantized)
    fed = frozenset(dependents(graph, [name for name in inputs if name in graph]))
    pairs: dict[Edge, Counterpart] = {}
    for pair in _eightbit(graph, quantized):
        name = pair.tensor[0]
        is_fed = pair.is_weights or name in fed
        if is_fed and name not in conditional and pair.values.node not in conditional:
            pairs.setdefault(pair.tensor, pair)
    for tensor in _floats(graph, quantized):
        name = tensor[0]
        if name in fed and name not in inputs and name not in conditional:
            pairs.setdefault(tensor, Counterpart(tensor, Ref(*tensor)))
    return list(pairs.values())


def _floats(graph: Graph, quantized: Graph) -> Iterator[Edge]:
    """Yield the float32 tensors that both graphs compute."""
    for node in graph:
        there = quantized.by_name.get(node.name)
        if there is None or node.op == "Const":
            continue
        both = zip(_types(node), _types(there), strict=False)
        for index, types in enumerate(both):
            if types == (DType.FLOAT, DType.FLOAT):
                yield node.name, index


def _types(node: Node) -> list[DType]:
    definition = signature_of(node)
    return [] if definition is None else output_types(node, definition)


def _eightbit(graph: Graph, quantized: Graph) -> Iterator[Counterpart]:
    for node in quantized:
        if node.op == "Const":
            yield from _constant(graph, quantized, node)
        elif node.op == "Dequantize" and node.name in graph:
            values, low, high = node.data_inputs[:3]
            if node.attr_dtype("T") in _EIGHT_BITS:
                is_constant = quantized[values.node].op == "Const"
                tensor = (node.name, 0)
                yield Counterpart(tensor, values, (low, high), is_weights=is_constant)
        elif _is_eightbit(node):
            named = _named(graph, quantized, node)
            if named is not None:
                yield Counterpart(named, Ref(node.name), (Ref(node.name, 1), Ref(node.name, 2)))


def _is_eightbit(node: Node) -> bool:
    """Return whether a node outputs 8-bit integers and the ends of their range."""
    types = _types(node)
    return len(types) == 3 and types[0] in _EIGHT_BITS


def _constant(graph: Graph, quantized: Graph, node: Node) -> Iterator[Counterpart]:
    name = node.name.removesuffix(_WEIGHTS)
    low, high = Ref(f"{name}_eightbit/min"), Ref(f"{name}_eightbit/max")
    if name == node.name or name not in graph:
        return
    if low.node in quantized and high.node in quantized:
        scales = Ref(f"{name}{_SCALES}") if f"{name}{_SCALES}" in quantized else None
        yield Counterpart((name, 0), Ref(node.name), (low, high), scales, is_weights=True)


def _named(graph: Graph, quantized: Graph, node: Node) -> Edge | None:
    """Return the float tensor that a node's integers represent, or None."""
    if node.op == "QuantizeV2":
        tensor = edge(node.data_inputs[0])
        return _activated(graph, quantized, tensor) if tensor[0] in graph else None
    for ending in _ENDINGS:
        name = node.name.removesuffix(ending)
        if name != node.name and name in graph:
            return _activated(graph, quantized, (name, 0))
    return None


def _activated(graph: Graph, quantized: Graph, tensor: Edge) -> Edge:
    """Return the tensor, or the output of the activation that quantization folded into it."""
    after = graph.consumers.get(tensor[0], ())
    gone = [n.name for n in after if n.op in _ACTIVATIONS and n.name not in quantized]
    return (gone[0], 0) if len(gone) == 1 else tensor


# Remains of dropout draw random numbers, although these do not affect the result.
SEED: Final = 20160823


class TensorDamage(Struct, frozen=True):
    """The quantization error of a tensor.

    Args:
        tensor: its name in the float graph: ``node`` or ``node:1``.
        op: the op that computes it.
        is_weights: whether it is a constant rather than an activation.
        is_eightbit: whether it is stored as 8-bit integers itself, not only computed from such.
        damage: the difference from the float tensor.
    """

    tensor: str
    op: str
    is_weights: bool
    is_eightbit: bool
    damage: Damage


def tensor_damage(
    graph: Graph, quantized: Graph, feeds: Iterable[Mapping[str, Array]]
) -> tuple[TensorDamage, ...]:
    """Compare the tensors of a graph with those of its quantized version.

    Both graphs run once for each of ``feeds``. Only the tensors of one run are in memory at a time,
    so memory depends on the size of a feed and not on the number of feeds.

    Returns:
        The tensors by signal-to-noise ratio, the lowest first; ties in graph order.
    """
    comparison: _Comparison | None = None
    for feed in feeds:
        if comparison is None:
            inputs = tuple(parse_ref(name).node for name in feed)
            comparison = _Comparison(graph, quantized, inputs)
        comparison.add(feed)
    return () if comparison is None else comparison.damages()


class _Comparison:
    def __init__(self, graph: Graph, quantized: Graph, inputs: tuple[str, ...]) -> None:
        self._graph = graph
        self._float = Interpreter(graph, seed=SEED)
        self._quantized = Interpreter(quantized, seed=SEED)
        pairs = counterparts(graph, quantized, inputs)
        self._due = pairs
        self._sums = {pair: DamageSum() for pair in pairs}
        self._unlike: set[Counterpart] = set()

    def add(self, feed: Mapping[str, Array]) -> None:
        """Run both graphs and compare their activations; compare weights only the first time."""
        self._count(self._due, feed)
        self._due = [pair for pair in self._due if not pair.is_weights]

    def damages(self) -> tuple[TensorDamage, ...]:
        """Return the accumulated errors, the lowest signal-to-noise ratio first."""
        damages = [
            TensorDamage(
                str(Ref(*pair.tensor)),
                self._graph[pair.tensor[0]].op,
                pair.is_weights,
                pair.ends is not None,
                sums.damage(),
            )
            for pair, sums in self._sums.items()
            if pair not in self._unlike
        ]
        return tuple(sorted(damages, key=lambda tensor: tensor.damage.sqnr))

    def _count(self, pairs: Sequence[Counterpart], feed: Mapping[str, Array]) -> None:
        expected = self._float.run([str(Ref(*pair.tensor)) for pair in pairs], feed)
        requested: dict[str, None] = {}
        for pair in pairs:
            requested.update(dict.fromkeys(map(str, _needed(pair))))
        names = list(requested)
        arrays = dict(zip(names, self._quantized.run(names, feed), strict=True))
        for pair, values in zip(pairs, expected, strict=True):
            other, grid = _meaning(pair, arrays)
            if other.shape == values.shape:
                self._sums[pair].add(values, other, grid)
            else:
                self._unlike.add(pair)


def _needed(pair: Counterpart) -> tuple[Ref, ...]:
    scales = () if pair.scales is None else (pair.scales,)
    return (pair.values, *(pair.ends or ()), *scales)


def _meaning(pair: Counterpart, arrays: Mapping[str, Array]) -> tuple[Array, Grid | None]:
    """Return the dequantized values, and the grid of representable values."""
    values = arrays[str(pair.values)]
    if pair.ends is None:
        return values, None
    low, high = (np.float32(arrays[str(end)].reshape(-1)[0]) for end in pair.ends)
    rule = Dequantizer.of(Limits(low, high), values.dtype)
    steps = np.iinfo(values.dtype)
    scales = _along_channels(values, None if pair.scales is None else arrays[str(pair.scales)])
    ends = rule(np.array([steps.min, steps.max], values.dtype))
    grid = Grid(ends[0] * scales, ends[1] * scales, np.abs(rule.scale * scales))
    return rule(values) * scales, grid


def _along_channels(values: Array, scales: Array | None) -> Array:
    """Reshape the scales so that they broadcast to the values."""
    if scales is None:
        return np.ones((), np.float32)
    if scales.ndim == values.ndim or values.shape[-1] == scales.size:
        return scales
    return scales[:, np.newaxis]  # the matrix is transposed

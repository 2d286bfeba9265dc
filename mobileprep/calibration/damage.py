"""What quantizing has done to each tensor of a graph, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.calibration.counterparts import Counterpart, counterparts
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Ref, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.numerics.linear_quantization import Dequantizer
from mobileprep.numerics.quantization import Limits
from mobileprep.numerics.quantization_damage import Damage, DamageSum, Grid
from mobileprep.runtime.interpreter import Interpreter

# What is left of dropout draws numbers, though they change nothing where all is kept.
SEED: Final = 20160823


@dataclass(frozen=True)
class TensorDamage:
    """What quantizing has done to a tensor.

    Args:
        tensor: its name in the float graph: ``node`` or ``node:1``.
        op: of the node that makes it.
        is_weights: whether it is a constant, and not an activation.
        is_eightbit: whether it is kept in eight bits itself, and not only made of what is.
        damage: how far it is from float.
    """

    tensor: str
    op: str
    is_weights: bool
    is_eightbit: bool
    damage: Damage


def tensor_damage(
    graph: Graph, quantized: Graph, feeds: Iterable[Mapping[str, Array]]
) -> tuple[TensorDamage, ...]:
    """Compare a graph's tensors with those of what quantizing made of it.

    Both graphs run once for each of ``feeds``. All tensors that are compared are kept for one run,
    so that memory grows with what is fed at once, and not with how often.

    Args:
        graph: the float graph.
        quantized: the other.
        feeds: what to feed, run by run; the same inputs each time.

    Returns:
        The tensors by signal to noise, the lowest first; of equal ones in the order of the graph.

    Raises:
        UsageError, UnsupportedError, InvalidGraphError: a graph cannot be run.
    """
    comparison: _Comparison | None = None
    for feed in feeds:
        if comparison is None:
            inputs = tuple(parse_ref(name).node for name in feed)
            comparison = _Comparison(graph, quantized, inputs)
        comparison.add(feed)
    return () if comparison is None else comparison.told()


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
        """Run both graphs, and count their activations in; their weights the first time alone."""
        self._count(self._due, feed)
        self._due = [pair for pair in self._due if not pair.is_weights]

    def told(self) -> tuple[TensorDamage, ...]:
        """What was counted in."""
        found = [
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
        return tuple(sorted(found, key=lambda tensor: tensor.damage.sqnr))

    def _count(self, pairs: Sequence[Counterpart], feed: Mapping[str, Array]) -> None:
        expected = self._float.run([str(Ref(*pair.tensor)) for pair in pairs], feed)
        asked: dict[str, None] = {}
        for pair in pairs:
            asked.update(dict.fromkeys(map(str, _needed(pair))))
        names = list(asked)
        found = dict(zip(names, self._quantized.run(names, feed), strict=True))
        for pair, values in zip(pairs, expected, strict=True):
            other, grid = _meaning(pair, found)
            if other.shape == values.shape:
                self._sums[pair].add(values, other, grid)
            else:
                self._unlike.add(pair)


def _needed(pair: Counterpart) -> tuple[Ref, ...]:
    scales = () if pair.scales is None else (pair.scales,)
    return (pair.values, *(pair.ends or ()), *scales)


def _meaning(pair: Counterpart, found: Mapping[str, Array]) -> tuple[Array, Grid | None]:
    """The floats that quantized values stand for, and which there could be."""
    values = found[str(pair.values)]
    if pair.ends is None:
        return values, None
    low, high = (np.float32(found[str(end)].reshape(-1)[0]) for end in pair.ends)
    rule = Dequantizer.of(Limits(low, high), values.dtype)
    steps = np.iinfo(values.dtype)
    scales = _along_channels(values, None if pair.scales is None else found[str(pair.scales)])
    ends = rule(np.array([steps.min, steps.max], values.dtype))
    grid = Grid(ends[0] * scales, ends[1] * scales, np.abs(rule.scale * scales))
    return rule(values) * scales, grid


def _along_channels(values: Array, scales: Array | None) -> Array:
    """The scales in a shape that the values broadcast to."""
    if scales is None:
        return np.ones((), np.float32)
    if scales.ndim == values.ndim or values.shape[-1] == scales.size:
        return scales
    return scales[:, np.newaxis]  # of a matrix that is taken transposed

"""The records of the stages by which ``quantize: auto`` looks for layers; see ``records``."""

from __future__ import annotations

from mobileprep.frozen import dataclass


@dataclass(frozen=True)
class RankedLayer:
    """What quantizing one layer alone does to the outputs.

    Args:
        layer: its name in the float graph.
        op: its op.
        sqnr: signal to noise in dB, of the output where it is lowest.
    """

    layer: str
    op: str
    sqnr: float


@dataclass(frozen=True)
class RankingRecord:
    """The layers that may be left out of eight bits, ``ranking.json``.

    Args:
        samples: how many were run; 0 where all layers in eight bits are good enough.
        layers: the worst first; none in that case.
        fixed: how many others are quantized as the recipe's rules say.
    """

    samples: int
    layers: tuple[RankedLayer, ...]
    fixed: int


@dataclass(frozen=True)
class TrialRecord:
    """How a graph was quantized, ``trial.json``.

    Args:
        floats: how many of the worst layers are left in float.
        weights: how many of the next worst have their weights alone in eight bits.
        is_new: whether it has not been tried before.
    """

    floats: int
    weights: int
    is_new: bool


@dataclass(frozen=True)
class TryRecord:
    """What a try came to.

    Args:
        floats, weights: see ``TrialRecord``.
        shortfall: how far the limits are missed, in the metrics' units, the largest of them; 0
            where they hold, None where the outputs cannot be compared.
        told: a sentence for each limit that is missed.
    """

    floats: int
    weights: int
    shortfall: float | None
    told: tuple[str, ...]


@dataclass(frozen=True)
class TriesRecord:
    """What all tries so far came to, ``tries.json``."""

    tries: tuple[TryRecord, ...]

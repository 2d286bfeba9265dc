"""The range file: what values tensors take, as a YAML file that people review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TensorRange:
    """The values that a tensor takes.

    Args:
        low: the least, as the method has it.
        high: the greatest.
        graph: a digest of what of the graph computes the tensor; empty where it is not known.
    """

    low: float
    high: float
    graph: str = ""


@dataclass(frozen=True)
class RangeFile:
    """Ranges, and what they were measured by.

    Args:
        tensors: ranges by tensor, ``node`` or ``node:1``.
        method: how they were found.
        samples: on how many samples.
        data: the sha256 of the data.
    """

    tensors: Mapping[str, TensorRange] = field(default_factory=dict)
    method: str = ""
    samples: int = 0
    data: str = ""

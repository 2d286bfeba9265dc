"""Building blocks of the cases for op kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = (np.float32, np.float64, np.float16)
INTEGERS = (np.int32, np.int64, np.uint8, np.int8, np.int16)
F32 = np.float32
BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Case:
    """One run of one op.

    Args:
        op: the op.
        inputs: its inputs.
        attrs: the attributes that do not follow from the inputs.
        tolerance: relative, for single precision.
        note: the purpose of the case.
    """

    op: str
    inputs: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    note: str = ""

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, a.shape)) or "s" for a in self.inputs)
        return f"{self.op}-{self.inputs[0].dtype if self.inputs else ''}-{shapes}-{self.note}"


class Make:
    """Arrays from one seeded generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def real(self, *shape: int, kind: Any = F32, low: float = -3, high: float = 3) -> np.ndarray:
        drawn = self.rng.uniform(low, high, shape)
        kind = np.dtype(kind)
        if kind.kind in "iu":
            info = np.iinfo(kind)
            drawn = np.clip(np.round(drawn), info.min, info.max)
        return drawn.astype(kind)

    def bits(self, *shape: int) -> np.ndarray:
        return self.rng.random(shape) < 0.5

    def whole(self, low: int, high: int, *shape: int, kind: Any = np.int32) -> np.ndarray:
        return self.rng.integers(low, high, shape).astype(kind)


def i32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def scalar(value: float, kind: Any = np.int32) -> np.ndarray:
    return np.array(value, dtype=kind)


# Without subnormal numbers, which TensorFlow sessions flush to 0.
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, 0.5], np.float32)

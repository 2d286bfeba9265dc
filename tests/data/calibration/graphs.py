"""Small graphs to calibrate, and samples for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mobileprep.data.calibration.observation import Subject
from mobileprep.data.options import Method
from mobileprep.data.source import Batch, Unread, data_inputs
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.refs import Edge
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import op, placeholder

TENSORS: tuple[Edge, ...] = (("x", 0), ("product", 0), ("sum", 0), ("y", 0))


def layer() -> Graph:
    """A dense layer from four numbers to three, with Relu."""
    weights = np.random.default_rng(7).normal(size=(4, 3)).astype(np.float32)
    return Graph(
        [
            placeholder((-1, 4)),
            constant("w", Tensor.of(weights)),
            constant("b", Tensor.of(np.array([0.5, -1, 2], np.float32))),
            op("product", "MatMul", "x", "w"),
            op("sum", "BiasAdd", "product", "b"),
            op("y", "Relu", "sum"),
        ]
    )


def subject(
    method: str = "percentile",
    *,
    graph: Graph | None = None,
    tensors: tuple[Edge, ...] = TENSORS,
    batch: int = 3,
) -> Subject:
    """The subject of a calibration."""
    graph = graph or layer()
    inputs = tuple(data_inputs(graph, ["x"], {}))
    return Subject(graph, ("y",), tensors, Method(method, 99.0, 0.9), inputs, batch)


@dataclass(frozen=True)
class Samples:
    """Rows of an array; the first process to read the second half may kill itself.

    Args:
        rows: the samples.
        kills: a file that a process writes before it kills itself, so that only one does; or None.
        always: kill every process.
    """

    rows: np.ndarray
    kills: Path | None = None
    always: bool = False
    name: str = "samples.npz"

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        end = len(self.rows) if stop is None else stop
        for first in range(start, end, size):
            if first > len(self.rows) // 2:
                self._kill()
            rows = self.rows[first : min(first + size, end)]
            yield Batch({"x": rows}, None, tuple(f"sample {first + i}" for i in range(len(rows))))

    def _kill(self) -> None:
        import os
        import signal

        if self.kills is None or (self.kills.exists() and not self.always):
            return
        self.kills.write_text("killed")
        os.kill(os.getpid(), signal.SIGKILL)


def samples(count: int = 40) -> Samples:
    """Reproducible rows for ``layer``."""
    return Samples(np.random.default_rng(8).normal(size=(count, 4)).astype(np.float32))

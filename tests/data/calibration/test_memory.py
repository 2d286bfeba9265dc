"""The memory of a calibration does not grow with the number of samples."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.data.calibration.shards import observed
from mobileprep.data.source import Batch
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge
from tests.building.stages.jobs import op, placeholder
from tests.data.calibration.graphs import subject

POOL = np.random.default_rng(8).normal(size=(16, 32, 32, 8)).astype(np.float32)
GRAPH = Graph([placeholder((-1, 32, 32, 8)), op("sum", "AddV2", "x", "x"), op("y", "Relu", "sum")])
TENSORS: tuple[Edge, ...] = (("x", 0), ("sum", 0), ("y", 0))


class Repeated:
    """Images that are generated on demand."""

    name = "repeated"

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def batches(
        self, size: int, start: int = 0, stop: int | None = None, unread: object = None
    ) -> Iterator[Batch]:
        end = self._count if stop is None else stop
        for first in range(start, end, size):
            count = min(size, end - first)
            rows = POOL[np.arange(first, first + count) % len(POOL)]
            yield Batch({"x": rows}, None, ("",) * count)


def peak(method: str, count: int) -> int:
    """The peak of bytes allocated by Python and numpy."""
    task = subject(method, graph=GRAPH, tensors=TENSORS, batch=8)
    tracemalloc.start()
    try:
        ranges, samples = ranges_of(observed(task, Repeated(count)), task.method)
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (set(ranges), samples) == (set(TENSORS), count)
    return allocated


@pytest.mark.slow
@pytest.mark.parametrize("method", ["min_max", "moving_average", "percentile"])
def test_memory_does_not_grow_with_the_samples(method: str) -> None:
    peak(method, 16)  # one-time allocations
    # Free lists of Python grow a little; a leak of one batch in a hundred would exceed this.
    assert peak(method, 10_000) <= peak(method, 100) + (1 << 20)

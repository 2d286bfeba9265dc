"""Stored outputs of evaluations."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.stages.evaluate.outputs import KeptOutputs, each_pair, kept_outputs
from mobileprep.errors import AccuracyError, CorruptFileError


def test_outputs_are_read_back_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "outputs.npz"
    with kept_outputs(path) as keep:
        for size in (2, 11, 0):
            keep([np.arange(size), np.float32(size)], size)
    batches = list(KeptOutputs(path, 2).each_batch())
    assert [(count, a.tolist(), b.item()) for count, (a, b) in batches] == [
        (2, [0, 1], 2.0),
        (11, list(range(11)), 11.0),
        (0, [], 0.0),
    ]


def test_failure_stores_no_outputs(tmp_path: Path) -> None:
    path = tmp_path / "outputs.npz"
    with pytest.raises(AccuracyError), kept_outputs(path) as keep:
        keep([np.zeros(3)], 3)
        raise AccuracyError
    assert not path.exists()
    with pytest.raises(CorruptFileError):
        list(KeptOutputs(path, 1).each_batch())


def test_memory_does_not_grow_with_the_batches(tmp_path: Path) -> None:
    path, batch = tmp_path / "outputs.npz", np.zeros((64, 1000))

    def peak(count: int) -> int:
        tracemalloc.start()
        with kept_outputs(path) as keep:
            for _ in range(count):
                keep([batch], len(batch))
        for _ in KeptOutputs(path, 1).each_batch():
            pass
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return allocated

    # Only the names of entries remain in memory.
    assert peak(40) < peak(4) + batch.nbytes / 2


@pytest.mark.parametrize("sizes", [(64, 1), (1, 64), (64, 100), (7, 3), (64, 64), (200, 1)])
def test_outputs_of_different_batch_sizes_are_paired(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """Transforms such as strip_unused_nodes may fix the batch size."""
    samples = 130
    values = np.arange(samples * 2).reshape(samples, 2)
    stored = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.npz"
        with kept_outputs(path) as keep:
            for at in range(0, samples, size):
                few = values[at : at + size]
                keep([few, np.float32(1)], len(few))
        stored.append(KeptOutputs(path, 2))
    seen = 0
    for count, (pair, of_batch) in each_pair(*stored):
        assert pair is not None
        assert [array.tolist() for array in pair] == [values[seen : seen + count].tolist()] * 2
        assert (of_batch is not None) == (min(sizes[0], samples) == min(sizes[1], samples))
        seen += count
    assert seen == samples

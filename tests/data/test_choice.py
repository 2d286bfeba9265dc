"""Choice of samples, and reading ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.data.singles import Chosen
from mobileprep.data.source import Batch, SampleChoice, Unread
from mobileprep.errors import AccuracyError


class Numbers:
    """Samples that are their own numbers, and a count of batches that were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read_batches = 0

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Sequence[int]) -> tuple[Batch, Sequence[Unread]]:
        self.read_batches += 1
        names = tuple(map(str, indices))
        return Batch({"x": np.array(indices)}, None, names), ()


def chosen_samples(count: int, choice: SampleChoice, size: int = 3) -> list[int]:
    dataset = Chosen("d", Numbers(count), choice, lambda _: None)
    return [int(i) for batch in dataset.batches(size) for i in batch.feeds["x"]]


def test_all_samples_are_read_in_order() -> None:
    assert chosen_samples(7, SampleChoice()) == list(range(7))


def test_fewer_samples_are_spread_evenly() -> None:
    assert chosen_samples(10, SampleChoice(4)) == [0, 2, 5, 7]


def test_seed_draws_one_reproducible_sample_of_each_part() -> None:
    indices = chosen_samples(1000, SampleChoice(10, 7))
    assert indices == chosen_samples(1000, SampleChoice(10, 7))
    assert indices != chosen_samples(1000, SampleChoice(10, 8))
    assert [at // 100 for at in indices] == list(range(10))


def test_too_few_samples_are_refused_unless_allowed() -> None:
    with pytest.raises(AccuracyError, match="d has 3 samples, and 4 are asked for") as caught:
        chosen_samples(3, SampleChoice(4))
    assert caught.value.hint == "add samples, or write 'samples: 3'"
    assert chosen_samples(3, SampleChoice(4, exactly=False)) == [0, 1, 2]


def test_empty_data_is_refused() -> None:
    with pytest.raises(AccuracyError, match="d holds no samples"):
        chosen_samples(0, SampleChoice())


def test_part_matches_the_same_range_of_the_whole() -> None:
    dataset = Chosen("d", Numbers(100), SampleChoice(10, 1), lambda _: None)
    whole = [name for batch in dataset.batches(4) for name in batch.names]
    part = [name for batch in dataset.batches(4, 3, 8) for name in batch.names]
    assert part == whole[3:8]


def test_one_batch_is_read_ahead() -> None:
    source = Numbers(100)
    batches = Chosen("d", source, SampleChoice(), lambda _: None).batches(10)
    next(batches)
    next(batches)
    batches.close()
    assert source.read_batches <= 3

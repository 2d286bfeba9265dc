"""Samples that are read one by one in threads and stacked into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import numpy as np
from msgspec import Struct

from mobileprep.core.parallel import cores
from mobileprep.data.source import Batch, SampleChoice, SampleSource, Unread, at_sample
from mobileprep.errors import AccuracyError, CorruptFileError, UnsupportedError
from mobileprep.graph.tensor import Array

Label = int | float | str | Array


class Sample(Struct, frozen=True):
    """One sample.

    Args:
        name: the name of the sample.
        feeds: an array for each input, without a batch axis.
        label: the label; None if labels are not needed.
        is_rotated: whether it is an image with an EXIF orientation.
    """

    name: str
    feeds: Mapping[str, Array]
    label: Label | None = None
    is_rotated: bool = False


class OneByOne(Protocol):
    """Samples that are read one by one, from any thread."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def name_of(self, index: int) -> str:
        """Return the name of a sample."""

    def sample(self, index: int) -> Sample:
        """Read one sample."""


class Singles:
    """A ``SampleSource`` that reads samples one by one."""

    def __init__(self, samples: OneByOne) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: Sequence[int]) -> tuple[Batch | None, Sequence[Unread]]:
        """Read samples in threads; image decoders release the GIL."""
        threads = min(len(indices), cores())
        if threads < 2:
            results = [self._one(index) for index in indices]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="mobileprep-data") as pool:
                results = list(pool.map(self._one, indices))
        samples = [one for one in results if isinstance(one, Sample)]
        unread = [one for one in results if isinstance(one, Unread)]
        return batch_of(samples) if samples else None, unread

    def _one(self, index: int) -> Sample | Unread:
        try:
            return self._samples.sample(index)
        except (CorruptFileError, UnsupportedError) as error:
            return Unread(self._samples.name_of(index), error)


def batch_of(samples: Sequence[Sample]) -> Batch:
    """Stack samples into a batch; raises ``AccuracyError`` if they differ in inputs or shapes."""
    first = samples[0]
    for other in samples[1:]:
        _check_alike(first, other)
    feeds = {name: _stacked([s.feeds[name] for s in samples]) for name in first.feeds}
    labels = None if first.label is None else np.stack([np.asarray(s.label) for s in samples])
    rotated = tuple(s.name for s in samples if s.is_rotated)
    return Batch(feeds, labels, tuple(s.name for s in samples), rotated)


def _check_alike(first: Sample, other: Sample) -> None:
    if first.feeds.keys() != other.feeds.keys():
        had, has = (", ".join(sorted(s.feeds)) or "nothing" for s in (first, other))
        message = f"{other.name} has {has}, and {first.name} {had}"
        raise AccuracyError(message, "give every sample the same inputs")
    if (first.label is None) != (other.label is None):
        without = first if first.label is None else other
        msg = f"{without.name} has no label"
        raise AccuracyError(msg, "give every sample a label, or none")
    for name, array in first.feeds.items():
        if other.feeds[name].shape != array.shape:
            message = f"{other.name} has the shape {list(other.feeds[name].shape)} for {name!r}, "
            message += f"and {first.name} {list(array.shape)}"
            raise AccuracyError(message, "make them alike ('resize'), or write 'batch: 1'")
    # Without labels, both shapes are ().
    label, its = (np.asarray(sample.label).shape for sample in (first, other))
    if label != its:
        message = f"the label of {other.name} has the shape {list(its)}, "
        message += f"and that of {first.name} {list(label)}"
        raise AccuracyError(message, "make them alike, or write 'batch: 1'")


def _stacked(arrays: Sequence[Array]) -> Array:
    if arrays[0].dtype != object:
        return np.stack(arrays)
    # np.stack would inspect the strings in scalar arrays.
    out = np.empty((len(arrays), *arrays[0].shape), object)
    for at, array in enumerate(arrays):
        out[at] = array[()]
    return out


_NAMED: Final = 3


class Chosen:
    """A selection of samples from files; see ``Dataset``.

    Args:
        name: the name of the data, for messages.
        source: the files.
        choice: which samples to use.
        warn: called with a warning about skipped samples.

    Raises:
        AccuracyError: the files contain fewer samples than requested, or none.
    """

    def __init__(
        self, name: str, source: SampleSource, choice: SampleChoice, warn: Callable[[str], None]
    ) -> None:
        self._name = name
        self._source = source
        self._choice = choice
        self._warn = warn
        self._indices = choice.indices(len(source), name)

    @property
    def name(self) -> str:
        return self._name

    def __len__(self) -> int:
        return len(self._indices)

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        indices = self._indices[start:stop]
        lost: list[Unread] = [] if unread is None else unread
        for batch, without in self._ahead(indices, size):
            if without and self._choice.strict:
                raise at_sample(without[0].error, f"{self._name}, {without[0].name}")
            lost += without
            if batch is not None:
                yield batch
        if unread is None and lost:
            self._warn(left_out(self._name, lost, len(indices)))

    def _ahead(
        self, indices: Sequence[int], size: int
    ) -> Iterator[tuple[Batch | None, Sequence[Unread]]]:
        """Read one batch ahead; at most two batches are in memory."""
        parts = [indices[at : at + size] for at in range(0, len(indices), size)]
        with ThreadPoolExecutor(1, thread_name_prefix="mobileprep-data") as reader:
            coming = [reader.submit(self._source.read, part) for part in parts[:1]]
            for part in parts[1:]:
                result = coming.pop().result()
                coming.append(reader.submit(self._source.read, part))
                yield result
            for last in coming:
                yield last.result()


def left_out(data: str, unread: Sequence[Unread], count: int) -> str:
    """Return the warning about unreadable samples.

    Raises:
        AccuracyError: none of the samples is readable.
    """
    errors = [f"{u.name} ({u.error})" for u in unread[:_NAMED]]
    more = f", and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    listed = f"{len(unread)} of {count} samples cannot be read: {', '.join(errors)}{more}"
    if len(unread) == count:
        msg = f"{data}: {listed}"
        raise AccuracyError(msg, unread[0].error.hint)
    return f"{data}: {listed}; they are skipped"

"""The samples chosen out of files, read a batch ahead of whoever takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mobileprep.datasets.dataset import Batch, Unread
from mobileprep.datasets.source import SampleChoice, SampleSource, at_sample
from mobileprep.errors import AccuracyError

_NAMED: Final = 3


class Chosen:
    """Samples of files; see ``Dataset``.

    Args:
        name: what messages call them.
        source: the files.
        choice: which samples.
        warn: told of samples that are left out.

    Raises:
        AccuracyError: there are none, or fewer than asked for.
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
        """See ``Dataset.name``."""
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
        """See ``Dataset.batches``."""
        wanted = self._indices[start:stop]
        lost: list[Unread] = [] if unread is None else unread
        for batch, without in self._ahead(wanted, size):
            if without and self._choice.strict:
                raise at_sample(without[0].error, f"{self._name}, {without[0].name}")
            lost += without
            if batch is not None:
                yield batch
        if unread is None and lost:
            self._warn(left_out(self._name, lost, len(wanted)))

    def _ahead(
        self, wanted: Sequence[int], size: int
    ) -> Iterator[tuple[Batch | None, Sequence[Unread]]]:
        """What is read, the next batch while the last is in use: two are held at most."""
        parts = [wanted[at : at + size] for at in range(0, len(wanted), size)]
        with ThreadPoolExecutor(1, thread_name_prefix="mobileprep-data") as reader:
            coming = [reader.submit(self._source.read, part) for part in parts[:1]]
            for part in parts[1:]:
                found = coming.pop().result()
                coming.append(reader.submit(self._source.read, part))
                yield found
            for last in coming:
                yield last.result()


def left_out(data: str, unread: Sequence[Unread], count: int) -> str:
    """A warning of samples that cannot be read.

    Args:
        data: what messages call the data.
        unread: the samples.
        count: how many there are with those that can be read.

    Raises:
        AccuracyError: none can be.
    """
    told = [f"{u.name} ({u.error})" for u in unread[:_NAMED]]
    more = f", and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    listed = f"{len(unread)} of {count} samples cannot be read: {', '.join(told)}{more}"
    if len(unread) == count:
        msg = f"{data}: {listed}"
        raise AccuracyError(msg, unread[0].error.hint)
    return f"{data}: {listed}; they are left out"

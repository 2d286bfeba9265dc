"""The samples chosen out of files, read a batch ahead of whoever takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mobileprep.datasets.dataset import Batch
from mobileprep.datasets.source import SampleChoice, SampleSource, Unread, at_sample
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

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """See ``Dataset.batches``."""
        wanted = self._indices[start:stop]
        unread: list[Unread] = []
        for batch, without in self._ahead(wanted, size):
            unread += without
            if unread and self._choice.strict:
                raise at_sample(unread[0].error, f"{self._name}, {unread[0].name}")
            if batch is not None:
                yield batch
        if unread:
            self._tell(unread, len(wanted))

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

    def _tell(self, unread: Sequence[Unread], count: int) -> None:
        told = [f"{u.name} ({u.error})" for u in unread[:_NAMED]]
        more = f", and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        listed = f"{len(unread)} of {count} samples cannot be read: {', '.join(told)}{more}"
        if len(unread) == count:
            msg = f"{self._name}: {listed}"
            raise AccuracyError(msg, unread[0].error.hint)
        self._warn(f"{self._name}: {listed}; they are left out")

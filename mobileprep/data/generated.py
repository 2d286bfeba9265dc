"""Samples from a user's Python function."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.data.file_samples import read_classes
from mobileprep.data.singles import Label, Sample, batch_of
from mobileprep.data.source import (
    Batch,
    DataFiles,
    SampleChoice,
    Unread,
    fitted,
    no_samples,
    too_few,
)
from mobileprep.errors import AccuracyError, nearest_hint
from mobileprep.graph.tensor import Array
from mobileprep.runtime.sampling.data_files import array_of
from mobileprep.runtime.sampling.inputs import FedTensor

MOST: Final = 100_000
"""A function that yields this many samples counts as endless, unless ``samples`` limits it."""

_AUTHOR: Final = Author("data function", AccuracyError, "so that no data would have been read")
_HINT: Final = "yield {'INPUT': array}, or ({'INPUT': array}, label)"
_PAIR: Final = 2


class Generated:
    """Samples yielded by a function, limited to the requested number; see ``Dataset``.

    The function is called again for each pass over the data, and yielded samples are not cached.

    Args:
        files: the Python file and the name of the function.
        inputs: the inputs to feed.
        choice: the number of samples.
        labeled: whether labels are needed.

    Raises:
        AccuracyError: the file cannot be executed, or does not define the function.
    """

    def __init__(
        self, files: DataFiles, inputs: Sequence[FedTensor], choice: SampleChoice, *, labeled: bool
    ) -> None:
        self._files = files
        self._inputs = inputs
        self._choice = choice
        self._labeled = labeled
        self._classes = read_classes(files.classes)
        self._count: int | None = None
        # Position and iterator of an interrupted pass; at most one caller resumes it.
        self._stopped: deque[tuple[int, Iterator[Any]]] = deque(maxlen=1)
        module = load_file(files.root, "mobileprep_data", _AUTHOR)
        name = files.reading.function
        function = getattr(module, name, None)
        if not callable(function):
            names = [n for n, value in vars(module).items() if callable(value)]
            message = f"{files.name} has no function {name!r}"
            hint = nearest_hint(name, names) or f"add 'def {name}():', or name another: 'function'"
            raise AccuracyError(message, hint, str(files.root))
        self._function: Callable[[], Iterable[Any]] = function

    @property
    def name(self) -> str:
        return self._files.name

    def __len__(self) -> int:
        """Return the number of samples; iterates once to count them if the recipe has no limit."""
        if self._choice.samples is not None:
            return self._choice.samples
        if self._count is None:
            self._count = sum(1 for _ in self._yielded())
        return self._count

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        """See ``Dataset.batches``; continuing after the last pass does not restart the function."""
        at, values = self._resumed(start)
        end = math.inf if stop is None else stop
        while part := list(itertools.islice(values, int(min(size, end - at)))):
            yield batch_of([self._sample(n, value) for n, value in enumerate(part, at)])
            at += len(part)
        if stop is not None:
            self._stopped.append((at, values))

    def _resumed(self, start: int) -> tuple[int, Iterator[Any]]:
        """Return the start and an iterator over the values from there."""
        at, values = 0, iter(())
        if start:
            with contextlib.suppress(IndexError):
                at, values = self._stopped.pop()
        if not 0 < at <= start:
            at, values = 0, self._yielded()
        for _ in itertools.islice(values, start - at):
            pass
        return start, values

    def _yielded(self) -> Iterator[Any]:
        """Iterate over the values that the function yields, and check their number."""
        most = MOST if self._choice.samples is None else self._choice.samples
        with blaming(self._files.root, _AUTHOR):
            values = iter(self._function())
        count = 0
        while count < most:
            try:
                with blaming(self._files.root, _AUTHOR):
                    value = next(values, _END)
            except AccuracyError as error:
                samples = "1 sample" if count == 1 else f"{count} samples"
                message = f"{error.message}, after {samples}"
                raise error.at(error.where, message=message) from error
            if value is _END:
                break
            count += 1
            yield value
        self._check_count(count)

    def _check_count(self, count: int) -> None:
        samples = self._choice.samples
        if samples is None and count == MOST:
            message = f"{self.name}: {self._files.reading.function} does not end: it yielded "
            message += f"{count:,} samples"
            raise AccuracyError(message, "let it end, or say how many: 'samples'")
        if not count:
            msg = f"{self.name}: {self._files.reading.function}"
            raise no_samples(msg)
        if samples is not None and count < samples and self._choice.exactly:
            raise too_few(self.name, count, samples)

    def _sample(self, at: int, value: object) -> Sample:
        name = f"sample {at}"
        place = f"{self.name}, {name}"
        feeds, label = value if isinstance(value, tuple) and len(value) == _PAIR else (value, None)
        if not isinstance(feeds, Mapping):
            message = f"{place} is {type(feeds).__name__}, not a dictionary of arrays"
            raise AccuracyError(message, _HINT)
        arrays = {str(key): self._array(array, place) for key, array in feeds.items()}
        try:
            inputs = {
                fed.name: fitted(array_of(arrays, fed.name, place), fed, place)
                for fed in self._inputs
            }
        except AccuracyError as error:
            raise error.at(error.where, hint=error.hint or _HINT) from error
        if not self._labeled:
            return Sample(name, inputs)
        if label is None:
            message = f"{place} has no label"
            raise AccuracyError(message, "yield ({'INPUT': array}, label)")
        return Sample(name, inputs, self._label(label, name, place))

    def _label(self, label: object, name: str, place: str) -> Label:
        if isinstance(label, bytes):
            label = label.decode("utf-8", "replace")
        if isinstance(label, str):
            return self._classes.label(label, name)
        return self._array(label, place)

    def _array(self, value: object, place: str) -> Array:
        """Convert a value to an array of numbers or strings."""
        try:
            array = np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            message = f"{place} is not an array: {error}"
            raise AccuracyError(message, _HINT) from error
        texts = array.dtype != object or all(isinstance(x, bytes | str) for x in array.flat)
        if not texts:
            message = f"{place} holds Python objects, not numbers or strings"
            raise AccuracyError(message, _HINT)
        # NumPy converts Python floats to float64, which the user did not choose.
        if array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
            return array.astype(np.float32)
        return array


_END: Final = object()

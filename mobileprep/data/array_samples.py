"""Samples in arrays (``.npz`` and ``.npy``) and CSV files."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Final

import numpy as np

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened_file
from mobileprep.data.file_samples import read_classes
from mobileprep.data.options import Delimiter
from mobileprep.data.singles import Sample
from mobileprep.data.source import (
    Batch,
    DataFiles,
    NoLabelsError,
    Unread,
    fitted,
    no_samples,
    only_input,
    only_keys,
)
from mobileprep.errors import AccuracyError, CorruptFileError, named, nearest_hint
from mobileprep.formats.arrays import Header, map_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.texts import counts_fault
from mobileprep.runtime.interpreter import converted
from mobileprep.runtime.sampling.data_files import array_of, is_nearly, misfit
from mobileprep.runtime.sampling.inputs import FedTensor

_HINT: Final = "save samples as the model takes them"


class ArraySamples:
    """Arrays with samples along the first axis; see ``SampleSource``.

    Args:
        files: the files to read.
        inputs: the inputs to feed.
        labels: the default name of the label array; None if labels are not needed.

    Raises:
        AccuracyError: an array is missing, or does not match its input or the other arrays.
        CorruptFileError: the file cannot be read.
    """

    def __init__(self, files: DataFiles, inputs: Sequence[FedTensor], labels: str | None) -> None:
        arrays, self._labels = _arrays(files, inputs, labels)
        self._feeds = {fed.name: _of_type(arrays[fed.name], fed, files.name) for fed in inputs}
        lengths = {name: len(a) if a.ndim else 0 for name, a in self._feeds.items()}
        self._count = max(lengths.values(), default=0)
        if self._labels is not None:
            self._labels = _an_entry_each(self._labels, self._count)
            fault = counts_fault(len(self._labels) if self._labels.ndim else 1, lengths)
            if fault is not None:
                raise AccuracyError(*fault)
        elif len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            message = f"{files.name}: the arrays do not fit together: {counts}"
            raise AccuracyError(message, "every array needs one entry a sample")
        if not self._count:
            raise no_samples(files.name)
        self._types = {fed.name: fed.dtype for fed in inputs}

    def __len__(self) -> int:
        return self._count

    def read(self, indices: Sequence[int]) -> tuple[Batch, Sequence[Unread]]:
        # Consecutive samples are a view, others are copied.
        neighbors = len(indices) == indices[-1] - indices[0] + 1
        at = slice(indices[0], indices[-1] + 1) if neighbors else np.asarray(indices)
        feeds = {
            name: converted(array[at], self._types[name]) for name, array in self._feeds.items()
        }
        labels = None if self._labels is None else self._labels[at]
        return Batch(feeds, labels, tuple(f"sample {index}" for index in indices)), ()


def _arrays(
    files: DataFiles, inputs: Sequence[FedTensor], labels: str | None
) -> tuple[Mapping[str, Array], Array | None]:
    """Return the array of each input by name, and the labels."""
    arrays = map_arrays(files.root)
    if set(arrays) == {""}:
        fed = only_input(inputs, files.reading.input, files.name)
        return {fed.name: arrays[""]}, None if labels is None else _labels_beside(files)
    sources = dict(files.reading.inputs)
    only_keys(sources, [fed.name for fed in inputs], f"{files.name}: 'inputs'")
    feeds = {
        fed.name: array_of(arrays, sources.get(fed.name, (fed.name,))[0], files.name)
        for fed in inputs
    }
    if labels is None:
        return feeds, None
    return feeds, _labels_of(arrays, files.reading.labels or labels, feeds, files.name)


def _labels_of(arrays: Mapping[str, Array], labels: str, inputs: Iterable[str], data: str) -> Array:
    try:
        return array_of(arrays, labels, data)
    except AccuracyError as error:
        if is_nearly(labels, arrays, inputs):
            raise
        raise NoLabelsError(error.message) from error


def _labels_beside(files: DataFiles) -> Array:
    """Return the labels of an ``.npy`` file, which are in a separate file."""
    if files.labels is None:
        message = f"{files.name} has no labels"
        raise NoLabelsError(message, "write 'data: {npy: FILE, labels: LABELS.npy}'")
    arrays = map_arrays(files.labels)
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    message = f"{files.labels.name} holds {len(arrays)} arrays, not the labels alone"
    raise AccuracyError(message, "save them with numpy.save")


def _of_type(array: Array, fed: FedTensor, data: str) -> Array:
    reason = misfit(fed, Header(array.shape, array.dtype)) if array.ndim else ""
    if reason:
        message = f"{data}: {reason}"
        raise AccuracyError(message, _HINT)
    return array


def _an_entry_each(labels: Array, count: int) -> Array:
    """Return labels with samples along the first axis, without axes of size 1."""
    if labels.ndim and len(labels) == count:
        return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return labels.ravel()


_DELIMITERS: Final[Mapping[Delimiter, str]] = {"comma": ",", "semicolon": ";", "tab": "\t"}
_LONGEST_LINE: Final = 1 << 26
_CSV_HINT: Final = "save it again as UTF-8 text, a sample a row"


class CsvSamples:
    """The rows of a CSV file; see ``OneByOne``.

    The offset of each row is indexed once, and rows are read on demand.

    Args:
        files: the file and the columns to read.
        inputs: the inputs to feed.
        labels: the default name of the label column.
        labeled: whether labels are needed. The label column is never fed by default.

    Raises:
        AccuracyError: a column is missing.
        CorruptFileError: the file cannot be read, or a row has a different number of columns than
            the first.
    """

    def __init__(
        self, files: DataFiles, inputs: Sequence[FedTensor], labels: str, *, labeled: bool
    ) -> None:
        self._files = files
        self._delimiter = _DELIMITERS[files.reading.delimiter]
        self._classes = read_classes(files.classes)
        self._starts = array("q")
        self._lines = array("q")
        self._names = self._index()
        written = files.reading.labels or labels
        self._label = self._label_column(written) if labeled else None
        self._columns = self._of_inputs(inputs, written)

    def __len__(self) -> int:
        return len(self._starts)

    def name_of(self, index: int) -> str:
        return f"line {self._lines[index]}"

    def sample(self, index: int) -> Sample:
        name = self.name_of(index)
        row = self._row(index)
        place = f"{self._files.name}, {name}"
        if len(row) != len(self._names):
            message = f"has {len(row)} columns, and the first row {len(self._names)}"
            raise CorruptFileError(message, _CSV_HINT, place)
        feeds = {
            fed.name: fitted(_values([row[at] for at in columns], fed, place), fed, place)
            for fed, columns in self._columns
        }
        label = None if self._label is None else self._classes.label(row[self._label].strip(), name)
        return Sample(name, feeds, label)

    def _index(self) -> list[str]:
        """Index the row offsets, and return the column names."""
        names: list[str] = []
        with self._opened() as stream:
            lines = _Lines(stream, str(self._files.root))
            reader = csv.reader(lines, delimiter=self._delimiter)
            start, line = 0, 1
            for row in _rows(reader, str(self._files.root)):
                if row and not names:
                    has_names = self._files.reading.header
                    names = [c.strip() if has_names else str(at) for at, c in enumerate(row)]
                    if has_names:
                        row = []
                if row:
                    self._starts.append(start)
                    self._lines.append(line)
                start, line = lines.position, lines.count + 1
        return names

    def _row(self, index: int) -> list[str]:
        with self._opened() as stream:
            stream.seek(self._starts[index])
            lines = _Lines(stream, str(self._files.root))
            return next(_rows(csv.reader(lines, delimiter=self._delimiter), str(self._files.root)))

    def _opened(self) -> IO[bytes]:
        try:
            return opened_file(self._files.root)
        except OSError as error:
            raise unreadable(self._files.root, error) from error

    def _of_inputs(
        self, inputs: Sequence[FedTensor], labels: str
    ) -> list[tuple[FedTensor, list[int]]]:
        columns = dict(self._files.reading.inputs)
        only_keys(columns, [fed.name for fed in inputs], f"{self._files.name}: 'inputs'")
        if columns:
            without = [fed.name for fed in inputs if fed.name not in columns]
            if without:
                message = f"{self._files.name}: 'inputs' names no column for {without[0]!r}"
                raise AccuracyError(message, "give each input its column or columns")
            return [(fed, [self._column(name) for name in columns[fed.name]]) for fed in inputs]
        if inputs and all(fed.name in self._names for fed in inputs):
            return [(fed, [self._column(fed.name)]) for fed in inputs]
        fed = only_input(inputs, None, self._files.name)
        return [(fed, [at for at, name in enumerate(self._names) if name != labels])]

    def _label_column(self, name: str) -> int:
        if name not in self._names and not nearest_hint(name, self._names):
            raise NoLabelsError(*self._no_column(name))
        return self._column(name)

    def _column(self, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        raise AccuracyError(*self._no_column(name))

    def _no_column(self, name: str) -> tuple[str, str]:
        message = f"{self._files.name} has no column {name!r}; it has {named(self._names)}"
        return message, nearest_hint(name, self._names)


class _Lines:
    """Decoded lines of a file, with the current position and line count."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self._stream = stream
        self._where = where
        self.position = 0
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(_LONGEST_LINE)
        if not line:
            raise StopIteration
        if len(line) == _LONGEST_LINE:
            message = f"has a line of more than {_LONGEST_LINE} bytes"
            raise CorruptFileError(message, _CSV_HINT, self._where)
        first = self.position == 0
        self.position += len(line)
        self.count += 1
        try:
            return line.decode("utf-8-sig" if first else "utf-8")
        except UnicodeDecodeError as error:
            message = f"is not valid UTF-8 in line {self.count}"
            raise CorruptFileError(message, _CSV_HINT, self._where) from error


def _rows(reader: Iterator[list[str]], where: str) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        msg = f"is not a CSV file: {error}"
        raise CorruptFileError(msg, _CSV_HINT, where) from error


def _values(texts: Sequence[str], fed: FedTensor, place: str) -> Array:
    """Return columns as a vector, or a scalar if the input has one value per sample."""
    single = len(texts) == 1 and fed.shape is not None and len(fed.shape) < 2
    if fed.dtype is DType.STRING:
        values: Array = np.array([text.encode() for text in texts], object)
    else:
        values = _parsed(texts, fed, place)
    return values.reshape(()) if single else values


def _parsed(texts: Sequence[str], fed: FedTensor, place: str) -> Array:
    kind = fed.dtype.numpy
    whole = kind is not None and kind.kind in "iu"
    numbers: list[int | float] = []
    for text in texts:
        try:
            numbers.append(int(text) if whole else float(text))
        except ValueError as error:
            expected = "whole number" if whole else "number"
            message = f"{text.strip()[:40]!r} is not a {expected}, which {fed.name!r} requires"
            raise CorruptFileError(message, _CSV_HINT, place) from error
    try:
        return np.array(numbers, kind or np.float32)
    except OverflowError as error:
        message = f"has a number that {fed.dtype.short} cannot hold"
        raise CorruptFileError(message, _CSV_HINT, place) from error

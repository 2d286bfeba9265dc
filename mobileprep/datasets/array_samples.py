"""Samples in arrays: ``.npz`` and ``.npy`` files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.datasets.dataset import Batch, Unread
from mobileprep.datasets.fitting import only_input
from mobileprep.datasets.source import DataFiles, NoLabelsError, no_samples, only_keys
from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import Header
from mobileprep.formats.mapped_arrays import map_arrays
from mobileprep.ir.tensor import Array
from mobileprep.numerics.texts import counts_fault
from mobileprep.runtime.interpreter import converted
from mobileprep.runtime.sampling.data_files import array_of, is_nearly, misfit
from mobileprep.runtime.sampling.inputs import FedTensor

_HINT: Final = "save samples as the model takes them"


class ArraySamples:
    """Arrays whose first axis is the samples; see ``SampleSource``.

    Args:
        files: where they are.
        inputs: what is fed of them.
        labels: the name of the array of labels, where the recipe's data does not say; None where
            labels are not asked for.

    Raises:
        AccuracyError: an array is missing, or does not fit its input or the others.
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
            told = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            message = f"{files.name}: the arrays do not fit together: {told}"
            raise AccuracyError(message, "every array needs one entry a sample")
        if not self._count:
            raise no_samples(files.name)
        self._types = {fed.name: fed.dtype for fed in inputs}

    def __len__(self) -> int:
        return self._count

    def read(self, indices: Sequence[int]) -> tuple[Batch, Sequence[Unread]]:
        """See ``SampleSource.read``."""
        # A view of neighbours, a copy of others.
        neighbours = len(indices) == indices[-1] - indices[0] + 1
        at = slice(indices[0], indices[-1] + 1) if neighbours else np.asarray(indices)
        feeds = {
            name: converted(array[at], self._types[name]) for name, array in self._feeds.items()
        }
        labels = None if self._labels is None else self._labels[at]
        return Batch(feeds, labels, tuple(f"sample {index}" for index in indices)), ()


def _arrays(
    files: DataFiles, inputs: Sequence[FedTensor], labels: str | None
) -> tuple[Mapping[str, Array], Array | None]:
    """The array of each input by the input's name, and the labels."""
    found = map_arrays(files.root)
    if set(found) == {""}:
        fed = only_input(inputs, files.reading.input, files.name)
        return {fed.name: found[""]}, None if labels is None else _labels_beside(files)
    given = dict(files.reading.inputs)
    only_keys(given, [fed.name for fed in inputs], f"{files.name}: 'inputs'")
    feeds = {
        fed.name: array_of(found, given.get(fed.name, (fed.name,))[0], files.name) for fed in inputs
    }
    if labels is None:
        return feeds, None
    return feeds, _labels_of(found, files.reading.labels or labels, feeds, files.name)


def _labels_of(found: Mapping[str, Array], labels: str, inputs: Iterable[str], data: str) -> Array:
    try:
        return array_of(found, labels, data)
    except AccuracyError as error:
        if is_nearly(labels, found, inputs):
            raise
        raise NoLabelsError(error.message) from error


def _labels_beside(files: DataFiles) -> Array:
    """The labels of an ``.npy`` file, which holds one array."""
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
    """Labels with the samples along their first axis; axes of one before it do not matter."""
    if labels.ndim and len(labels) == count:
        return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return labels.ravel()

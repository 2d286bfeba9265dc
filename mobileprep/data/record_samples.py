"""Samples in TFRecord files of ``tf.train.Example``, compressed or not."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mobileprep.data.file_samples import Classes, PictureReading, SoundReading, read_classes
from mobileprep.data.options import FeatureReading
from mobileprep.data.singles import Label, Sample
from mobileprep.data.source import DataFiles, files_below, fitted, only_keys
from mobileprep.errors import AccuracyError, CorruptFileError, named, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tf_record import TFRecordFile, read_example, read_feature
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.image_files import exif_orientation
from mobileprep.runtime.sampling.inputs import FedTensor

Values = Sequence[bytes] | Array


class RecordSamples:
    """The records of a file, or of all files below a folder; see ``OneByOne``.

    Args:
        files: the file or folder, and which features are meant.
        inputs: what is fed of them.
        labels: the feature of labels, where the recipe's data does not say; None where labels are
            not asked for.

    Raises:
        AccuracyError: an input has no feature.
        CorruptFileError: a file cannot be read.
    """

    def __init__(self, files: DataFiles, inputs: Sequence[FedTensor], labels: str | None) -> None:
        self._files = files
        self._inputs = [(fed, _feature_of(fed, files)) for fed in inputs]
        only_keys(dict(files.reading.features), [fed.name for fed in inputs], files.name)
        self._classes = Classes() if files.classes is None else read_classes(files.classes)
        self._label = None if labels is None else files.reading.labels or labels
        folder = files.root.is_dir()
        self._names = files_below(files.root) if folder else [""]
        paths = [files.root / name if name else files.root for name in self._names]
        self._records = [TFRecordFile(path) for path in paths]
        self._ends = list(itertools.accumulate(map(len, self._records)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def name_of(self, index: int) -> str:
        """See ``OneByOne.name_of``."""
        file, at = self._at(index)
        return f"{self._names[file]}, record {at}" if self._names[file] else f"record {at}"

    def sample(self, index: int) -> Sample:
        """See ``OneByOne.sample``."""
        file, at = self._at(index)
        name = self.name_of(index)
        place = f"{self._files.name}, {name}"
        features = read_example(self._records[file].record(at))
        feeds = {}
        is_rotated = False
        for fed, feature in self._inputs:
            values = self._values(features, feature.key, place)
            feeds[fed.name] = self._array(values, fed, feature, place)
            if feature.encoding == "picture" and isinstance(values, list):
                is_rotated |= exif_orientation(values[0]) != 1
        label: Label | None = None
        if self._label is not None:
            label = self._labelled(self._values(features, self._label, place), name)
        return Sample(name, feeds, label, is_rotated)

    def _at(self, index: int) -> tuple[int, int]:
        file = bisect.bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def _values(self, features: Mapping[bytes, memoryview], key: str, place: str) -> Values:
        found = features.get(key.encode())
        feature = None if found is None else read_feature(found)
        if feature is None:
            names = [name.decode("utf-8", "replace") for name in features]
            message = f"{place} has no feature {key!r}; it has {named(sorted(names))}"
            raise AccuracyError(message, nearest_hint(key, names))
        return feature.values

    def _array(self, values: Values, fed: FedTensor, feature: FeatureReading, place: str) -> Array:
        if feature.encoding == "values":
            found = np.array(values, object) if isinstance(values, list) else np.asarray(values)
            return _shaped(found, fed, feature, place)
        if not isinstance(values, list) or len(values) != 1:
            message = f"{feature.key!r} is no single text, as {feature.encoding!r} needs it"
            raise CorruptFileError(message, "write 'encoding: values'", place)
        if feature.encoding == "raw":
            return _shaped(_raw(values[0], fed, feature, place), fed, feature, place)
        kind = PictureReading if feature.encoding == "picture" else SoundReading
        return kind(fed, self._files.reading, self._files.name).sample(values[0], place)

    def _labelled(self, values: Values, name: str) -> Label:
        if isinstance(values, list):
            texts = [value.decode("utf-8", "replace") for value in values]
            found = [self._classes.label(text, name) for text in texts]
            return found[0] if len(found) == 1 else np.asarray(found)
        numbers = np.asarray(values)
        return numbers.reshape(()) if numbers.size == 1 else numbers


def _feature_of(fed: FedTensor, files: DataFiles) -> FeatureReading:
    features = dict(files.reading.features)
    for name in (fed.name, fed.ref.node):
        if name in features:
            return features[name]
    message = f"{files.name}: no feature is named for the input {fed.name!r}"
    hint = f"add 'features: {{{fed.name}: {{key: FEATURE}}}}'"
    raise AccuracyError(message, hint)


def _raw(data: bytes, fed: FedTensor, feature: FeatureReading, place: str) -> Array:
    """The numbers that bytes are, little-endian as ``tf.decode_raw`` takes them."""
    given = np.dtype(feature.dtype) if feature.dtype else fed.dtype.numpy
    kind = np.dtype(np.uint8) if given is None else given.newbyteorder("<")
    if len(data) % kind.itemsize:
        message = f"{feature.key!r} has {len(data)} bytes, which are no whole number of {kind}"
        raise CorruptFileError(message, "write 'dtype' as the bytes were written", place)
    return np.frombuffer(data, kind).astype(kind.newbyteorder("="), copy=False)


def _narrowed(found: Array, wanted: np.dtype[Any], feature: FeatureReading, place: str) -> Array:
    """Whole numbers in the type of their input."""
    if found.dtype.kind not in "iu" or wanted.kind not in "iuf":
        return found
    if wanted.kind != "f" and found.size:
        limits = np.iinfo(wanted)
        if found.min() < limits.min or found.max() > limits.max:
            message = f"{place}: {feature.key!r} has values that {wanted} cannot hold"
            raise AccuracyError(message, "feed it to an input of a wider type")
    return found.astype(wanted)


def _shaped(found: Array, fed: FedTensor, feature: FeatureReading, place: str) -> Array:
    if feature.shape is not None:
        if found.size != np.prod(feature.shape):
            message = f"{feature.key!r} has {found.size} values, not those of {list(feature.shape)}"
            msg = f"{place}: {message}"
            raise AccuracyError(msg, "write its 'shape' as it is")
        found = found.reshape(feature.shape)
    if fed.dtype.numpy is not None and fed.dtype is not DType.STRING:
        # A feature has 64 bits where an input may have 8, and whole numbers where it takes others.
        found = _narrowed(found, fed.dtype.numpy, feature, place)
    return fitted(found, fed, place)

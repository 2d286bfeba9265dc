"""Open data files of any supported format as samples for a model.

The readers of arrays, tables, and Python functions are imported only when they are needed.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened_file
from mobileprep.data.file_samples import (
    AUDIO,
    IMAGES,
    AudioReading,
    FileSamples,
    ImageReading,
    read_classes,
)
from mobileprep.data.options import DATA_KINDS, DataKind, FeatureReading
from mobileprep.data.singles import Chosen, Label, Sample, Singles
from mobileprep.data.source import (
    Batch,
    DataFiles,
    Dataset,
    SampleChoice,
    SampleSource,
    Unread,
    files_below,
    fitted,
    only_input,
    only_keys,
)
from mobileprep.errors import AccuracyError, CorruptFileError, named, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tf_record import TFRecordFile, read_example, read_feature
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.image_files import exif_orientation
from mobileprep.runtime.sampling.inputs import FedTensor

_SUFFIXES: Final[dict[str, DataKind]] = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".py": "python",
}


_NPY: Final = b"\x93NUMPY"


def open_dataset(
    files: DataFiles,
    inputs: Sequence[FedTensor],
    choice: SampleChoice,
    *,
    labels: str = "label",
    labeled: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """Open the samples in the given files for a model.

    The result can be pickled. Unpickling opens the files again and discards warnings.
    """
    kind = files.kind or data_kind(files)
    if kind == "python":
        from mobileprep.data.generated import Generated

        dataset: Dataset = Generated(files, inputs, choice, labeled=labeled)
    else:
        source = _source(kind, files, inputs, labels, labeled=labeled)
        dataset = Chosen(files.name, source, choice, warn)
    again = functools.partial(open_dataset, files, inputs, choice, labels=labels, labeled=labeled)
    return _Opened(dataset, again)


class _Opened:
    """A dataset that reopens its files when unpickled; memory maps and modules cannot be sent."""

    def __init__(self, dataset: Dataset, again: Callable[[], Dataset]) -> None:
        self._dataset = dataset
        self._again = again

    def __reduce__(self) -> tuple[Callable[[], Dataset], tuple[()]]:
        return self._again, ()

    @property
    def name(self) -> str:
        return self._dataset.name

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        return self._dataset.batches(size, start, stop, unread)


def data_kind(files: DataFiles) -> DataKind:
    """Detect the format of a file or directory from its name or content."""
    if files.root.is_dir():
        return _kind_of_folder(files)
    named = _SUFFIXES.get(files.root.suffix.lower())
    if named is not None:
        return named
    try:
        with opened_file(files.root) as stream:
            if zipfile.is_zipfile(stream):
                return "npz"
            stream.seek(0)
            if stream.read(len(_NPY)) == _NPY:
                return "npy"
    except OSError as error:
        raise unreadable(files.root, error) from error
    message = f"cannot detect the format of {files.name}"
    hint = f"say so: 'data: {{KIND: {files.name}}}' with {', '.join(DATA_KINDS)}"
    raise CorruptFileError(message, hint, str(files.root))


def _kind_of_folder(files: DataFiles) -> DataKind:
    names = files_below(files.root)
    suffixes = {name[name.rfind(".") :].lower() for name in names if "." in name}
    kinds: list[DataKind] = []
    if suffixes & IMAGES:
        kinds.append("pictures")
    if suffixes & AUDIO:
        kinds.append("wav")
    # Shards of a TFRecord are named like part-00000-of-00010, with any prefix.
    if any(".tfrecord" in name or "-of-" in name for name in names):
        kinds.append("tfrecord")
    if len(kinds) == 1:
        return kinds[0]
    contents = " and ".join(kinds) if kinds else "neither images nor audio nor TFRecords"
    message = f"the folder {files.name} holds {contents}"
    hint = (
        f"select one format: 'data: {{pictures: {files.name}}}'" if kinds else "name another folder"
    )
    raise CorruptFileError(message, hint, str(files.root))


def _source(
    kind: DataKind, files: DataFiles, inputs: Sequence[FedTensor], labels: str, *, labeled: bool
) -> SampleSource:
    label_key = labels if labeled else None
    if kind in ("npz", "npy"):
        from mobileprep.data.array_samples import ArraySamples

        return ArraySamples(files, inputs, label_key)
    if kind == "csv":
        from mobileprep.data.array_samples import CsvSamples

        return Singles(CsvSamples(files, inputs, labels, labeled=labeled))
    if kind == "tfrecord":
        return Singles(RecordSamples(files, inputs, label_key))
    fed = only_input(inputs, files.reading.input, files.name)
    if kind == "wav":
        sounds = AudioReading(fed, files.reading, files.name)
        return Singles(FileSamples(files, AUDIO, sounds, labeled=labeled))
    images = ImageReading(fed, files.reading, files.name)
    return Singles(FileSamples(files, IMAGES, images, labeled=labeled))


Values = Sequence[bytes] | Array


class RecordSamples:
    """The records of a TFRecord file, or of all files below a directory; see ``OneByOne``.

    Args:
        files: the file or directory, and the features to read.
        inputs: the inputs to feed.
        labels: the default name of the label feature; None if labels are not needed.

    Raises:
        AccuracyError: an input has no feature.
        CorruptFileError: a file cannot be read.
    """

    def __init__(self, files: DataFiles, inputs: Sequence[FedTensor], labels: str | None) -> None:
        self._files = files
        self._inputs = [(fed, _feature_of(fed, files)) for fed in inputs]
        only_keys(dict(files.reading.features), [fed.name for fed in inputs], files.name)
        self._classes = read_classes(files.classes)
        self._label = None if labels is None else files.reading.labels or labels
        folder = files.root.is_dir()
        self._names = files_below(files.root) if folder else [""]
        paths = [files.root / name if name else files.root for name in self._names]
        self._records = [TFRecordFile(path) for path in paths]
        self._ends = list(itertools.accumulate(map(len, self._records)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def name_of(self, index: int) -> str:
        file, at = self._at(index)
        return f"{self._names[file]}, record {at}" if self._names[file] else f"record {at}"

    def sample(self, index: int) -> Sample:
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
            label = self._labeled(self._values(features, self._label, place), name)
        return Sample(name, feeds, label, is_rotated)

    def _at(self, index: int) -> tuple[int, int]:
        file = bisect.bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def _values(self, features: Mapping[bytes, memoryview], key: str, place: str) -> Values:
        data = features.get(key.encode())
        feature = None if data is None else read_feature(data)
        if feature is None:
            names = [name.decode("utf-8", "replace") for name in features]
            message = f"{place} has no feature {key!r}; it has {named(sorted(names))}"
            raise AccuracyError(message, nearest_hint(key, names))
        return feature.values

    def _array(self, values: Values, fed: FedTensor, feature: FeatureReading, place: str) -> Array:
        if feature.encoding == "values":
            array = np.array(values, object) if isinstance(values, list) else np.asarray(values)
            return _shaped(array, fed, feature, place)
        if not isinstance(values, list) or len(values) != 1:
            message = f"{feature.key!r} is not a single string, as {feature.encoding!r} needs it"
            raise CorruptFileError(message, "write 'encoding: values'", place)
        if feature.encoding == "raw":
            return _shaped(_raw(values[0], fed, feature, place), fed, feature, place)
        kind = ImageReading if feature.encoding == "picture" else AudioReading
        return kind(fed, self._files.reading, self._files.name).sample(values[0], place)

    def _labeled(self, values: Values, name: str) -> Label:
        if isinstance(values, list):
            texts = [value.decode("utf-8", "replace") for value in values]
            labels = [self._classes.label(text, name) for text in texts]
            return labels[0] if len(labels) == 1 else np.asarray(labels)
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
    """Decode little-endian bytes as numbers, as ``tf.decode_raw`` does."""
    dtype = np.dtype(feature.dtype) if feature.dtype else fed.dtype.numpy
    kind = np.dtype(np.uint8) if dtype is None else dtype.newbyteorder("<")
    if len(data) % kind.itemsize:
        message = f"{feature.key!r} has {len(data)} bytes, which is not a multiple of {kind}"
        raise CorruptFileError(message, "write 'dtype' as the bytes were written", place)
    return np.frombuffer(data, kind).astype(kind.newbyteorder("="), copy=False)


def _narrowed(array: Array, dtype: np.dtype[Any], feature: FeatureReading, place: str) -> Array:
    """Convert integers to the input's type, or raise ``AccuracyError`` if they are out of range."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iuf":
        return array
    if dtype.kind != "f" and array.size:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            message = f"{place}: {feature.key!r} has values that {dtype} cannot hold"
            raise AccuracyError(message, "feed it to an input of a wider type")
    return array.astype(dtype)


def _shaped(array: Array, fed: FedTensor, feature: FeatureReading, place: str) -> Array:
    if feature.shape is not None:
        if array.size != np.prod(feature.shape):
            message = f"{feature.key!r} has {array.size} values, not those of {list(feature.shape)}"
            msg = f"{place}: {message}"
            raise AccuracyError(msg, "write its 'shape' as it is")
        array = array.reshape(feature.shape)
    if fed.dtype.numpy is not None and fed.dtype is not DType.STRING:
        # Features are int64, but the input may have a narrower integer type or a float type.
        array = _narrowed(array, fed.dtype.numpy, feature, place)
    return fitted(array, fed, place)

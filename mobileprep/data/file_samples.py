"""Directories with one file per sample."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.core.files import read_bytes, read_file
from mobileprep.data.options import Reading
from mobileprep.data.singles import Label, Sample
from mobileprep.data.source import DataFiles, NoLabelsError, files_below, fitted, no_samples
from mobileprep.errors import AccuracyError, CorruptFileError, nearest_hint
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.image_files import central_crop, decoded, exif_orientation
from mobileprep.ops.numerics.resizing import Sampling, resize_bilinear
from mobileprep.ops.numerics.texts import decode_wav, desired_sound
from mobileprep.runtime.sampling.inputs import FedTensor

_MOST_BYTES: Final = 1 << 28


class FileSamples:
    """The files of a directory; see ``OneByOne``.

    Args:
        files: the directory and the location of labels.
        suffixes: the file name suffixes to include.
        decoder: converts a file to a sample.
        labeled: whether labels are needed.

    Raises:
        AccuracyError: the directory has none of these files, or labels are missing.
        CorruptFileError: the directory cannot be read.
    """

    def __init__(
        self, files: DataFiles, suffixes: Collection[str], decoder: Decoder, *, labeled: bool
    ) -> None:
        if not files.root.is_dir():
            message = f"{files.name} is not a directory"
            raise CorruptFileError(message, "name the folder of the files", str(files.root))
        self._files = files
        self._decoder = decoder
        self._names: Sequence[str] = files_below(files.root, suffixes)
        if not self._names:
            raise no_samples(files.name, f"files that end in {', '.join(sorted(suffixes))}")
        self._labels: Sequence[Label] = ()
        if labeled:
            self._labels = labels_of_files(
                self._names, files.name, listed_in=files.labels, classes=files.classes
            )

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, index: int) -> str:
        return self._names[index]

    def sample(self, index: int) -> Sample:
        name = self._names[index]
        data = read_file(self._files.root / name, limit=_MOST_BYTES)
        array = self._decoder.sample(data, f"{self._files.name}, {name}")
        label = self._labels[index] if self._labels else None
        feeds = {self._decoder.fed.name: array}
        return Sample(name, feeds, label, self._decoder.is_rotated(data))


_COLUMNS: Final = 2


class Classes:
    """The classes that labels refer to.

    Args:
        names: the class names, in the order of the model's outputs; None if labels are values.
        where: the source of the names, for messages.
    """

    def __init__(self, names: Sequence[str] | None = None, where: str = "") -> None:
        self._numbers = None if names is None else {name: at for at, name in enumerate(names)}
        self._where = where

    def label(self, written: str, sample: str) -> Label:
        """Convert a label as written to a class index if there are names, or parse it otherwise."""
        if self._numbers is None:
            return number_or_text(written)
        number = self._numbers.get(written)
        if number is None:
            message = f"{sample} has the label {written!r}, which {self._where} does not list"
            raise AccuracyError(message, nearest_hint(written, self._numbers) or "add it there")
        return number


def read_classes(path: Path | None) -> Classes:
    """Read a file of class names, one per line; without a file, labels are values."""
    return Classes() if path is None else Classes(class_names(path), path.name)


def class_names(path: Path) -> list[str]:
    """Return the class names in a file, one per line, in the order of the model's outputs."""
    names = [line.strip() for line in text_lines(path)]
    while names and not names[-1]:
        names.pop()
    seen: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if seen.setdefault(name, line) != line:
            message = f"the class {name!r} is listed in line {seen[name]} already"
            raise AccuracyError(message, "list each class once", f"{path}:{line}")
    if not names:
        raise AccuracyError("lists no classes", "write the name of one in each line", str(path))  # noqa: EM101
    return names


def folder_labels(names: Sequence[str], classes: Classes | None, data: str) -> list[Label]:
    """Return the label of each file from the first directory in its path."""
    folders = [name.partition("/")[0] if "/" in name else "" for name in names]
    if "" in folders:
        first = names[folders.index("")]
        message = f"{data}: {folders.count('')} of {len(names)} files are not in a directory for "
        message += f"their label, such as {first}"
        raise NoLabelsError(message, "put each class in a folder, or give 'labels: FILE.csv'")
    label_classes = classes or Classes(sorted(set(folders)), data)
    return [label_classes.label(folder, name) for folder, name in zip(folders, names, strict=True)]


def listed_labels(
    path: Path, names: Sequence[str], classes: Classes | None, data: str
) -> list[Label]:
    """Return the label of each file from a CSV file with rows of file name and label.

    A first row that does not name a file is a header.
    """
    rows = _rows(path)
    file_names = set(names)
    if rows and next(iter(rows)) not in file_names:
        rows.pop(next(iter(rows)))
    strange = [name for name in rows if name not in file_names]
    if strange:
        message = f"{len(strange)} of {len(rows)} rows name no file of {data}, the first of them "
        message += repr(strange[0])
        raise AccuracyError(message, nearest_hint(strange[0], names), str(path))
    without = [name for name in names if name not in rows]
    if without:
        message = f"{data}: {len(without)} of {len(names)} files have no label in {path.name}, "
        message += f"the first of them {without[0]}"
        raise AccuracyError(message, "add a row for each", str(path))
    meaning = classes or Classes()
    return [meaning.label(rows[name], name) for name in names]


def number_or_text(written: str) -> Label:
    """Parse an integer or float, or return the string unchanged."""
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            continue
    return written


def _rows(path: Path) -> dict[str, str]:
    labels: dict[str, str] = {}
    try:
        for line, row in enumerate(csv.reader(text_lines(path)), start=1):
            if not row:
                continue
            if len(row) < _COLUMNS:
                message = "a row needs two columns: the file and its label"
                raise CorruptFileError(message, "write FILE,LABEL", f"{path}:{line}")
            labels[row[0].replace("\\", "/").removeprefix("./")] = row[1].strip()
    except csv.Error as error:
        msg = f"is not a CSV file: {error}"
        raise CorruptFileError(msg, "save it again", str(path)) from error
    return labels


def text_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file."""
    try:
        return read_bytes(path, limit=_MOST_BYTES).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFileError("is not valid UTF-8", "save it as UTF-8", str(path)) from error  # noqa: EM101


def labels_of_files(
    names: Sequence[str],
    data: str,
    *,
    listed_in: Path | None,
    classes: Path | None,
) -> Sequence[Label]:
    """Return the labels of files from a CSV file, or else from their directories."""
    label_classes = None if classes is None else read_classes(classes)
    if listed_in is not None:
        return listed_labels(listed_in, names, label_classes, data)
    return folder_labels(names, label_classes, data)


class Decoder(Struct, frozen=True):
    """Converts files to samples.

    Args:
        fed: the input to feed; a string input gets the raw bytes of files.
        reading: the options of the recipe.
        data: the name of the data, for messages.
    """

    fed: FedTensor
    reading: Reading
    data: str

    def sample(self, data: bytes, name: str) -> Array:
        """Convert the bytes of a file to a sample without a batch axis."""
        is_text = self.fed.dtype is DType.STRING
        return fitted(np.array(data, object) if is_text else self._decoded(data), self.fed, name)

    def is_rotated(self, data: bytes) -> bool:
        """Return whether a file has an EXIF orientation other than upright."""
        return False

    @abstractmethod
    def _decoded(self, data: bytes) -> Array:
        """Decode the numbers in a file."""


IMAGES: Final = frozenset({".jpg", ".jpeg", ".png", ".gif", ".bmp"})


class ImageReading(Decoder, frozen=True):
    """Converts images to samples of an input."""

    def __post_init__(self) -> None:
        channels = 1 if self.reading.channels == "grayscale" else 3
        for key, values in (("mean", self.reading.mean), ("std", self.reading.std)):
            if values is not None and len(values) not in (1, channels):
                message = f"{self.data}: {key!r} has {len(values)} numbers for {channels} channels"
                raise AccuracyError(message, "give one number, or one for each channel")

    def is_rotated(self, data: bytes) -> bool:
        return exif_orientation(data) != 1

    def _decoded(self, data: bytes) -> Array:
        return self._normalized(self._resized(data))

    def _resized(self, data: bytes) -> Array:
        """Decode and resize an image: float32 from 0 to 255, channels ordered as in the recipe."""
        reading = self.reading
        pixels = decoded(data, 1 if reading.channels == "grayscale" else 3)
        if reading.central_crop is not None:
            pixels = central_crop(pixels, reading.central_crop)
        sampling = Sampling(half_pixel=reading.half_pixel_centers)
        size = self._size(pixels.shape[0], pixels.shape[1])
        resized: Array = resize_bilinear(pixels[np.newaxis], size, sampling)[0]
        return resized[..., ::-1] if reading.channels == "bgr" else resized

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size from the recipe, else from the input's shape, else the image's own."""
        if self.reading.resize is not None:
            return self.reading.resize[0], self.reading.resize[1]
        shape = self.fed.shape
        if shape is None or len(shape) < 3:
            return height, width
        return (
            shape[-3] if shape[-3] > 0 else height,
            shape[-2] if shape[-2] > 0 else width,
        )

    def _normalized(self, pixels: Array) -> Array:
        kind = self.fed.dtype.numpy
        whole = kind is not None and kind.kind in "iu"
        mean = np.array(self.reading.mean or (0.0,), np.float32)
        std = np.array(self.reading.std or (1.0 if whole else 255.0,), np.float32)
        values: Array = (pixels - mean) / std
        if not whole or kind is None:
            return values
        limits = np.iinfo(kind)
        return np.clip(np.rint(values), limits.min, limits.max).astype(kind)


AUDIO: Final = frozenset({".wav"})


class AudioReading(Decoder, frozen=True):
    """Converts audio files to samples of an input."""

    def _decoded(self, data: bytes) -> Array:
        """Decode a WAV file: float32 from -1 to 1, [samples, channels] or [samples]."""
        samples, _ = decode_wav(data)
        channels = self.reading.desired_channels or -1
        sound = desired_sound(samples, self._count(), channels)
        shape = self.fed.shape
        if sound.shape[1] == 1 and shape is not None and len(shape) == 2 and shape[1] != 1:
            sound = sound[:, 0]
        return sound

    def _count(self) -> int:
        """Return the length from the recipe, else from the input's shape, else -1 (the file's)."""
        if self.reading.desired_samples is not None:
            return self.reading.desired_samples
        shape = self.fed.shape or ()
        # [samples], [batch, samples], [samples, 1] or [batch, samples, channels].
        at = 0 if len(shape) < 2 or (len(shape) == 2 and shape[1] == 1) else 1
        return shape[at] if shape and shape[at] > 1 else -1

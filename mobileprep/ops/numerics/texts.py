"""String tensors, label files, and WAV files."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError, UnsupportedError
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import check_allocation


def texts(array: Array) -> list[bytes]:
    """Return the elements of a string tensor in row-major order."""
    if array.dtype != object:
        message = f"strings are needed, not {array.dtype}"
        raise ValueError(message)
    elements: list[bytes] = array.ravel().tolist()
    return elements


def one_text(array: Array) -> bytes:
    """Return the only element of a string tensor."""
    elements = texts(array)
    if len(elements) != 1:
        message = f"one text is needed, not {len(elements)}"
        raise ValueError(message)
    return elements[0]


def file_contents(array: Array) -> bytes:
    """Return the only element of a string tensor, the contents of a file."""
    if array.size != 1 or array.dtype != object:
        message = "the contents of one file are needed"
        raise ValueError(message)
    return bytes(array.reshape(-1)[0])


def as_texts(elements: Iterable[bytes], shape: tuple[int, ...]) -> Array:
    """Create a string tensor from its elements in row-major order."""
    # From a list, numpy would create an array of fixed width and strip trailing zero bytes.
    listed = list(elements)
    flat = np.empty(len(listed), dtype=object)
    flat[:] = listed
    return flat.reshape(shape)


def each_text(change: Callable[[bytes], bytes], array: Array) -> Array:
    """Apply a function to each element of a string tensor."""
    return as_texts(map(change, texts(array)), array.shape)


Fault = tuple[str, str]
"""A problem and its fix."""

_EACH: Final = "every array needs one entry a sample"
INTEGERS: Final = "save them as whole numbers from 0 on"


def labels_fault(labels: Array, name: str, samples: int) -> Fault | None:
    """Return the problem of labels and its hint, regardless of the model, or None.

    Args:
        labels: an entry for each sample; axes of size 1 are ignored.
        name: the array's name, for messages.
        samples: number of samples.
    """
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == samples and _one_hot(labels):
        message = f"the labels {name!r} are one-hot, of shape {list(labels.shape)}"
        return message, "save the number of each class: labels.argmax(axis=1)"
    if labels.dtype.kind not in "iu":
        message = f"the labels {name!r} are {labels.dtype}, not the numbers of classes"
        if labels.dtype.kind == "f" and not bool(np.all(labels == np.floor(labels))):
            message += ", and have fractions" if np.isfinite(labels).all() else ", and have NaN"
        return message, INTEGERS
    return None


def counts_fault(labels: int, lengths: Mapping[str, int]) -> Fault | None:
    """Return the problem of the numbers of labels and samples, or None."""
    if lengths and labels and all(length == labels for length in lengths.values()):
        return None
    message = f"the data does not fit together: {labels} labels, and {_length_list(lengths)}"
    return message, _EACH


def no_scores(description: str) -> Fault:
    """Return the problem of a first output, described in words, without a score for each class."""
    message = f"top-1 needs a score for each class, and the first output is {description}"
    return message, "list the scores as the first output"


def range_fault(labels: Array, name: str, classes: int, *, first: int = 0) -> Fault | None:
    """Return the problem of labels for a number of classes, or None."""
    flat = labels.ravel()
    wrong = np.flatnonzero((flat < 0) | (flat >= classes))
    if not len(wrong):
        return None
    at = int(wrong[0])
    message = (
        f"{len(wrong)} of {len(flat)} labels {name!r} are none of the model's {classes} classes, "
        f"0 to {classes - 1}: the first is {int(flat[at])}, of sample {first + at}"
    )
    if flat.min() == 1 and flat.max() == classes:
        return message, "they seem to count from 1: save labels - 1"
    return message, f"{INTEGERS}, in the order of the model's outputs"


def class_count(shape: Sequence[int]) -> int | None:
    """Return the number of classes of an output; None if it does not have a score for each class.

    Args:
        shape: the output's shape, with the samples as first axis; -1 for an unknown size.
    """
    sizes = [size for size in shape[1:] if size != 1]
    return sizes[0] if len(sizes) == 1 and sizes[0] != 0 else None


def _length_list(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{n} has {k}" for n, k in lengths.items()) or "no inputs are named"


def _one_hot(labels: Array) -> bool:
    if labels.dtype.kind not in "biuf":
        return False
    ones = labels == 1
    return bool((ones | (labels == 0)).all() and (ones.sum(axis=1) == 1).all())


_FULL_SCALE = np.float32(1 / 32768)
_FILE = "WAV file"


def decode_wav(data: bytes) -> tuple[Array, int]:
    """Decode a WAV file to samples and a sample rate.

    Returns:
        float32 [samples, channels] from -1 up to, but not including, 1; and the sample rate in Hz.

    Raises:
        CorruptFileError: the file is damaged.
        UnsupportedError: the samples do not have 16 bits.
    """
    try:
        with wave.open(io.BytesIO(data)) as reader:
            channels, width, rate, count = reader.getparams()[:4]
            frames = reader.readframes(count)
    # The wave module raises a bare RuntimeError for chunks that end beyond the file.
    except (wave.Error, EOFError, RuntimeError) as error:
        raise _damaged(str(error) or "it ends within its header") from error
    if width != 2:
        message = f"has samples of {8 * width} bits"
        raise UnsupportedError(message, "convert it to 16 bits", _FILE)
    if len(frames) != 2 * channels * count:
        message = f"{count} samples are declared, but there are {len(frames) // (2 * channels)}"
        raise _damaged(message)
    samples = np.frombuffer(frames, "<i2").reshape(-1, channels)
    return samples.astype(np.float32) * _FULL_SCALE, rate


def desired_sound(samples: Array, count: int = -1, channels: int = -1) -> Array:
    """Adjust audio to the length and channels that ``DecodeWav`` requests.

    Args:
        samples: float32 [samples, channels].
        count: number of samples, truncated or padded with silence; -1 for all.
        channels: number of channels, truncated or with the last one repeated; -1 for all.
    """
    count = len(samples) if count < 0 else count
    channels = samples.shape[1] if channels < 0 else channels
    check_allocation((count, channels), samples.dtype)
    out = np.zeros((count, channels), np.float32)
    source = np.minimum(np.arange(channels), samples.shape[1] - 1)
    out[: len(samples)] = samples[:count, source]
    return out


def _damaged(reason: str) -> CorruptFileError:
    return CorruptFileError(f"is damaged: {reason}", "record or export it again", _FILE)

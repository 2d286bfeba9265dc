"""One sample of one input: values of its type and shape, in its range, with structure."""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import MAX_AXES
from mobileprep.runtime.sampling import signals
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.inputs import FedTensor
from mobileprep.runtime.sampling.ranges import ValueRange
from mobileprep.runtime.sampling.sizes import is_long, is_picture, is_single_picture, setting

MOST_BYTES: Final = 1 << 28
# Fewer values than this are no picture written as a row.
_PICTURE_FROM: Final = 256
_WAV_RATE: Final = 16000
# Of a batch so many samples are drawn, and come again: one takes a third of a millisecond.
_MOST_DRAWN: Final = 256
_LENGTHS: Final = re.compile(r"(len(gth)?s?|num_frames|n_frames|seq_?lens?)\Z", re.IGNORECASE)
_DRAWN_FILE: Final = "DecodeWav"
_FILE_KINDS: Final = {
    "ParseExample": "serialized examples",
    "ParseExampleV2": "serialized examples",
    "ParseSingleExample": "a serialized example",
    "DecodeRaw": "raw bytes",
}


def sample(
    fed: FedTensor,
    shape: Sequence[int],
    ops: FirstOps,
    limits: ValueRange,
    generator: np.random.Generator,
    longest: int,
) -> Array:
    """Values for one input.

    Args:
        fed: the input.
        shape: its sizes.
        ops: what the first ops tell of it.
        limits: the least and the greatest value.
        generator: where the values come from.
        longest: the size that open dimensions have, for inputs that are lengths.

    Raises:
        UsageError: nothing can be drawn of its type, or it is too large.
    """
    fault = undrawable(fed, ops)
    if fault is not None:
        raise UsageError(*fault)
    kind = fed.dtype.numpy
    if len(shape) > MAX_AXES:
        message = f"the input {fed.name!r} has {len(shape)} axes, and numpy's arrays {MAX_AXES}"
        raise UsageError(message, f"give the input fewer, or {data_hint(fed.name)}")
    each = _sound_length(ops) * 8 if kind is None else max(kind.itemsize, 8)
    if math.prod(shape) * each > MOST_BYTES:
        message = f"a sample for the input {fed.name!r} of shape {list(shape)} is too large"
        raise UsageError(message, f"give the input a smaller shape, or {data_hint(fed.name)}")
    if kind is None:
        return _sound_files(tuple(shape), ops, generator)
    if fed.dtype is DType.BOOL:
        # A lone one is a switch, such as between training and inference.
        return generator.random(tuple(shape)) < 0.5 if shape else np.asarray(np.False_)
    if len(shape) <= 1:
        told = setting(fed, ops)
        if told is None and kind.kind in "iu" and _LENGTHS.search(fed.ref.node):
            told = longest
        if told is not None:
            return np.full(tuple(shape), told).astype(kind)
    shares = _shares(tuple(shape), ops, generator)
    if fed.dtype.is_floating or kind.kind in "c":
        return (limits.low + shares * (limits.high - limits.low)).astype(kind)
    steps = np.floor(shares * (limits.high - limits.low + 1))
    return np.minimum(limits.low + steps, limits.high).astype(kind)


def data_hint(name: str) -> str:
    """How samples of one's own are named."""
    return f"name samples: 'check: {{data: FILE.npz}}' with an array {name!r}"


def _shares(shape: tuple[int, ...], ops: FirstOps, generator: np.random.Generator) -> Array:
    """Values from 0 to 1, each of the first samples of a batch with its own structure."""
    if is_single_picture(shape, ops) or len(shape) <= 1:
        return _structured(shape, ops, generator)
    count = min(shape[0], _MOST_DRAWN)
    if not count:
        return np.zeros(shape)
    parts = np.stack([_structured(shape[1:], ops, generator) for _ in range(count)])
    return parts if count == shape[0] else parts[np.arange(shape[0]) % count]


def _structured(shape: tuple[int, ...], ops: FirstOps, generator: np.random.Generator) -> Array:
    count = math.prod(shape)
    if ops.rows is not None or count == 0:
        return generator.random(shape)
    long = [size for size in shape if size > 1]
    if (len(long) <= 1 and ops.is_sound) or is_long(shape):
        return (signals.sound(generator, count).reshape(shape) + 1) / 2
    if len(shape) == 3 and is_picture((1, *shape), ops) and min(shape[:2]) > 1:
        if ops.channels_first or (shape[0] <= 4 < shape[2]):
            channels, rows, columns = shape
            return np.moveaxis(signals.picture(generator, rows, columns, channels), -1, 0)
        return signals.picture(generator, *shape)
    if len(shape) >= 2 and len(long) >= 2:
        # Rows of features that follow each other, such as a spectrogram, or a film.
        *frames, rows, columns = long
        scene = signals.picture(generator, rows, columns, math.prod(frames))
        return np.moveaxis(scene, -1, 0).reshape(shape)
    return _row(count, generator).reshape(shape)


def _row(count: int, generator: np.random.Generator) -> Array:
    """A row of features; of a length that pictures have when they are written as rows, one."""
    for channels in (1, 3):
        side = math.isqrt(count // channels)
        if side * side * channels == count and count >= _PICTURE_FROM:
            return signals.picture(generator, side, side, channels).ravel()
    return signals.features(generator, count)


def _sound_files(shape: tuple[int, ...], ops: FirstOps, generator: np.random.Generator) -> Array:
    values = np.empty(math.prod(shape), dtype=object)
    for index in range(len(values)):
        values[index] = _wav(signals.sound(generator, _sound_length(ops)))
    return values.reshape(shape)


def _sound_length(ops: FirstOps) -> int:
    length = -1 if ops.file is None else ops.file.attr_int("desired_samples", -1)
    return length if length > 0 else _WAV_RATE


def undrawable(fed: FedTensor, ops: FirstOps) -> tuple[str, str] | None:
    """Why nothing can be drawn for an input, and the mend; None where something can."""
    node = ops.file
    is_text = fed.dtype is DType.STRING
    if fed.dtype.numpy is not None and not is_text:
        return None
    if is_text and node is not None and node.op == _DRAWN_FILE:
        return None
    what = "text" if is_text else f"of type {fed.dtype.short}"
    if node is not None:
        what = _FILE_KINDS.get(node.op, "the content of a picture file")
    message = f"no sample can be drawn for the input {fed.name!r}: it is {what}"
    hint = data_hint(fed.name)
    if node is not None:
        hint += f"; or name what {node.op} gives as the input: {node.name!r}"
    return message, hint


def _wav(tones: Array) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_WAV_RATE)
        file.writeframes((tones * 32767).astype("<i2").tobytes())
    return stream.getvalue()

"""Random samples: values, signals, and batches."""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, LoopLimitError, UnsupportedError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.allocation import MAX_AXES
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import (
    MOVES,
    ValueRange,
    first_ops,
    largest_movement,
    value_ranges,
)
from mobileprep.runtime.sampling.inputs import (
    FedTensor,
    Sizes,
    is_image,
    is_long,
    is_single_image,
    setting,
    size_choices,
)

MOST_BYTES: Final = 1 << 28
# Fewer values than this are not a flattened image.
_IMAGE_FROM: Final = 256
_WAV_RATE: Final = 16000
# Draw this many samples of a batch and repeat them: one takes a third of a millisecond.
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
    """Draw values for one input.

    Raises:
        UsageError: no sample can be drawn, or it would be too large.
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
        # A scalar is a switch, such as between training and inference.
        return generator.random(tuple(shape)) < 0.5 if shape else np.asarray(np.False_)
    if len(shape) <= 1:
        value = setting(fed, ops)
        if value is None and kind.kind in "iu" and _LENGTHS.search(fed.ref.node):
            value = longest
        if value is not None:
            return np.full(tuple(shape), value).astype(kind)
    shares = _shares(tuple(shape), ops, generator)
    if fed.dtype.is_floating or kind.kind in "c":
        return (limits.low + shares * (limits.high - limits.low)).astype(kind)
    steps = np.floor(shares * (limits.high - limits.low + 1))
    return np.minimum(limits.low + steps, limits.high).astype(kind)


def data_hint(name: str) -> str:
    """Return the hint on how to provide own samples."""
    return f"name samples: 'check: {{data: FILE.npz}}' with an array {name!r}"


def _shares(shape: tuple[int, ...], ops: FirstOps, generator: np.random.Generator) -> Array:
    """Draw values from 0 to 1, each of the first samples of a batch with its own structure."""
    if is_single_image(shape, ops) or len(shape) <= 1:
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
    if (len(long) <= 1 and ops.is_audio) or is_long(shape):
        return (sound(generator, count).reshape(shape) + 1) / 2
    if len(shape) == 3 and is_image((1, *shape), ops) and min(shape[:2]) > 1:
        if ops.channels_first or (shape[0] <= 4 < shape[2]):
            channels, rows, columns = shape
            return np.moveaxis(random_image(generator, rows, columns, channels), -1, 0)
        return random_image(generator, *shape)
    if len(shape) >= 2 and len(long) >= 2:
        # Consecutive rows of features, such as a spectrogram, or a video.
        *frames, rows, columns = long
        scene = random_image(generator, rows, columns, math.prod(frames))
        return np.moveaxis(scene, -1, 0).reshape(shape)
    return _row(count, generator).reshape(shape)


def _row(count: int, generator: np.random.Generator) -> Array:
    """Draw a row of features, or a flattened image if the length is that of a square one."""
    for channels in (1, 3):
        side = math.isqrt(count // channels)
        if side * side * channels == count and count >= _IMAGE_FROM:
            return random_image(generator, side, side, channels).ravel()
    return features(generator, count)


def _sound_files(shape: tuple[int, ...], ops: FirstOps, generator: np.random.Generator) -> Array:
    values = np.empty(math.prod(shape), dtype=object)
    for index in range(len(values)):
        values[index] = _wav(sound(generator, _sound_length(ops)))
    return values.reshape(shape)


def _sound_length(ops: FirstOps) -> int:
    length = -1 if ops.file is None else ops.file.attr_int("desired_samples", -1)
    return length if length > 0 else _WAV_RATE


def undrawable(fed: FedTensor, ops: FirstOps) -> tuple[str, str] | None:
    """Return why no sample can be drawn for an input, and the hint; None if one can."""
    node = ops.file
    is_text = fed.dtype is DType.STRING
    if fed.dtype.numpy is not None and not is_text:
        return None
    if is_text and node is not None and node.op == _DRAWN_FILE:
        return None
    what = "text" if is_text else f"of type {fed.dtype.short}"
    if node is not None:
        what = _FILE_KINDS.get(node.op, "the content of an image file")
    message = f"no sample can be drawn for the input {fed.name!r}: it is {what}"
    hint = data_hint(fed.name)
    if node is not None:
        hint += f"; or use the output of {node.op} as the input: {node.name!r}"
    return message, hint


def _wav(tones: Array) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_WAV_RATE)
        file.writeframes((tones * 32767).astype("<i2").tobytes())
    return stream.getvalue()


_SEED: Final = 20160823
_MOST_CHOICES: Final = 60
# Number of size choices with single-iteration loops after which longer ones are not tried.
_MOST_SHORT: Final = 24
# The input that holds an array's length.
_DRAW_LENGTHS: Final = {"TensorArrayV3": 0, "TensorArrayV2": 0, "TensorListReserve": 1}

Feeds = Mapping[str, Array]
Run = Callable[[Feeds], list[Array]]


class Samples(Struct, frozen=True):
    """Feeds for several runs, and the source's outputs for each.

    Args:
        feeds: arrays by input, for each run.
        outputs: the fetched tensors of each run.
        inputs: descriptions of the feeds, by input.
        has_short_loop: whether the model's loops ran for a single element, although an input could
            be longer.
    """

    feeds: tuple[Feeds, ...]
    outputs: tuple[list[Array], ...]
    inputs: Mapping[str, str]
    has_short_loop: bool = False


def draw_samples(graph: Graph, inputs: Sequence[FedTensor], count: int, run: Run) -> Samples:
    """Draw seeded samples that a graph can run; the same for the same graph.

    Unknown dimensions get the first sizes with which the graph runs. If the graph does not
    determine the range of an input, use the first common range that affects the outputs.
    """
    drawing = _Drawing(graph, inputs)
    count = count if inputs else 1
    sizes, is_short = _runnable_sizes(graph, drawing, run)
    best: Samples | None = None
    most = -1.0
    for trial in range(drawing.trials):
        samples = drawing.samples(sizes, trial, count, run)
        moved = largest_movement(samples.outputs)
        if best is None or moved > most:
            best, most = samples, moved
        if most >= MOVES:
            break
    assert best is not None
    return replace(best, has_short_loop=is_short)


def _runnable_sizes(graph: Graph, drawing: _Drawing, run: Run) -> tuple[Sizes, bool]:
    """Return the first sizes with which the graph runs, and whether its loops then run only once.

    A loop that runs once tests little, so try longer sequences first.
    """
    lengths = loop_lengths(graph)
    first: InvalidGraphError | UsageError | None = None
    short: Sizes | None = None
    runs_of_one = 0
    tried: list[Sizes] = []
    for sizes in islice(size_choices(drawing.inputs, drawing.ops), _MOST_CHOICES):
        feeds = drawing.feeds(sizes, 0, 0)
        try:
            run(feeds)
        except LoopLimitError:
            raise  # other choices would take as long
        except (InvalidGraphError, UsageError) as error:
            first = first or error
            tried.append(sizes)
            continue
        if all(fed.is_whole for fed in drawing.inputs) or _longest_loop(graph, lengths, feeds) != 1:
            return sizes, False
        short = short or sizes
        runs_of_one += 1
        if runs_of_one == _MOST_SHORT:
            break
    if short is not None:
        return short, True
    raise _no_sizes(drawing, tried, first)


def loop_lengths(graph: Graph) -> list[str]:
    """Return the tensors that hold the lengths of the arrays over which loops run."""
    slots = ((_DRAW_LENGTHS[n.op], n) for n in graph if n.op in _DRAW_LENGTHS)
    return [str(n.data_inputs[slot]) for slot, n in slots if slot < len(n.data_inputs)]


def _longest_loop(graph: Graph, lengths: Sequence[str], feeds: Feeds) -> int | None:
    """Return the length of the longest array that a loop runs over; None if unknown."""
    if not lengths:
        return None
    try:
        arrays = Interpreter(graph).run(lengths, feeds)
    except (InvalidGraphError, UnsupportedError, UsageError):
        return None  # such as in a nested loop
    return max(int(np.max(array, initial=0)) for array in arrays)


def _no_sizes(
    drawing: _Drawing, tried: Sequence[Sizes], error: InvalidGraphError | UsageError | None
) -> UsageError:
    reason = "" if error is None else f": {error.message}"
    is_open = [fed for fed in drawing.inputs if not fed.is_whole]
    if not is_open or len(tried) == 1:
        names = ", ".join(repr(fed.name) for fed in drawing.inputs)
        basis = f"on samples drawn for {names}" if names else "without inputs"
        message = f"the source does not run {basis}{reason}"
        return UsageError(message, data_hint(drawing.inputs[0].name) if names else "")
    names = " and ".join(f"{fed.name!r} {_shown(fed)}" for fed in is_open)
    message = f"the source runs with none of {len(tried)} choices of sizes for the input {names}"
    hint = f"give the input its shape, such as [1, 224, 224, 3]; or {data_hint(is_open[0].name)}"
    return UsageError(f"{message}; with the first of them{reason}", hint)


def _shown(fed: FedTensor) -> str:
    return "of unknown rank" if fed.shape is None else str(list(fed.shape))


class _Drawing:
    """The known facts about a graph's inputs, and the samples drawn from them."""

    def __init__(self, graph: Graph, inputs: Sequence[FedTensor]) -> None:
        self.inputs = inputs
        self.ops: list[FirstOps] = [first_ops(graph, fed.ref) for fed in inputs]
        self.ranges = [_ranges(f, o) for f, o in zip(inputs, self.ops, strict=True)]
        self.trials = max((len(ranges) for ranges in self.ranges), default=1)
        self._defaults = [_default(graph, fed) for fed in inputs]

    def samples(self, sizes: Sizes, trial: int, count: int, run: Run) -> Samples:
        """Draw the samples of one choice of ranges, and compute the outputs."""
        feeds = tuple(self.feeds(sizes, trial, number) for number in range(count))
        descriptions = {
            fed.name: f"{fed.dtype.short} {list(feeds[0][fed.name].shape)}{self._suffix(at, trial)}"
            for at, fed in enumerate(self.inputs)
        }
        return Samples(feeds, tuple(run(feed) for feed in feeds), descriptions)

    def feeds(self, sizes: Sizes, trial: int, number: int) -> Feeds:
        """Draw one sample: an array for each input."""
        longest = self._longest(sizes)
        arrays = {}
        for at, (fed, ops) in enumerate(zip(self.inputs, self.ops, strict=True)):
            default = self._defaults[at]
            if default is not None:
                arrays[fed.name] = default
                continue
            generator = np.random.default_rng([_SEED, at, number])
            limits = self._range(at, trial)
            arrays[fed.name] = sample(fed, sizes[fed.name], ops, limits, generator, longest)
        return arrays

    def _range(self, at: int, trial: int) -> ValueRange:
        ranges = self.ranges[at]
        return ranges[min(trial, len(ranges) - 1)]

    def _suffix(self, at: int, trial: int) -> str:
        if self._defaults[at] is not None:
            return ", its default"
        dtype = self.inputs[at].dtype
        if dtype in (DType.BOOL, DType.STRING):
            return ""
        return f", {self._range(at, trial)}"

    def _longest(self, sizes: Sizes) -> int:
        """Return the value of a length input: the size of a possible sequence."""
        longest = 1
        for fed in self.inputs:
            if len(sizes[fed.name]) > 1:
                longest = max(longest, sizes[fed.name][1])
        return longest


def _ranges(fed: FedTensor, ops: FirstOps) -> tuple[ValueRange, ...]:
    if fed.dtype in (DType.BOOL, DType.STRING):
        return (ValueRange(0, 1),)
    return value_ranges(fed, ops)


def _default(graph: Graph, fed: FedTensor) -> Array | None:
    """Return the default of a setting, such as a dropout rate."""
    node = graph[fed.ref.node]
    if node.op != "PlaceholderWithDefault" or not node.data_inputs:
        return None
    before = graph.get(node.data_inputs[0].node)
    if before is None or before.op != "Const":
        return None
    value = before.attr_tensor("value")
    return value.array() if value.size == 1 and not value.shape else None


_WAVES: Final = 7
_OBJECTS: Final = 5
_GRAIN: Final = 0.02
_TONES: Final = 4
# Images and audio are quantized to the steps of files. This also hides differences between
# processors in computing a cosine.
_LEVELS: Final = 255
_SOUND_LEVELS: Final = 32767


def random_image(generator: np.random.Generator, rows: int, columns: int, channels: int) -> Array:
    """Draw a smooth scene with some objects that have edges, and a little grain.

    Returns:
        ``[rows, columns, channels]`` from 0 to 1 in steps of 1/255.
    """
    y = np.linspace(-1, 1, rows)[:, None]
    x = np.linspace(-1, 1, columns)[None, :]
    scene = np.zeros((rows, columns, channels))
    for octave in range(_WAVES):
        angle, phase = generator.uniform(0, 2 * np.pi, 2)
        frequency = generator.uniform(0.3, 1.0) * 2.0 ** (octave / 2)
        along = np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle))
        color = generator.uniform(-1, 1, channels) / (1 + octave / 2)
        scene += np.cos(along + phase)[:, :, None] * color
    for number in range(_OBJECTS):
        middle = generator.uniform(-0.8, 0.8, 2)
        size = generator.uniform(0.1, 0.5, 2)
        down, across = (y - middle[0]) / size[0], (x - middle[1]) / size[1]
        inside = (
            down**2 + across**2 < 1 if number % 2 else (np.abs(down) < 1) & (np.abs(across) < 1)
        )
        scene[inside] = 0.3 * scene[inside] + generator.uniform(-2, 2, channels)
    scene += generator.normal(0, _GRAIN, scene.shape) * max(float(np.ptp(scene)), 1e-6)
    return _stretched(scene, generator)


def sound(generator: np.random.Generator, length: int) -> Array:
    """Draw a few tones with overtones that swell and fade, over a little hiss.

    Returns:
        ``[length]`` from -1 to 1, in the steps of 16-bit files.
    """
    time = np.arange(length)
    share = time / max(length, 1)
    wave = np.zeros(length)
    for _ in range(_TONES):
        # In cycles per value: from 50 to 1,600 Hz at 16 kHz.
        pitch = 2.0 ** generator.uniform(-8.3, -3.3)
        glide = generator.uniform(-0.3, 0.3)
        turns = 2 * np.pi * pitch * time * (1 + glide * share / 2)
        swell = np.exp(
            -(((share - generator.uniform(0.1, 0.9)) / generator.uniform(0.05, 0.3)) ** 2)
        )
        for overtone in (1, 2, 3):
            wave += swell * np.sin(overtone * turns) * generator.uniform(0.2, 1) / overtone
    wave += generator.normal(0, 0.01, length)
    loudest = max(float(np.abs(wave).max(initial=0)), 1e-6)
    level = generator.uniform(0.3, 0.9)
    steps: Array = np.round(wave * level / loudest * _SOUND_LEVELS) / _SOUND_LEVELS
    return steps


def features(generator: np.random.Generator, count: int) -> Array:
    """Draw unordered numbers: ``[count]`` from 0 to 1."""
    return generator.random(count)


def _stretched(scene: Array, generator: np.random.Generator) -> Array:
    """Scale values to nearly 0 to nearly 1, with a random brightness and contrast."""
    low, high = float(scene.min(initial=0)), float(scene.max(initial=1))
    dark, bright = generator.uniform(0, 0.15), generator.uniform(0.85, 1)
    share = (scene - low) / max(high - low, 1e-6)
    steps: Array = np.round((dark + share * (bright - dark)) * _LEVELS) / _LEVELS
    return steps

"""The networks of `quantization.py`, and deterministic samples of real inputs for them.

Every network has three disjoint sets of samples: for calibration, for the layer search, and for the
test. If there is only one image or a few clips, all sets are drawn from them, with different crops,
shifts, and gains. The table therefore shows how closely int8 follows float on such inputs, not how
accurate the networks are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mobileprep

Array = NDArray[Any]
Samples = Mapping[str, Array]  # samples along the first axis, by input
Draw = Callable[[Path, int, int], Samples]  # directory of models, number of samples, seed

SETS = ("calibration", "search", "test")


@dataclass(frozen=True)
class Network:
    """A network, its path below the directory of models, and its samples.

    Args:
        name: name in the table.
        file: frozen graph, MetaGraph next to its checkpoint, or SavedModel directory.
        outputs: tensors to compare.
        draw: draws samples.
        classes: whether the index of the maximum on the last axis of the first output is a class.
        shapes: shape of each input for one sample.
        fake_quantized: whether it was trained with fake quantization.
        checkpoint: checkpoint of a GraphDef, below the directory of models.
    """

    name: str
    file: str
    outputs: tuple[str, ...]
    draw: Draw
    classes: bool
    shapes: Mapping[str, tuple[int, ...]]
    fake_quantized: bool = False
    checkpoint: str = ""


def pictures(
    name: str, size: tuple[int, int], low: float, high: float, smallest: float = 0.4
) -> Draw:
    """Draw crops of the image, randomly mirrored and with random brightness and contrast.

    Args:
        name: name of the input.
        size: height and width.
        low: value of black.
        high: value of white.
        smallest: minimum side of a crop, as a share of the image's shorter side.
    """

    def draw(models: Path, count: int, seed: int) -> Samples:
        from PIL import Image

        generator = np.random.default_rng([seed, *size])
        with Image.open(models / "data" / "grace_hopper.jpg") as image:
            picture = image.convert("RGB")
        found = np.empty((count, *size, 3), np.float32)
        for sample in found:
            side = int(generator.uniform(smallest, 1.0) * min(picture.size))
            left, top = (int(generator.integers(0, s - side + 1)) for s in picture.size)
            crop = picture.resize(size[::-1], box=(left, top, left + side, top + side))
            values = np.asarray(crop, np.float32) / 255
            if generator.random() < 0.5:
                values = values[:, ::-1]
            gain, offset = generator.uniform(0.6, 1.3), generator.uniform(-0.15, 0.15)
            sample[:] = np.clip((values - 0.5) * gain + 0.5 + offset, 0, 1) * (high - low) + low
        return {name: found}

    return draw


def mtcnn(models: Path, count: int, seed: int) -> Samples:
    """Draw crops of the image, and add the detector's usual settings."""
    found = pictures("input", (160, 160), 0, 255, 0.9)(models, count, seed)
    settings = {
        "min_size": np.float32(40),
        "thresholds": np.array([0.6, 0.7, 0.7], np.float32),
        "factor": np.float32(0.709),
    }
    repeated = {k: np.repeat(v[np.newaxis], count, axis=0) for k, v in settings.items()}
    return {**found, **repeated}


def digits(name: str, shape: tuple[int, ...]) -> Draw:
    """Draw digits of MNIST, with different digits in each set."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        table = np.loadtxt(models / "data" / "mnist_5k.csv.gz", np.float32, delimiter=",")
        order = np.random.default_rng(0).permutation(len(table))
        chosen = table[order[seed * count : (seed + 1) * count], :-1] / 255
        return {name: chosen.reshape(-1, *shape)}

    return draw


def unrolled(name: str) -> Network:
    """Return an unrolled recurrent network that reads digits line by line, without dropout."""
    file = f"tf2onnx-models/{name}/frozen.pb"
    draw = digits("X", (784,))
    return Network(f"MNIST, {name.upper()}", file, ("output",), draw, True, {"X": (1, 784)})


def words(front_end: str, file: str) -> Draw:
    """Draw clips with random shift, gain, and noise, processed by the model's front end."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        graph = mobileprep.load_graph(models / file)
        clips = [clip(p) for p in sorted((models / "data" / "speech_commands").rglob("*.wav"))]
        generator = np.random.default_rng(seed)
        found = []
        for i in range(count):
            sound = np.roll(clips[i % len(clips)], generator.integers(-1600, 1600))
            sound = sound * generator.uniform(0.5, 1.2)
            sound = sound + generator.normal(0, generator.uniform(0, 0.01), len(sound))
            wav = np.array(as_wav(sound), dtype=object)
            found.append(mobileprep.run(graph, {"wav_data": wav}, [front_end])[front_end][0])
        return {front_end: np.stack(found)}

    return draw


def sounds(name: str, length: int, rate: int) -> Draw:
    """Draw segments of the concatenated clips with random position and gain.

    Args:
        name: name of the input.
        length: number of values per sample.
        rate: values per second.
    """

    def draw(models: Path, count: int, seed: int) -> Samples:
        paths = sorted((models / "data" / "speech_commands").rglob("*.wav"))
        sound = np.concatenate([clip(path) for path in paths])
        times = np.arange(0, len(sound), 16000 / rate)
        sound = np.interp(times, np.arange(len(sound)), sound).astype(np.float32)
        generator = np.random.default_rng([seed, length])
        found = np.empty((count, length), np.float32)
        for sample in found:
            start = generator.integers(0, len(sound) - length)
            piece = sound[start : start + length]
            sample[:] = piece * (generator.uniform(0.3, 1.0) / max(np.abs(piece).max(), 1e-3))
        return {name: found}

    return draw


def pieces(models: Path, count: int, seed: int, length: int) -> Array:
    """Draw segments of the concatenated clips at 16 kHz with random gain: [count, length]."""
    paths = sorted((models / "data" / "speech_commands").rglob("*.wav"))
    sound = np.concatenate([clip(path) for path in paths]).astype(np.float32)
    generator = np.random.default_rng([seed, length])
    starts = generator.integers(0, len(sound) - length, count)
    gains = generator.uniform(0.3, 1.0, count)
    return np.stack(
        [sound[at : at + length] * gain for at, gain in zip(starts, gains, strict=True)]
    )


def music_tagger(models: Path, count: int, seed: int) -> Samples:
    """Draw mel spectrograms for musicnn, and set its training flag to false."""
    frames, bands, size, hop = 187, 96, 512, 256
    sound = pieces(models, count, seed, size + hop * (frames - 1))
    at = np.arange(size) + hop * np.arange(frames)[:, np.newaxis]
    power = np.abs(np.fft.rfft(sound[:, at] * np.hanning(size))) ** 2
    spectrum = np.log10(1 + 10000 * power @ mel_filters(bands, size // 2 + 1, 16000).T)
    return {
        "model/Placeholder": spectrum.astype(np.float32),
        "model/Placeholder_2": np.zeros(count, bool),
    }


def mel_filters(bands: int, bins: int, rate: int) -> Array:
    """Return triangular filters, evenly spaced on the mel scale, each of area 1: [bands, bins]."""
    mels = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    low, middle, high = (edges[i : i + bands, np.newaxis] for i in range(3))
    frequencies = np.linspace(0, rate / 2, bins)
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return np.asarray(triangles * 2 / (high - low))


def wake_word(models: Path, count: int, seed: int) -> Samples:
    """Draw segments of 0.25 s as 16-bit values, and add the initial state of a stream."""
    sound = pieces(models, count, seed, 4000) * 32768
    states = np.zeros((count, 2, 1, 128), np.float32)
    return {"model/inputX": sound.astype(np.float32), "model/rnn_initial_states": states}


def clip(path: Path) -> Array:
    """Read one second of audio at 16 kHz, with values from -1 to 1."""
    import wave

    with wave.open(str(path)) as reader:
        sound = np.frombuffer(reader.readframes(reader.getnframes()), "<i2") / 32768
    return np.pad(sound[:16000], (0, max(0, 16000 - len(sound))))


def as_wav(sound: Array) -> bytes:
    """Encode audio as a WAV file at 16 kHz."""
    import io
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16000)
        writer.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def keyword_spotter(name: str) -> Network:
    """Return one of ARM's keyword spotters, with its cepstral coefficients as input."""
    file = f"arm-kws/{name}.pb"
    draw = words("Mfcc", file)
    return Network(f"arm-kws {name}", file, ("labels_softmax",), draw, True, {"Mfcc": (1, 49, 10)})


_FACE_MESH = ("Identity_2", "Identity_1", "Identity")
_POSES = tuple(
    f"MobilenetV1/{name}/BiasAdd"
    for name in ("heatmap_2", "offset_2", "displacement_fwd_2", "displacement_bwd_2")
)

NETWORKS = (
    keyword_spotter("DS_CNN_S"),
    keyword_spotter("CNN_S"),
    keyword_spotter("Basic_LSTM_S"),
    Network(
        "MNIST, MobileNet-like",
        "made-qat-mnist-tf115/frozen_float_fusedbn.pb",
        ("output",),
        digits("input", (28, 28, 1)),
        True,
        {"input": (1, 28, 28, 1)},
    ),
    Network(
        "MNIST, fake quantized",
        "made-qat-mnist-tf115/frozen_eval_graph.pb",
        ("output",),
        digits("input", (28, 28, 1)),
        True,
        {"input": (1, 28, 28, 1)},
        fake_quantized=True,
    ),
    Network(
        "MNIST, dense",
        "tf2onnx-models/fc-layers/frozen.pb",
        ("output",),
        digits("X", (784,)),
        True,
        {"X": (1, 784)},
    ),
    Network(
        "MNIST, softmax",
        "sugyan-mnist-v1ckpt/graph_regression.pb",
        ("regression/y",),
        digits("x", (784,)),
        True,
        {"x": (1, 784)},
        checkpoint="sugyan-mnist-v1ckpt/regression.ckpt",
    ),
    unrolled("lstm"),
    unrolled("gru"),
    Network(
        "wake word, streaming GRU",
        "android-wakeword-streaming-rnn/graph.pb",
        ("model/softmax", "model/logit", "model/rnn_states"),
        wake_word,
        False,
        {"model/inputX": (4000,), "model/rnn_initial_states": (2, 1, 128)},
    ),
    Network(
        "musicnn, tags of music",
        "musicnn/MTT_musicnn/model.meta",
        ("model/Sigmoid",),
        music_tagger,
        True,
        {"model/Placeholder": (1, 187, 96), "model/Placeholder_2": ()},
    ),
    Network(
        "basic-pitch, transcription",
        "basic-pitch-savedmodel",
        tuple(f"StatefulPartitionedCall:{i}" for i in range(3)),
        sounds("serving_default_input_2", 43844, 22050),
        False,
        {"serving_default_input_2": (1, 43844, 1)},
    ),
    Network(
        "nsfwjs, MobileNet v2",
        "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
        ("Identity",),
        pictures("input", (224, 224), 0, 1),
        True,
        {"input": (1, 224, 224, 3)},
    ),
    Network(
        "PoseNet, MobileNet v1",
        "tfjs-posenet/posenet.pb",
        _POSES,
        pictures("image", (385, 385), -1, 1),
        False,
        {"image": (1, 385, 385, 3)},
    ),
    Network(
        "face mesh",
        "tfjs-facemesh/facemesh.pb",
        _FACE_MESH,
        pictures("input_1", (192, 192), 0, 1),
        False,
        {"input_1": (1, 192, 192, 3)},
    ),
    Network(
        "MTCNN, detection",
        "mtcnn/mtcnn.pb",
        ("box", "prob", "landmarks"),
        mtcnn,
        False,
        {"input": (160, 160, 3), "min_size": (), "thresholds": (3,), "factor": ()},
    ),
)

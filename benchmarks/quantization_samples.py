"""Draw deterministic samples of real inputs for the networks of ``quantization_networks.py``.

Every network has three disjoint sets of samples: for calibration, for the layer search, and for the
test. If there are only a few images or clips, all sets are drawn from them, with different crops,
shifts, and gains. Results therefore show how closely a quantized network follows the float network,
not how accurate it is, except for labeled samples.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import skimage
import sklearn
from numpy.typing import NDArray
from PIL.Image import BILINEAR, Image
from PIL.Image import open as open_image

import mobileprep

Array = NDArray[Any]
Samples = Mapping[str, Array]  # samples along the first axis, by input
Draw = Callable[[Path, int, int], Samples]  # directory of models, number of samples, seed

SETS = ("calibration", "search", "test")
RECIPES = Path(__file__).resolve().parent.parent / "recipes"
LABELS = "labels"  # class of each sample, next to the inputs

# Photos of scikit-image and scikit-learn that a phone could take.
SCENES = ("chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg", "china.jpg")
# A table of 6 by 18 faces, and a picture of a group: assets of the npm package @vladmandic/human.
FACES, GROUP = "human/screenshot-facematch.jpg", "human/samples.jpg"
LUMA = np.array([0.2989, 0.5870, 0.1140], np.float32)


def photos(name: str, size: tuple[int, int], low: float, high: float) -> Draw:
    """Draw crops of photos, three of four from photos of people.

    Args:
        name: name of the input.
        size: height and width.
        low: value of black.
        high: value of white.
    """

    def draw(models: Path, count: int, seed: int) -> Samples:
        generator = np.random.default_rng([seed, *size])
        people, scenes = list(people_in(models)), list(map(packaged_photo, SCENES))
        drawn = np.empty((count, *size, 3), np.float32)
        for i, sample in enumerate(drawn):
            group = scenes if i % 4 == 3 else people
            image = group[int(generator.integers(len(group)))]
            side = int(generator.uniform(0.4, 1.0) * min(image.size))
            left, top = (int(generator.integers(0, s - side + 1)) for s in image.size)
            box = (left, top, left + side, top + side)
            sample[:] = varied(image, box, size, generator) * (high - low) + low
        return {name: drawn}

    return draw


def faces(
    name: str, size: tuple[int, int], low: float, high: float, *, is_gray: bool = False
) -> Draw:
    """Draw faces, with different faces in each set; see ``photos``."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        generator = np.random.default_rng([seed, *size])
        order = np.random.default_rng(0).permutation(6 * 18)[seed :: len(SETS)]
        table = photo(models / FACES)
        drawn = np.empty((count, *size, 1 if is_gray else 3), np.float32)
        for i, sample in enumerate(drawn):
            row, column = divmod(int(order[i % len(order)]), 18)
            left, top = 13 + 106.4 * column, 296 + 112.4 * row  # below the caption
            x, y = generator.uniform(-6, 6, 2)
            side = generator.uniform(70, 80)
            box = (left + max(x, 0), top + max(y, 0), left + x + side, top + y + side)
            values = varied(table, box, size, generator)
            if is_gray:
                values = (values @ LUMA)[..., np.newaxis]
            sample[:] = values * (high - low) + low
        return {name: drawn}

    return draw


def people_in(models: Path) -> Iterator[Image]:
    """Yield photos of people."""
    yield photo(models / "data" / "grace_hopper.jpg")
    yield packaged_photo("astronaut.png")
    group = photo(models / GROUP)
    yield group.crop((0, 430, 1280, 1158))
    # A row of smaller pictures, from left to right.
    for left, right in ((165, 316), (326, 536), (545, 632), (642, 788), (797, 902), (1130, 1278)):
        yield group.crop((left, 2, right, 156))


def packaged_photo(name: str) -> Image:
    """Read a photo of scikit-image or scikit-learn."""
    path = Path(skimage.__file__).parent / "data" / name
    return photo(
        path if path.exists() else Path(sklearn.__file__).parent / "datasets/images" / name
    )


def photo(path: Path) -> Image:
    """Read a photo in RGB."""
    with open_image(path) as image:
        return image.convert("RGB")


def varied(
    image: Image, box: tuple[float, ...], size: tuple[int, int], generator: np.random.Generator
) -> Array:
    """Resize a crop, and mirror it and change its brightness and contrast at random: [H, W, 3]."""
    values = np.asarray(image.resize(size[::-1], BILINEAR, box=box), np.float32) / 255
    if generator.random() < 0.5:
        values = values[:, ::-1]
    gain, offset = generator.uniform(0.6, 1.3), generator.uniform(-0.15, 0.15)
    changed: Array = np.clip((values - 0.5) * gain + 0.5 + offset, 0, 1)
    return changed


def mtcnn(models: Path, count: int, seed: int) -> Samples:
    """Draw crops of photos, and add the detector's usual settings."""
    drawn = photos("input", (160, 160), 0, 255)(models, count, seed)
    settings = {
        "min_size": np.float32(40),
        "thresholds": np.array([0.6, 0.7, 0.7], np.float32),
        "factor": np.float32(0.709),
    }
    repeated = {k: np.repeat(v[np.newaxis], count, axis=0) for k, v in settings.items()}
    return {**drawn, **repeated}


def digits(name: str, shape: tuple[int, ...]) -> Draw:
    """Draw labeled digits of MNIST; those of the test are not in the networks' training data."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        table = np.loadtxt(models / "data" / "mnist_5k.csv.gz", np.float32, delimiter=",")
        with np.load(models / "made-qat-mnist-tf115" / "eval_split.npz") as split:
            (held_out,) = split.values()
        generator = np.random.default_rng(0)
        others = generator.permutation(np.setdiff1d(np.arange(len(table)), held_out))
        is_test = SETS[seed] == "test"
        rows = generator.permutation(held_out) if is_test else others[seed * count :]
        chosen = table[rows[:count]]
        pixels = (chosen[:, :-1] / 255).reshape(-1, *shape)
        return {name: pixels, LABELS: chosen[:, -1].astype(int)}

    return draw


def recipe_digits(recipe: str) -> Draw:
    """Draw digits of a recipe of this repository: images for its calibration, or its test data."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        is_test = SETS[seed] == "test"
        file = RECIPES / recipe / "data" / ("test.npz" if is_test else "calibration.npz")
        with np.load(file) as arrays:
            images = arrays["image"]
            first = 0 if is_test else seed * count
            rows = np.arange(first, first + min(count, len(images))) % len(images)
            drawn = {"image": images[rows]}
            return {**drawn, LABELS: arrays["label"][rows]} if is_test else drawn

    return draw


def words(front_end: str, model: str) -> Draw:
    """Draw labeled clips with random shift, gain, and noise, processed by the front end."""

    def draw(models: Path, count: int, seed: int) -> Samples:
        graph = mobileprep.load_graph(models / model)
        names = (models / model).with_name("labels.txt").read_text(encoding="utf-8").split()
        paths = sorted((models / "data" / "speech_commands").rglob("*.wav"))
        clips = [clip(path) for path in paths]
        generator = np.random.default_rng(seed)
        drawn = []
        for i in range(count):
            sound = np.roll(clips[i % len(clips)], generator.integers(-1600, 1600))
            sound = sound * generator.uniform(0.5, 1.2)
            sound = sound + generator.normal(0, generator.uniform(0, 0.01), len(sound))
            wav = np.array(as_wav(sound), dtype=object)
            drawn.append(mobileprep.run(graph, {"wav_data": wav}, [front_end])[front_end][0])
        labels = [word_label(paths[i % len(paths)].stem, names) for i in range(count)]
        return {front_end: np.stack(drawn), LABELS: np.array(labels)}

    return draw


def word_label(word: str, names: Sequence[str]) -> int:
    """Return the class of a clip with this name."""
    if "silence" in word or word == "noise":
        return names.index("_silence_")
    return names.index(word if word in names else "_unknown_")


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
        drawn = np.empty((count, length), np.float32)
        for sample in drawn:
            start = generator.integers(0, len(sound) - length)
            piece = sound[start : start + length]
            sample[:] = piece * (generator.uniform(0.3, 1.0) / max(np.abs(piece).max(), 1e-3))
        return {name: drawn}

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
    with wave.open(str(path)) as reader:
        sound = np.frombuffer(reader.readframes(reader.getnframes()), "<i2") / 32768
    return np.pad(sound[:16000], (0, max(0, 16000 - len(sound))))


def as_wav(sound: Array) -> bytes:
    """Encode audio as a WAV file at 16 kHz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16000)
        writer.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()

"""Compare the accuracy of a trained LSTM in LiteRT and on microcontrollers with TensorFlow.

    python benchmarks/recurrent_accuracy.py [--sequences AEON.whl]

Requires tensorflow-cpu, ai-edge-litert, tflite-micro, and scikit-learn. Trains an LSTM on the
handwritten digits of scikit-learn, each as 8 rows of 8 pixels. With the wheel of aeon 1.6
(``pip download --no-deps aeon==1.6.0``), also on two data sets of recorded sequences: activities of
people with a smart watch (BasicMotions, windows of 5 seconds), and speakers (JapaneseVowels).

Prints a line for each mode: the accuracy in LiteRT and the share of TensorFlow's classes; the same
for tflite-micro with the same file, with the share of LiteRT's classes; the size; and milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from recurrent import Run, built, in_turn
from recurrent_networks import Array, model_case

UNITS = 32
MODES = ("none", "float16", "weights", "int8")
# Steps of a window, and from one window to the next.
WINDOW, SHIFT = 50, 25


@dataclass(frozen=True)
class Task:
    """Sequences ``[samples, steps, features]`` with labels, to train with and to test with."""

    train: Array
    labels: Array
    test: Array
    expected: Array


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sequences", type=Path, help="wheel of aeon with data sets")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tasks = {"digits": digits()}
    if arguments.sequences is not None:
        tasks["activities"] = recorded(arguments.sequences, "BasicMotions/BasicMotions")
        tasks["speakers"] = recorded(arguments.sequences, "JapaneseVowels/JapaneseVowels_eq")
    print("| network | mode | LiteRT | as TensorFlow | tflite-micro | as LiteRT | size | ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, task in tasks.items():
        measure(tf, name, task)
    return 0


def digits() -> Task:
    """Return the digits of scikit-learn."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    images = (source.images / 16).astype(np.float32)
    train, test, labels, expected = train_test_split(
        images, source.target, test_size=450, random_state=0
    )
    return Task(train, labels, test, expected)


def recorded(wheel: Path, name: str) -> Task:
    """Return a data set of a wheel, scaled by the mean and deviation of the training sequences."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [archive.read(f"aeon/datasets/data/{name}_{p}.ts") for p in ("TRAIN", "TEST")]
    (train, names), (test, expected) = (parsed(text.decode()) for text in texts)
    mean, deviation = train.mean(axis=(0, 1)), train.std(axis=(0, 1))
    classes = sorted(set(names))
    parts = []
    for values, labels in ((train, names), (test, expected)):
        starts = range(0, max(values.shape[1] - WINDOW, 0) + 1, SHIFT)
        scaled = ((values - mean) / deviation).astype(np.float32)
        parts.append(np.concatenate([scaled[:, start : start + WINDOW] for start in starts]))
        parts.append(np.array([classes.index(label) for label in labels] * len(starts)))
    return Task(*parts)


def parsed(text: str) -> tuple[Array, list[str]]:
    """Return the sequences of a .ts file, ``[samples, steps, features]``, and their labels."""
    lines = [line for line in text.splitlines() if line and line[0] not in "#@"]
    rows = [line.split(":") for line in lines]
    values = [[[float(x) for x in part.split(",")] for part in row[:-1]] for row in rows]
    return np.array(values, np.float32).transpose(0, 2, 1), [row[-1] for row in rows]


def measure(tf: Any, name: str, task: Task) -> None:  # noqa: ANN401 - TensorFlow has no types
    """Train a network, and print a line for each mode."""
    tf.keras.utils.set_random_seed(0)
    layers, count = tf.keras.layers, int(task.labels.max()) + 1
    shape = task.train.shape[1:]
    model = tf.keras.Sequential(
        [tf.keras.Input(shape), layers.LSTM(UNITS), layers.Dense(count, activation="softmax")]
    )
    model.compile(tf.keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    model.fit(task.train, task.labels, batch_size=32, epochs=60, verbose=0)
    classes = model.predict(task.test, verbose=0).argmax(1)
    case = model_case(tf, name, model, task.test[:1])
    with tempfile.TemporaryDirectory() as folder:
        files = {mode: built(case, task.train[:128], mode, Path(folder)) for mode in MODES}
    runs = [Run(content, {"x": task.test[:1]}) for content in files.values()]
    times = in_turn([run.invoke for run in runs])
    exact = share(classes, task.expected)
    print(f"| {name}, {len(task.test)} sequences | TensorFlow | {exact} | | | | | |")
    for (mode, content), run, seconds in zip(files.items(), runs, times, strict=True):
        found = np.array([predicted(run, row) for row in task.test])
        micro = on_microcontrollers(content, task.test)
        cells = "- | -"
        if micro is not None:
            cells = f"{share(micro, task.expected)} | {share(micro, found)}"
        print(
            f"| {name} | {mode} | {share(found, task.expected)} | {share(found, classes)} "
            f"| {cells} | {len(content) / 1e3:.1f} kB | {seconds * 1e3:.3f} |",
            flush=True,
        )


def share(classes: Array, expected: Array) -> str:
    """Format the share of equal classes."""
    return f"{np.mean(classes == expected):.1%}"


def predicted(run: Run, row: Array) -> int:
    """Return the class of a sequence."""
    run.feeds = {"x": row[np.newaxis]}
    (scores,) = run.outputs().values()
    return int(scores.argmax())


def on_microcontrollers(content: bytes, test: Array) -> Array | None:
    """Return the classes in tflite-micro, or None if it rejects the file."""
    from tflite_micro import runtime

    try:
        interpreter = runtime.Interpreter.from_bytes(content, arena_size=1 << 18)
    except RuntimeError:
        return None
    classes = []
    for row in test:
        interpreter.set_input(row[np.newaxis], 0)
        interpreter.invoke()
        classes.append(int(interpreter.get_output(0).argmax()))
    return np.array(classes)


if __name__ == "__main__":
    sys.exit(main())

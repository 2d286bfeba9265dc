"""Compare our .tflite files and conversions with those of TensorFlow's converter.

    python benchmarks/tflite.py GRAPH INPUT OUTPUT SHAPE ...

Requires tensorflow-cpu and ai-edge-litert. Each frozen graph has four arguments, such as
``mobilenet.pb input predictions 1,224,224,3``. Conversions are measured in separate processes; both
files run alternately in this process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.files import read_graph
from mobileprep.litert.convert import converted
from mobileprep.litert.prepare import CutInput

# Enough rounds that other processes do not disturb the fastest run.
ROUNDS = 60
SKIPPED = 3


def ours(path: Path, fed: str, fetched: str, shape: tuple[int, ...]) -> bytes:
    record = converted(read_graph(path), [CutInput(fed, shape)], [fetched])
    return bytes(model_bytes(record))


def theirs(path: Path, fed: str, fetched: str, shape: tuple[int, ...]) -> bytes:
    import tensorflow as tf

    converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
        str(path), [fed], [fetched], {fed: list(shape)}
    )
    made: bytes = converter.convert()
    return made


def alone(who: str, words: list[str]) -> tuple[bytes, float, float]:
    """Convert in a new process; return the model, the seconds, and the peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "made.tflite"
        command = [sys.executable, __file__, "--alone", who, str(target), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, done.stdout.split()[-2:])
        return target.read_bytes(), seconds, megabytes


def convert(who: str, target: str, words: list[str]) -> None:
    """Convert and print the seconds and the peak MB; imports count only for memory."""
    ((path, fed, fetched, shape),) = cases(words)
    if who == "theirs":
        __import__("tensorflow")
    began = time.perf_counter()
    made = (ours if who == "ours" else theirs)(path, fed, fetched, shape)
    seconds = time.perf_counter() - began
    Path(target).write_bytes(made)
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def turns(files: list[bytes], shape: tuple[int, ...]) -> list[float]:
    """Run files alternately and return the milliseconds of the fastest run of each."""
    image = np.random.default_rng(0).random(shape, np.float32)
    runs = [prepared(content, image) for content in files]
    found: list[list[float]] = [[] for _ in files]
    for number in range(ROUNDS + SKIPPED):
        for times, run in zip(found, runs, strict=True):
            began = time.perf_counter()
            run()
            if number >= SKIPPED:
                times.append(1000 * (time.perf_counter() - began))
    return [min(times) for times in found]


def prepared(content: bytes, image: np.ndarray) -> Callable[[], None]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    return interpreter.invoke  # type: ignore[no-any-return]


def cases(words: list[str]) -> Iterator[tuple[Path, str, str, tuple[int, ...]]]:
    for i in range(0, len(words), 4):
        path, fed, fetched, sizes = words[i : i + 4]
        yield Path(path), fed, fetched, tuple(int(size) for size in sizes.split(","))


def main(words: list[str]) -> int:
    if words[:1] == ["--alone"]:
        convert(words[1], words[2], words[3:])
        return 0
    if not words or len(words) % 4:
        print(__doc__)
        return 2
    for at, case in zip(range(0, len(words), 4), cases(words), strict=True):
        mine, seconds, memory = alone("ours", words[at : at + 4])
        known, known_seconds, known_memory = alone("theirs", words[at : at + 4])
        fast, known_fast = turns([mine, known], case[3])
        print(
            f"{case[0].stem}: bytes {len(mine):,} / {len(known):,} = {len(mine) / len(known):.3f}; "
            f"one run {fast:.2f} / {known_fast:.2f} ms = {fast / known_fast:.2f}; "
            f"conversion {seconds:.2f} / {known_seconds:.2f} s = {seconds / known_seconds:.2f}, "
            f"{memory:.0f} / {known_memory:.0f} MB = {memory / known_memory:.2f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

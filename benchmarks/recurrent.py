"""Compare recurrent networks in LiteRT with TensorFlow, loops with fused operators, and converters.

    python benchmarks/recurrent.py [--models FOLDER] [--only TEXT] [--sizes]

Requires tensorflow-cpu and ai-edge-litert. Without ``--sizes``, prints a line for
each network: the largest difference of an output from TensorFlow as a share of its peak; whether
loops became operators for whole sequences; milliseconds of a run; the time of the same conversion
with loops over that of the file, with XNNPACK and without; the time of TensorFlow's own file over
that of the file; and the size, with its ratio to that of TensorFlow's file. Files run in turn in
one thread, and the fastest run counts. ``--models`` adds the recurrent networks of
``quantization.py``; missing ones are named.

``--sizes`` prints the same for an LSTM with several numbers of units and steps, in float, with
8-bit weights, and in int8.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import yaml
from recurrent_networks import (
    REAL,
    Array,
    Case,
    cell_cases,
    keras_case,
    keras_layers,
    real_case,
)

import mobileprep
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.litert import prepare
from mobileprep.litert.convert import Mode, converted
from mobileprep.litert.prepare import CutInput

# Enough rounds that other processes do not disturb the fastest run.
ROUNDS = 40
# Shortest time of a round, in seconds.
LEAST = 0.002
# Units, steps, and sequences.
SIZES = (
    *((units, steps, 1) for units in (16, 64, 128, 256) for steps in (10, 49, 200)),
    *((units, 49, 8) for units in (16, 64, 128, 256)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, help="directory of the networks of quantization.py")
    parser.add_argument("--only", default="", help="networks whose name contains this text")
    parser.add_argument("--sizes", action="store_true", help="measure an LSTM of several sizes")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    if arguments.sizes:
        print_sizes(tf)
    else:
        print_networks(cases(tf, arguments.models, arguments.only.lower()))
    return 0


def cases(tf: Any, models: Path | None, text: str) -> Iterator[Case]:  # noqa: ANN401
    """Yield the networks whose name contains a text."""
    for name, layers in keras_layers(tf).items():
        if text in name.lower():
            yield keras_case(tf, name, layers)
    yield from (case for case in cell_cases(tf) if text in case.name.lower())
    for name in REAL if models is not None else ():
        if text not in name.lower():
            continue
        try:
            yield real_case(tf, name, models)
        except (FileNotFoundError, mobileprep.MobileprepError) as error:
            print(f"{name}: skipped, {error}", file=sys.stderr)


def print_networks(networks: Iterator[Case]) -> None:
    print("| network | difference | in the file | ms | loop | no XNNPACK | TensorFlow | size |")
    print("|---|---|---|---|---|---|---|---|")
    for case in networks:
        content = converted_case(case)
        with unfused():
            loop = converted_case(case)
        theirs = theirs_of(case)
        run = Run(content, case.feeds)
        gap = difference(case, run.outputs())
        runs = [run, Run(loop, case.feeds)]
        runs += [Run(file, case.feeds, xnnpack=False) for file in (content, loop)]
        runs += [] if theirs is None else [Run(theirs, case.feeds)]
        ours, looped, plain, plain_loop, *rest = in_turn([r.invoke for r in runs])
        fused = sum("SEQUENCE" in name for name in run.operators)
        form = f"{fused} fused" if fused else "loop" if "WHILE" in run.operators else "unrolled"
        if fused and "WHILE" in run.operators:
            form += ", loop"
        print(
            f"| {case.name} | {gap:.0e} | {form} | {ours * 1e3:.2f} "
            f"| {f'{looped / ours:.1f}x | {plain_loop / plain:.1f}x' if fused else '|'} "
            f"| {f'{rest[0] / ours:.1f}x' if rest else '-'} "
            f"| {len(content) / 1e3:.0f} kB"
            f"{'' if theirs is None else f', {len(content) / len(theirs):.2f}'} |",
            flush=True,
        )


def converted_case(case: Case, mode: Mode = "float") -> bytes:
    """Return our file of a network."""
    inputs = [CutInput(name, value.shape) for name, value in case.feeds.items()]
    return bytes(model_bytes(converted(case.graph, inputs, case.outputs, mode=mode)))


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Convert loops as loops."""

    def unchanged(graph: Any, outputs: Any, *_: Any, **__: Any) -> tuple[Any, Any]:  # noqa: ANN401
        return graph, tuple(outputs)

    names = ("with_whole_sequences", "without_unrolled_cells")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(prepare, name, unchanged))
        yield


def theirs_of(case: Case) -> bytes | None:
    """Return TensorFlow's file of a network, or None if its converter or LiteRT rejects it."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            content = case.convert()
            Run(content, case.feeds).invoke()
    except Exception:  # noqa: BLE001 - any failure of another program
        return None
    return content


class Run:
    """A file in LiteRT's interpreter, with its inputs."""

    def __init__(self, content: bytes, feeds: Mapping[str, Array], *, xnnpack: bool = True) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = (
            OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        self.interpreter = Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=resolver
        )
        self.feeds = feeds
        self.interpreter.allocate_tensors()
        for detail in self.interpreter.get_input_details():
            name = detail["name"].removeprefix("serving_default_").partition(":")[0]
            value = feeds.get(name, next(iter(feeds.values())))
            self.interpreter.set_tensor(detail["index"], value)
        self.invoke: Callable[[], None] = self.interpreter.invoke
        self.invoke()
        details = self.interpreter._get_ops_details()
        self.operators = [detail["op_name"] for detail in details]

    def outputs(self) -> dict[str, Array]:
        """Return the outputs by name."""
        return dict(self.interpreter.get_signature_runner()(**self.feeds))


def in_turn(runs: Sequence[Callable[[], None]]) -> list[float]:
    """Run functions in turn, and return the seconds of the fastest run of each."""
    counts = [max(1, round(LEAST / timed(run, 1))) for run in runs]
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for place, (run, count) in enumerate(zip(runs, counts, strict=True)):
            best[place] = min(best[place], timed(run, count))
    return best


def timed(run: Callable[[], None], count: int) -> float:
    """Return the mean seconds of some runs."""
    began = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - began) / count


def difference(case: Case, outputs: Mapping[str, Array]) -> float:
    """Return the largest difference from TensorFlow's outputs as a share of the peak."""
    shares = []
    for name, expected in zip(case.outputs, case.expected, strict=True):
        found = outputs.get(name, outputs.get(name.partition(":")[0]))
        if found is None or found.shape != expected.shape:
            return float("inf")
        peak = max(float(np.abs(expected).max()), 1e-30)
        shares.append(float(np.abs(found.astype(np.float64) - expected).max()) / peak)
    return max(shares)


def print_sizes(tf: Any) -> None:  # noqa: ANN401
    """Print the times of an LSTM, fused and as a loop, in float and with 8-bit weights."""
    heads = (
        "float, ms",
        "loop",
        "no XNNPACK",
        "8-bit weights, ms",
        "loop",
        "no XNNPACK",
        "int8, ms",
    )
    print(f"| units | steps | batch | {' | '.join(heads)} | TensorFlow |")
    print(f"|---|---|---|{'---|' * len(heads)}---|")
    for units, steps, batch in SIZES:
        layers = [tf.keras.layers.LSTM(units)]
        case = keras_case(tf, "LSTM", layers, (steps, 40), batch)
        theirs = theirs_of(case)
        modes: tuple[Mode, ...] = ("float", "weights")
        files = [converted_case(case, mode) for mode in modes]
        with unfused():
            files += [converted_case(case, mode) for mode in modes]
        samples = np.random.default_rng(1).normal(size=(64, steps, 40)).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            int8 = built(case, samples, "int8", Path(folder))
        runs = [Run(file, case.feeds, xnnpack=x) for x in (True, False) for file in files]
        runs += [Run(file, case.feeds) for file in (int8, theirs) if file is not None]
        times = in_turn([run.invoke for run in runs])
        cells = []
        for place in (0, 1):
            fused, loop, plain, plain_loop = times[place : len(files) * 2 : 2]
            cells += [
                f"{fused * 1e3:.3f}",
                f"{loop / fused:.1f}x",
                f"{plain_loop / plain:.1f}x",
            ]
        cells.append(f"{times[len(files) * 2] * 1e3:.3f}")
        cells.append(f"{times[-1] / times[0]:.1f}x" if theirs else "-")
        print(f"| {units} | {steps} | {batch} | {' | '.join(cells)} |", flush=True)


def built(case: Case, samples: Array, mode: str, folder: Path) -> bytes:
    """Return the file that a build writes for a network with one input."""
    ((name, value),) = case.feeds.items()
    mobileprep.save_graph(case.graph, folder / "graph.pb")
    np.savez(folder / "calibration.npz", **{name: samples})
    target = {"artifact": "tflite", "quantize": mode, "quantization_report": False}
    recipe = {
        "version": 1,
        "name": "network",
        "source": {"frozen": "graph.pb"},
        "inputs": {name: {"shape": list(value.shape)}},
        "outputs": list(case.outputs),
        "calibration": {"data": "calibration.npz"},
        "targets": {"phone": target},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    done = mobileprep.build(folder / "recipe.yaml", folder / "out").targets[0]
    return Path(done.folder / done.report.model.file).read_bytes()


if __name__ == "__main__":
    sys.exit(main())

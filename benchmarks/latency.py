"""Measure the error of latency estimates from fitted device profiles.

    python benchmarks/latency.py [--runtime tensorflow|litert] [FOLDER]

Times ten networks of keras.applications with random weights, one thread, in TensorFlow's session
and in LiteRT with XNNPACK, with the times of ops from their own profilers. A profile is fitted to
one half of the networks and estimates the other, and the other way around. Times are the shortest
processor time of 30 to 200 runs, and of 25 runs for each op, because other programs may run on the
machine. FOLDER keeps models and measurements; by default, they are temporary. Needs tensorflow-cpu
and ai-edge-litert.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mobileprep import load_graph, save_graph, to_tflite, transform  # noqa: E402
from mobileprep.building.device_measurements import measured_ops  # noqa: E402
from mobileprep.freezing.loading import ModelOptions, load_model  # noqa: E402
from mobileprep.inspection.costs import counted_run  # noqa: E402
from mobileprep.inspection.device_fit import fit_device, relative_error  # noqa: E402
from mobileprep.inspection.device_logs import OpTime, parse_log  # noqa: E402
from mobileprep.targets.measurements import (  # noqa: E402
    Measurement,
    measurement_bytes,
    read_measurement_file,
)
from mobileprep.targets.op_classes import class_costs  # noqa: E402
from tests.reference.networks import ALL_NETWORKS, cached_network  # noqa: E402
from tests.reference.profiles import LiteRtRunner, TensorFlowRunner  # noqa: E402

ALL_NETWORKS.update(
    xception="Xception", nasnetmobile="NASNetMobile", mobilenetv3large="MobileNetV3Large"
)
NAMES = sorted(ALL_NETWORKS)
RUNTIMES = ("tensorflow", "litert")
CHAIN = ["strip_unused_nodes", {"remove_nodes": {"op": ["Identity"]}}, "fold_constants"]
SECONDS, FEWEST, MOST, PROFILED = 10.0, 30, 200, 25


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--runtime", choices=RUNTIMES, action="append")
    parser.add_argument("--measure", metavar="NETWORK", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if args.measure:
            measure(folder, args.runtime[0], args.measure)
        else:
            for runtime in args.runtime or RUNTIMES:
                report(runtime, {name: measured(folder, runtime, name) for name in NAMES})


def measured(folder: Path, runtime: str, name: str) -> Measurement:
    """A measurement, made in a process of its own."""
    path = folder / f"{runtime}-{name}.json"
    if not path.exists():
        command = [sys.executable, __file__, "--runtime", runtime, "--measure", name, str(folder)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return read_measurement_file(path)


def measure(folder: Path, runtime: str, name: str) -> None:
    """Time a network and write its measurement."""
    network = cached_network(name)
    path = folder / f"{name}.pb"
    chain = [*CHAIN, "fold_batch_norms"]
    save_graph(
        transform(load_graph(network.path), chain, [network.input], [network.output]).graph, path
    )
    shapes = {network.input: network.shape}
    values = np.random.default_rng(1).normal(size=network.shape).astype(np.float32)
    runner: Any = None
    if runtime == "litert":
        path = folder / f"{name}.tflite"
        graph = load_graph(folder / f"{name}.pb")
        to_tflite(graph, path, inputs=[network.input], outputs=[network.output], shapes=shapes)
        runner = LiteRtRunner(path)
    else:
        runner = TensorFlowRunner(path, {network.input: values}, network.output)
    for _ in range(5):
        runner.run()
    times: list[float] = []
    end = time.monotonic() + SECONDS
    while len(times) < FEWEST or (len(times) < MOST and time.monotonic() < end):
        began = time.process_time()
        runner.run()
        times.append((time.process_time() - began) * 1e3)
    profiles = [parse_log(runner.table(1), name).ops for _ in range(PROFILED)]
    ops = [
        OpTime(of[0].op, of[0].name, min(op.ms for op in of)) for of in zip(*profiles, strict=True)
    ]
    model = load_model(path, ModelOptions(), print)
    feeds = {network.input: network.shape} if runtime == "tensorflow" else {}
    outputs = model.outputs or [network.output]
    run = counted_run(model.graph, outputs, feeds)
    measurement = Measurement(
        *(name, "this machine", "", "", "", runtime, "0" * 64, min(times), 1),
        runs=len(times),
        costs=class_costs(run.costs.nodes),
        ops=measured_ops(ops, run.graph, run.costs.nodes),
    )
    (folder / f"{runtime}-{name}.json").write_bytes(measurement_bytes(measurement))
    os._exit(0)  # LiteRT's threads may outlive its handles


def report(runtime: str, measurements: dict[str, Measurement]) -> None:
    """Print the estimates of each half by the profile of the other."""
    print(f"{runtime}: milliseconds of a run")
    errors = []
    halves = (NAMES[::2], NAMES[1::2])
    for half, other in (halves, halves[::-1]):
        device = fit_device([measurements[name] for name in other], runtime)
        for name in half:
            one = measurements[name]
            estimate = device.seconds(one.costs) * 1e3
            errors.append(relative_error(device, one))
            print(f"  {name:18}{one.mean_ms:9.2f}{estimate:9.2f} estimated {errors[-1]:8.1%}")
        print(f"  median of these {statistics.median(errors[-len(half) :]):.1%}")
    print(f"  median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")


if __name__ == "__main__":
    main()

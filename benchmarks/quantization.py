"""Compare the accuracy and size of quantized networks with their float versions.

    python benchmarks/quantization.py --models FOLDER [--only TEXT] [--samples N] [--markdown FILE]

FOLDER contains the networks that ``quantization_networks.py`` lists. The benchmark builds each
network with a recipe for each mode and runs it on samples that neither calibration nor the layer
search uses. The table shows, relative to the float network: the share of samples with the same
class (*agreement*), the largest difference of any output as a share of its peak (*off by*), and the
size of the model file. The last mode is the same network in LiteRT: TensorFlow's converter with
ai-edge-quantizer's static int8 (``pip install tensorflow-cpu ai-edge-quantizer ai-edge-litert``),
with activations per tensor and weights per channel. Image networks require Pillow. There are no
limits.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from quantization_networks import NETWORKS, SETS, Array, Network, Samples

import mobileprep
from mobileprep.ops.numerics.differences import differences

Quantize = str | Mapping[str, Any]
Run = Callable[[Mapping[str, Array]], Sequence[Array]]

# The key `quantize` of the target, by mode.
OBSERVED = {"mode": "nodes", "ranges": "observed"}
# Without correct_bias, because quantize_nodes rounds weights to keep the sums of channels.
REPAIRS = ["equalize_ranges", {"absorb_high_biases": {"data": "calibration.npz"}}]
RECONSTRUCT = ["equalize_ranges", "reconstruct_weights"]
MODES: Mapping[str, Quantize] = {
    "float": "none",
    "8-bit weights": "weights",
    "8-bit weights, reconstructed": {"mode": "weights", "repair": RECONSTRUCT},
    "nodes, dynamic": {"mode": "nodes", "ranges": "dynamic"},
    "nodes, observed": OBSERVED,
    "nodes, observed, repaired": {**OBSERVED, "repair": REPAIRS},
    "nodes, observed, reconstructed": {**OBSERVED, "repair": RECONSTRUCT},
    "auto": "auto",
}
TRAINED = "nodes, trained"
LITERT = "LiteRT static int8"
CHAIN = ["strip_unused_nodes", "fold_constants", "fuse_batch_norms"]
# Limits of ``auto`` on the samples of its search, for classes and for other outputs. They are half
# of the acceptable loss (5 % of the classes, 10 % of the peak): other samples lose more.
AGREEMENT, SHARE = 0.975, 0.05


@dataclass(frozen=True)
class Row:
    """One result of the table; numbers are NaN if a mode does not support the network.

    Args:
        network: name of the network.
        mode: quantization mode.
        bytes: size of the model file.
        agreement: share of samples with the same class; NaN for networks without classes.
        share: largest difference as a share of the output's peak.
        seconds: duration of the build.
        unlike: share of samples whose outputs have other shapes, such as numbers of detections.
        reason: why there are no numbers; empty if there are.
    """

    network: str
    mode: str
    bytes: int = 0
    agreement: float = math.nan
    share: float = math.nan
    seconds: float = 0.0
    unlike: float = 0.0
    reason: str = ""


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported
    arguments = parse_arguments()
    rows = []
    for network in NETWORKS:
        if arguments.only.lower() in network.name.lower():
            for row in measured(network, arguments.models, arguments.samples, arguments.method):
                print(as_text(row), flush=True)
                rows.append(row)
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(rows), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="the folder of networks")
    parser.add_argument("--only", default="", help="networks whose name holds this text")
    parser.add_argument("--samples", type=int, default=64, help="in each of the three sets")
    parser.add_argument("--method", default="auto", help="the calibration method")
    parser.add_argument("--markdown", type=Path, help="write the table there, in Markdown")
    return parser.parse_args()


def measured(network: Network, models: Path, count: int, method: str) -> Iterator[Row]:
    """Measure a network in all modes, and yield each row as it is measured."""
    if not (models / network.file).exists():
        yield Row(network.name, "float", reason=f"{network.file} is not there")
        return
    sets = {name: network.draw(models, count, seed) for seed, name in enumerate(SETS)}
    feeds = [feed_of(network, sets["test"], i) for i in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        types = {name: array.dtype for name, array in sets["test"].items()}
        source = write_source(network, models, folder, types)
        for kind, samples in sets.items():
            np.savez(folder / f"{kind}.npz", **without_single_axis(network, samples))
        expected = [outputs_of(source, network)(feed) for feed in feeds]
        modes = dict(MODES)
        if network.fake_quantized:
            modes[TRAINED] = {"mode": "nodes", "ranges": "trained"}
        for mode, quantize in modes.items():
            recipe = recipe_of(network, quantize)
            if "calibration" in recipe:
                recipe["calibration"]["method"] = method
            yield in_mode(network, mode, recipe, folder, feeds, expected, outputs_of)
        calibration = [feed_of(network, sets["calibration"], i) for i in range(count)]
        yield in_litert(network, source, calibration, feeds, expected)


def feed_of(network: Network, samples: Samples, index: int) -> dict[str, Array]:
    """Return one sample, reshaped to the inputs of the network."""
    return {name: samples[name][index].reshape(s) for name, s in network.shapes.items()}


def without_single_axis(network: Network, samples: Samples) -> Samples:
    """Return samples for a recipe, without a leading input axis of size 1."""
    shapes = {name: s[1:] if s[:1] == (1,) else s for name, s in network.shapes.items()}
    return {name: array.reshape(-1, *shapes[name]) for name, array in samples.items()}


def write_source(
    network: Network, models: Path, folder: Path, types: Mapping[str, np.dtype[Any]]
) -> Path:
    """Write the part between inputs and outputs as a frozen graph, the source of all modes."""
    path = folder / "source.pb"
    file = models / network.file
    if network.checkpoint:
        checkpoint = models / network.checkpoint
        graph = mobileprep.freeze(file, network.outputs, checkpoint=checkpoint).graph
    elif file.suffix == ".pb":
        graph = mobileprep.load_graph(file)
    else:
        graph = mobileprep.freeze(file, network.outputs).graph
    names = {np.dtype(np.float32): "float", np.dtype(bool): "bool"}
    kept = [
        f'name="{name}", type_for_name={names[types[name]]}, '
        f'shape_for_name="{",".join(map(str, shape))}"'
        for name, shape in network.shapes.items()
    ]
    steps = f"strip_unused_nodes({', '.join(kept)}) remove_dropout"
    cut = mobileprep.transform(graph, steps, list(network.shapes), list(network.outputs))
    mobileprep.save_graph(cut.graph, path)
    return path


def outputs_of(model: Path, network: Network) -> Run:
    """Return a function that computes the network's outputs for a feed."""
    graph = mobileprep.load_graph(model)
    return lambda feed: list(mobileprep.run(graph, feed, network.outputs).values())


def in_mode(
    network: Network,
    mode: str,
    recipe_data: Mapping[str, Any],
    folder: Path,
    feeds: Sequence[Mapping[str, Array]],
    expected: Sequence[Sequence[Array]],
    opened: Callable[[Path, Network], Run],
) -> Row:
    """Build a recipe and measure its model; ``opened`` returns the function that runs it."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(dict(recipe_data), sort_keys=False))
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mobileprep.MobileprepWarning)
            built = mobileprep.build(recipe, folder / "out").targets[0]
        seconds = time.perf_counter() - started
        model = built.folder / built.report.model.file
        run = opened(model, network)
        found = [run(feed) for feed in feeds]
    except mobileprep.MobileprepError as error:
        first = str(error).replace(f"{folder}/", "").partition("\n")[0]
        return Row(network.name, mode, reason=first[:160])
    return compared(network, mode, model.stat().st_size, seconds, expected, found)


def recipe_of(network: Network, quantize: Quantize) -> dict[str, Any]:
    """Return a recipe as data."""
    recipe: dict[str, Any] = {
        "version": 1,
        "name": "network",
        "source": {"frozen": "source.pb"},
        "inputs": {name: {"shape": list(s)} for name, s in network.shapes.items()},
        "outputs": list(network.outputs),
        "transforms": CHAIN,
        # This benchmark measures the same, on other samples.
        "targets": {"phone": {"quantize": quantize, "quantization_report": False}},
    }
    uses_data = isinstance(quantize, Mapping) and (
        "repair" in quantize or quantize.get("ranges") == "observed"
    )
    if quantize == "auto" or uses_data:
        recipe["calibration"] = {"data": "calibration.npz"}
    if quantize == "auto":
        # Without an output, a metric applies to all outputs.
        limit = (
            {"metric": "top1_agreement", "output": network.outputs[0], "at_least": AGREEMENT}
            if network.classes
            else {"metric": "peak_agreement", "at_least": 1 - SHARE}
        )
        recipe["validation"] = {"data": "search.npz", **limit}
    return recipe


def in_litert(
    network: Network,
    source: Path,
    calibration: Sequence[Mapping[str, Array]],
    feeds: Sequence[Mapping[str, Array]],
    expected: Sequence[Sequence[Array]],
) -> Row:
    """Measure the network in LiteRT."""
    try:
        from litert import Int8, RefusedError
    except ImportError as error:
        return Row(network.name, LITERT, reason=f"not installed: {error.name}")
    try:
        started = time.perf_counter()
        model = Int8(source, network.shapes, network.outputs, calibration)
        seconds = time.perf_counter() - started
        found = [model.run(feed) for feed in feeds]
    except RefusedError as error:
        return Row(network.name, LITERT, reason=str(error))
    return compared(network, LITERT, model.bytes, seconds, expected, found)


def compared(
    network: Network,
    mode: str,
    size: int,
    seconds: float,
    expected: Sequence[Sequence[Array]],
    found: Sequence[Sequence[Array]],
) -> Row:
    """Compare outputs with those of the float network, sample by sample."""
    pairs = [
        (x, y)
        for x, y in zip(expected, found, strict=True)
        if all(a.shape == b.shape for a, b in zip(x, y, strict=True))
    ]
    unlike = 1 - len(pairs) / len(expected)
    gaps = differences(network.outputs, [x for x, _ in pairs], [y for _, y in pairs])
    share = max((gap.share for gap in gaps), default=math.nan)
    agreement = math.nan
    if network.classes:
        alike = [np.argmax(x[0], axis=-1) == np.argmax(y[0], axis=-1) for x, y in pairs]
        agreement = float(np.mean(alike))
    return Row(network.name, mode, size, agreement, share, seconds, unlike)


def as_text(row: Row) -> str:
    """Format a row for a terminal."""
    start = f"{row.network:24} {row.mode:26}"
    size = f"{row.bytes / 1000:9.1f} kB " if row.bytes else 13 * " "
    if row.reason:
        return f"{start}{size}{row.reason}"
    agreement = "       " if math.isnan(row.agreement) else f"{row.agreement:7.3f}"
    unlike = f"  {row.unlike:.0%} with other shapes" if row.unlike else ""
    return f"{start}{size}{agreement} {row.share:9.2g} {row.seconds:7.1f} s{unlike}"


def as_markdown(rows: Sequence[Row]) -> str:
    """Format a table of networks and modes, then a list of the rows without numbers.

    A cell contains the agreement, the largest difference as a share of the peak, and the size.
    """
    modes = list(dict.fromkeys(row.mode for row in rows))
    by_place = {(row.network, row.mode): row for row in rows}
    lines = [f"| network | {' | '.join(modes)} |", f"|{'---|' * (len(modes) + 1)}"]
    for network in dict.fromkeys(row.network for row in rows):
        found = [by_place.get((network, mode)) for mode in modes]
        cells = ["" if row is None else as_cell(row) for row in found]
        lines.append(f"| {network} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"- {row.network}, {row.mode}: {row.reason}" for row in rows if row.reason]
    return "\n".join(lines) + "\n"


def as_cell(row: Row) -> str:
    """Format the available numbers of a row."""
    if row.reason:
        return "-"
    numbers = [] if math.isnan(row.agreement) else [f"{row.agreement:.3f}"]
    numbers += [f"{row.share:.2g}", f"{row.bytes / 1000:.0f} kB"]
    if row.unlike:
        numbers.append(f"{row.unlike:.0%} with other numbers of detections")
    return ", ".join(numbers)


if __name__ == "__main__":
    sys.exit(main())

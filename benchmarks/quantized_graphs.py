"""Compare the accuracy and size of quantized TensorFlow graphs with their float versions.

    python benchmarks/quantized_graphs.py --models FOLDER [--only TEXT] [--samples N]
        [--markdown FILE]

The benchmark builds each network of ``quantization_networks.py`` with a recipe for each mode and
runs it on samples that neither calibration nor the layer search uses. README.md says where the
networks come from. The table shows, compared with the float network: the share of samples with the
same class for classifiers, the largest difference of any output as a share of its peak, and the
size of the model file. Requires Pillow, scikit-image, and scikit-learn.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from quantization_cases import (
    Comparison,
    Outputs,
    built,
    compared,
    feeds_of,
    networks,
    recipe_of,
    search_limit,
    table,
    without_single_axis,
    write_source,
)
from quantization_networks import Network
from quantization_samples import SETS, Array

import mobileprep

Quantize = str | Mapping[str, Any]

# The key `quantize` of the target, by mode.
OBSERVED = {"mode": "nodes", "ranges": "observed"}
# Without correct_bias, because quantize_nodes rounds weights to keep the sums of channels.
REPAIRS = ["equalize_ranges", {"absorb_high_biases": {"data": "calibration.npz"}}]
MODES: Mapping[str, Quantize] = {
    "float": "none",
    "8-bit weights": "weights",
    "nodes, dynamic": {"mode": "nodes", "ranges": "dynamic"},
    "nodes, observed": OBSERVED,
    "nodes, observed, repaired": {**OBSERVED, "repair": REPAIRS},
    "auto": "auto",
}
TRAINED = "nodes, trained"
# Limits of ``auto`` on the samples of its search, for classes and for other outputs. They are half
# of the acceptable loss (5 % of the classes, 10 % of the peak): other samples lose more.
AGREEMENT, SHARE = 0.975, 0.05


class Row(Struct, frozen=True):
    """One result of the table.

    Args:
        network: name of the network.
        mode: quantization mode.
        bytes: size of the model file.
        seconds: duration of the build.
        gap: differences from the float network; None if a mode does not support it.
        reason: why not.
    """

    network: str
    mode: str
    bytes: int = 0
    seconds: float = 0.0
    gap: Comparison | None = None
    reason: str = ""


def main() -> None:
    arguments = parse_arguments()
    rows = []
    for network in networks(arguments.models, arguments.only):
        for row in measured(network, arguments.models, arguments.samples):
            print(as_text(row), flush=True)
            rows.append(row)
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(rows), encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="directory of networks")
    parser.add_argument("--only", default="", help="networks whose name contains this text")
    parser.add_argument("--samples", type=int, default=64, help="in each of the three sets")
    parser.add_argument("--markdown", type=Path, help="write the table there, in Markdown")
    return parser.parse_args()


def measured(network: Network, models: Path, count: int) -> Iterator[Row]:
    """Measure a network in all modes, and yield each row as it is measured."""
    sets = {name: network.draw(models, count, seed) for seed, name in enumerate(SETS)}
    feeds = feeds_of(network, sets["test"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_source(network, models, folder, feeds[0])
        for kind, samples in sets.items():
            np.savez(folder / f"{kind}.npz", **without_single_axis(network, samples))
        expected = [outputs_of(source, network)(feed) for feed in feeds]
        modes = dict(MODES)
        if network.fake_quantized:
            modes[TRAINED] = {"mode": "nodes", "ranges": "trained"}
        for mode, quantize in modes.items():
            yield in_mode(network, mode, quantize, folder, feeds, expected)


def outputs_of(model: Path, network: Network) -> Callable[[Mapping[str, Array]], Outputs]:
    """Return a function that computes the network's outputs for a feed."""
    graph = mobileprep.load_graph(model)
    return lambda feed: list(mobileprep.run(graph, feed, network.outputs).values())


def in_mode(
    network: Network,
    mode: str,
    quantize: Quantize,
    folder: Path,
    feeds: Sequence[Mapping[str, Array]],
    expected: Sequence[Outputs],
) -> Row:
    """Build the network in a mode and measure its model."""
    started = time.perf_counter()
    try:
        model = built(quantized_recipe(network, quantize), folder)
        seconds = time.perf_counter() - started
        run = outputs_of(model, network)
        actual = [run(feed) for feed in feeds]
    except mobileprep.MobileprepError as error:
        first = str(error).replace(f"{folder}/", "").partition("\n")[0]
        return Row(network.name, mode, reason=first[:160])
    gap = compared(network, expected, actual, None)
    return Row(network.name, mode, model.stat().st_size, seconds, gap)


def quantized_recipe(network: Network, quantize: Quantize) -> dict[str, Any]:
    """Return a recipe as data."""
    recipe = recipe_of(network, {"quantize": quantize})
    if quantize == "auto" or (isinstance(quantize, Mapping) and quantize["ranges"] == "observed"):
        recipe["calibration"] = {"data": "calibration.npz"}
    if quantize == "auto":
        recipe["validation"] = search_limit(network, AGREEMENT, SHARE)
    return recipe


def as_text(row: Row) -> str:
    """Format a row for a terminal."""
    start = f"{row.network:24} {row.mode:26}"
    if row.gap is None:
        return f"{start}{row.reason}"
    agreement = "       " if math.isnan(row.gap.agreement) else f"{row.gap.agreement:7.3f}"
    unlike = f"  {row.gap.unlike:.0%} with other shapes" if row.gap.unlike else ""
    numbers = f"{row.bytes / 1000:9.1f} kB {agreement} {row.gap.share:9.2g} {row.seconds:7.1f} s"
    return f"{start}{numbers}{unlike}"


def as_markdown(rows: Sequence[Row]) -> str:
    """Format a table, then a list of the rows without numbers.

    A cell contains the agreement, the largest difference as a share of the peak, and the size.
    """
    reasons = [f"- {row.network}, {row.mode}: {row.reason}\n" for row in rows if row.reason]
    cells = {(row.network, row.mode): as_cell(row) for row in rows}
    return table(cells) + "\n" + "".join(reasons)


def as_cell(row: Row) -> str:
    """Format the available numbers of a row."""
    if row.gap is None:
        return "-"
    numbers = [] if math.isnan(row.gap.agreement) else [f"{row.gap.agreement:.3f}"]
    numbers += [f"{row.gap.share:.2g}", f"{row.bytes / 1000:.0f} kB"]
    if row.gap.unlike:
        numbers.append(f"{row.gap.unlike:.0%} with other numbers of detections")
    return ", ".join(numbers)


if __name__ == "__main__":
    sys.exit(main())

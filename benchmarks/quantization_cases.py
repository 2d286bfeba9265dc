"""Networks with samples, recipes that quantize them, and comparisons with the float network."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec import Struct
from quantization_networks import NETWORKS, Network
from quantization_samples import Array, Samples

import mobileprep
from mobileprep.ops.numerics.differences import differences

Outputs = Sequence[Array]
SOURCE = "source.pb"
CHAIN = ["strip_unused_nodes", "fold_constants", "fuse_batch_norms"]


class RefusedError(Exception):
    """A network that a tool rejects, with the reason."""


def refused(error: Exception) -> RefusedError:
    """Return the error for a network that a tool or the interpreter rejects."""
    first = str(error).strip().partition("\n")[0]
    return RefusedError(f"{type(error).__name__}: {first[:120]}")


def networks(models: Path, name: str) -> list[Network]:
    """Return the networks in a directory whose name contains a text."""
    chosen = [network for network in NETWORKS if name.lower() in network.name.lower()]
    return [network for network in chosen if (models / network.file).exists()]


def feeds_of(network: Network, samples: Samples) -> list[dict[str, Array]]:
    """Return samples, each reshaped to the inputs of the network."""
    count = len(samples[next(iter(network.shapes))])
    return [
        {name: samples[name][i].reshape(s) for name, s in network.shapes.items()}
        for i in range(count)
    ]


def without_single_axis(network: Network, samples: Samples) -> Samples:
    """Return samples for a recipe, without a leading input axis of size 1."""
    shapes = {name: s[1:] if s[:1] == (1,) else s for name, s in network.shapes.items()}
    return {name: samples[name].reshape(-1, *shape) for name, shape in shapes.items()}


def write_source(network: Network, models: Path, folder: Path, feed: Mapping[str, Array]) -> Path:
    """Write the part between inputs and outputs as a frozen graph, the source of all tools."""
    path = folder / SOURCE
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
        f'name="{name}", type_for_name={names[feed[name].dtype]}, '
        f'shape_for_name="{",".join(map(str, shape))}"'
        for name, shape in network.shapes.items()
    ]
    steps = f"strip_unused_nodes({', '.join(kept)}) remove_dropout"
    cut = mobileprep.transform(graph, steps, list(network.shapes), list(network.outputs))
    mobileprep.save_graph(cut.graph, path)
    return path


def recipe_of(network: Network, target: Mapping[str, object]) -> dict[str, Any]:
    """Return a recipe with the target ``phone`` as data."""
    return {
        "version": 1,
        "name": "network",
        "source": {"frozen": SOURCE},
        "inputs": {name: {"shape": list(s)} for name, s in network.shapes.items()},
        "outputs": list(network.outputs),
        "transforms": CHAIN,
        # The benchmark measures the same, on other samples.
        "targets": {"phone": {**target, "quantization_report": False}},
    }


def search_limit(network: Network, agreement: float, share: float) -> dict[str, Any]:
    """Return the validation of a recipe that searches for the layers to quantize.

    Args:
        agreement: smallest share of samples with the same class, for networks with classes.
        share: largest difference of an output as a share of its peak, for the others.
    """
    if network.classes:
        limit = {"metric": "top1_agreement", "output": network.outputs[0], "at_least": agreement}
    else:  # of all outputs
        limit = {"metric": "peak_agreement", "at_least": 1 - share}
    return {"data": "search.npz", **limit}


def built(recipe_data: Mapping[str, Any], folder: Path) -> Path:
    """Build a recipe without a cache of earlier builds, and return the model file."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(dict(recipe_data), sort_keys=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mobileprep.MobileprepWarning)
        target = mobileprep.build(recipe, folder / "out", force=True).targets[0]
    return target.folder / target.report.model.file


class Comparison(Struct, frozen=True):
    """Differences from the float network; NaN where they do not apply.

    Args:
        share: largest difference of an element, as a share of the output's peak.
        snr: lowest signal-to-noise ratio of an output, in dB.
        agreement: share of samples with the same class; NaN for networks without classes.
        loss: accuracy of the float network minus the accuracy, in points; NaN without labels.
        unlike: share of samples whose outputs have other shapes, such as numbers of detections.
            They are not in the other numbers.
    """

    share: float = math.nan
    snr: float = math.nan
    agreement: float = math.nan
    loss: float = math.nan
    unlike: float = 0.0


def compared(
    network: Network, expected: Sequence[Outputs], actual: Sequence[Outputs], labels: Array | None
) -> Comparison:
    """Compare outputs with those of the float network, sample by sample."""
    alike = [
        i
        for i, (x, y) in enumerate(zip(expected, actual, strict=True))
        if all(a.shape == b.shape for a, b in zip(x, y, strict=True))
    ]
    unlike = 1 - len(alike) / len(expected)
    if not alike:
        return Comparison(unlike=unlike)
    expected, actual = [expected[i] for i in alike], [actual[i] for i in alike]
    gaps = differences(network.outputs, expected, actual)
    columns = zip(zip(*expected, strict=True), zip(*actual, strict=True), strict=True)
    snr = min(decibels(np.stack(x), np.stack(y)) for x, y in columns)
    agreement = loss = math.nan
    if network.classes:
        classes = [
            np.array([np.argmax(x[0], axis=-1) for x in side]) for side in (expected, actual)
        ]
        agreement = float(np.mean(classes[0] == classes[1]))
        if labels is not None:
            rights = [np.mean(actual.reshape(len(labels)) == labels) for actual in classes]
            loss = 100 * float(rights[0] - rights[1])
    return Comparison(max(gap.share for gap in gaps), snr, agreement, loss, unlike)


def decibels(expected: Array, actual: Array) -> float:
    """Return the signal-to-noise ratio in dB; infinite if there is no difference."""
    noise = np.sum(np.square(actual.astype(float) - expected))
    signal = np.sum(np.square(expected.astype(float)))
    return 10 * math.log10(signal / noise) if noise and signal else math.inf


def table(cells: Mapping[tuple[str, str], str]) -> str:
    """Format cells by network and column as a table in Markdown."""
    networks, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    lines = [f"| network | {' | '.join(columns)} |", f"|{'---|' * (len(columns) + 1)}"]
    for network in networks:
        actual = (cells.get((network, column), "") for column in columns)
        lines.append(f"| {network} | {' | '.join(actual)} |")
    return "\n".join([*lines, ""])

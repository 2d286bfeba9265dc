"""Compare int8 models for LiteRT, and those of ai-edge-quantizer, with their float versions.

    python benchmarks/tflite_int8.py --models FOLDER

Converts each network of ``quantization.py`` in every mode and compares the outputs of LiteRT with
those of the float network, on the same samples. The last mode is TensorFlow's converter with
ai-edge-quantizer's static int8 (``pip install tensorflow-cpu ai-edge-quantizer ai-edge-litert``).
There are no limits.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from quantization import (
    CHAIN,
    Network,
    Row,
    Run,
    as_markdown,
    as_text,
    feed_of,
    in_litert,
    in_mode,
    outputs_of,
    parse_arguments,
    without_single_axis,
    write_source,
)
from quantization_networks import NETWORKS

Array = np.ndarray[Any, Any]
REPAIR = ["equalize_ranges", {"correct_bias": {"data": "calibration.npz"}}]
EQUAL = "equalize_ranges"
MODES: Mapping[str, Any] = {
    "weights": "weights",
    "int8": "int8",
    "int8, repaired": {"mode": "int8", "repair": REPAIR},
    "int8, reconstructed": {"mode": "int8", "repair": [EQUAL, "reconstruct_weights"]},
    "int16x8": "int16x8",
    "int16x8, reconstructed": {"mode": "int16x8", "repair": [EQUAL, "reconstruct_weights"]},
    "int4": "int4",
    "int4, blocks of 128": {"mode": "int4", "block_size": 128},
    "int4, blocks of 32": {"mode": "int4", "block_size": 32},
    "int4, reconstructed": {"mode": "int4", "repair": [{"reconstruct_weights": {"bits": 4}}]},
}
SETS = ("calibration", "test")


def main() -> None:
    arguments = parse_arguments()
    rows = []
    for network in NETWORKS:
        if arguments.only.lower() in network.name.lower():
            for row in measured(network, arguments.models, arguments.samples, arguments.method):
                print(as_text(row), flush=True)
                rows.append(row)
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(rows), encoding="utf-8")


def measured(network: Network, models: Path, count: int, method: str) -> Iterator[Row]:
    """Measure a network in all modes, and yield each row as it is measured."""
    sets = {name: network.draw(models, count, seed) for seed, name in enumerate(SETS)}
    feeds = [feed_of(network, sets["test"], i) for i in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        types = {name: array.dtype for name, array in sets["test"].items()}
        source = write_source(network, models, folder, types)
        samples = without_single_axis(network, sets["calibration"])
        np.savez(folder / "calibration.npz", **samples)
        expected = [outputs_of(source, network)(feed) for feed in feeds]
        modes = dict(MODES)
        if network.fake_quantized:
            modes["int8, trained"] = {"mode": "int8", "ranges": "trained"}
        for mode, quantize in modes.items():
            recipe = recipe_of(network, quantize)
            recipe["calibration"]["method"] = method
            yield in_mode(network, mode, recipe, folder, feeds, expected, interpreted)
        calibration = [feed_of(network, sets["calibration"], i) for i in range(count)]
        yield in_litert(network, source, calibration, feeds, expected)


def interpreted(model: Path, network: Network) -> Run:
    """Return a function that computes the outputs of LiteRT for a feed."""
    interpreter = Interpreter(model_path=str(model))
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner("serving_default")

    def run(feed: Mapping[str, Array]) -> list[Array]:
        given = runner(**feed)
        return [given[name] for name in network.outputs]

    return run


def recipe_of(network: Network, quantize: object) -> dict[str, Any]:
    """Return a recipe as data."""
    return {
        "version": 1,
        "name": "network",
        "source": {"frozen": "source.pb"},
        "inputs": {name: {"shape": list(s)} for name, s in network.shapes.items()},
        "outputs": list(network.outputs),
        "transforms": CHAIN,
        "calibration": {"data": "calibration.npz"},
        "targets": {"phone": {"artifact": "tflite", "quantize": quantize}},
    }


if __name__ == "__main__":
    sys.exit(main())

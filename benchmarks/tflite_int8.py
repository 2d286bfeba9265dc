"""Networks in int8 for LiteRT: this package's files, and ai-edge-quantizer's, beside float.

``python benchmarks/tflite_int8.py --models FOLDER`` makes of each network of ``quantization.py``,
on the same samples, a file in every mode, and compares what LiteRT gives with the float
network. Next to them stands TensorFlow's converter with ai-edge-quantizer's static int8 (``pip
install tensorflow-cpu ai-edge-quantizer ai-edge-litert``). Nothing asserts a number.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ai_edge_litert.interpreter import Interpreter
from quantization import (
    CHAIN,
    Network,
    Row,
    as_markdown,
    as_text,
    compared,
    feed_of,
    in_litert,
    outputs_of,
    parse_arguments,
    without_single_axis,
    write_source,
)
from quantization_networks import NETWORKS

import mobileprep

Array = np.ndarray[Any, Any]
REPAIR = ["equalize_ranges", {"correct_bias": {"data": "calibration.npz"}}]
MODES: Mapping[str, Any] = {
    "weights": "weights",
    "int8": "int8",
    "int8, repaired": {"mode": "int8", "repair": REPAIR},
    "int16x8": "int16x8",
}
SETS = ("calibration", "test")


def main() -> None:
    arguments = parse_arguments()
    rows = []
    for network in NETWORKS:
        if arguments.only.lower() in network.name.lower():
            for row in measured(network, arguments.models, arguments.samples):
                print(as_text(row), flush=True)
                rows.append(row)
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(rows), encoding="utf-8")


def measured(network: Network, models: Path, count: int) -> Iterator[Row]:
    """The network's rows, one after another as they are measured."""
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
            yield in_mode(network, mode, quantize, folder, feeds, expected)
        calibration = [feed_of(network, sets["calibration"], i) for i in range(count)]
        yield in_litert(network, source, calibration, feeds, expected)


def in_mode(
    network: Network,
    mode: str,
    quantize: object,
    folder: Path,
    feeds: Sequence[Mapping[str, Array]],
    expected: Sequence[Sequence[Array]],
) -> Row:
    """What a recipe with this mode gives."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(recipe_of(network, quantize), sort_keys=False))
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mobileprep.MobileprepWarning)
            built = mobileprep.build(recipe, folder / "out").targets[0]
    except mobileprep.MobileprepError as error:
        first = str(error).replace(f"{folder}/", "").partition("\n")[0]
        return Row(network.name, mode, reason=first[:160])
    seconds = time.perf_counter() - started
    model = built.folder / f"{built.report.recipe}.tflite"
    interpreter = Interpreter(model_path=str(model))
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner("serving_default")
    found = []
    for feed in feeds:
        given = runner(**feed)
        found.append([given[name] for name in network.outputs])
    return compared(network, mode, model.stat().st_size, seconds, expected, found)


def recipe_of(network: Network, quantize: object) -> dict[str, Any]:
    """A recipe as plain data."""
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

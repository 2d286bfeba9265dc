"""Compare the top-1 accuracy of quantized classifiers with their float versions.

    python benchmarks/labeled.py [--models FOLDER] [--only TEXT] [--samples N]

Measures the networks of the recipes ``digits`` and ``mnist``, and those of ``quantization.py``
whose samples have labels: digits of MNIST, and spoken words. Calibration and test samples differ.
LiteRT runs int8 and int4 models, and the interpreter runs those with 8-bit and 4-bit weights. Each
line has the accuracy and its change in points, with nearest rounding and with reconstructed
weights. Exits with code 1 if a reconstructed model loses more than 0.3 points in 8 bits, or 1 point
in 4 bits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from quantization_networks import NETWORKS, Network

import mobileprep

Array = np.ndarray[Any, Any]
RECIPES = Path(__file__).parent.parent / "recipes"
EQUAL = "equalize_ranges"
# For each mode: nearest rounding, reconstructed weights, the artifact, and the goal in points.
MODES: Mapping[str, tuple[Any, Any, str, float]] = {
    "int8": ("int8", {"mode": "int8", "repair": [EQUAL, "reconstruct_weights"]}, "tflite", 0.3),
    "int4": (
        "int4",
        {"mode": "int4", "repair": [{"reconstruct_weights": {"bits": 4, "minimum_size": 1024}}]},
        "tflite",
        1.0,
    ),
    "8-bit weights": (
        "weights",
        {"mode": "weights", "repair": ["reconstruct_weights"]},
        "tensorflow",
        0.3,
    ),
    "4-bit weights": (
        {"mode": "weights", "bits": 4},
        {"mode": "weights", "bits": 4, "repair": ["reconstruct_weights"]},
        "tensorflow",
        1.0,
    ),
}


@dataclass(frozen=True)
class Classifier:
    """A frozen graph, its samples, and the labels of the test samples.

    Args:
        source: the graph.
        input: name of the input.
        shape: shape of a sample with a leading axis of 1.
        output: name of the scores.
        calibration: samples along the first axis.
        test: samples along the first axis.
        labels: class index of each test sample.
    """

    name: str
    source: Path
    input: str
    shape: tuple[int, ...]
    output: str
    calibration: Array
    test: Array
    labels: Array


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, help="directory of the networks of quantization.py")
    parser.add_argument("--only", default="", help="networks whose name contains this text")
    parser.add_argument("--samples", type=int, default=1000, help="test samples")
    arguments = parser.parse_args()
    misses = 0
    with tempfile.TemporaryDirectory() as name:
        for network in classifiers(arguments, Path(name)):
            misses += measure(network, Path(name))
    return 1 if misses else 0


def classifiers(arguments: argparse.Namespace, folder: Path) -> Iterator[Classifier]:
    """Yield the classifiers whose name contains the text."""
    for recipe, steps in (("digits", 1000), ("mnist", 4000)):
        if arguments.only.lower() in recipe:
            yield of_recipe(recipe, steps, folder)
    for network in NETWORKS if arguments.models else ():
        is_wanted = arguments.only.lower() in network.name.lower() and not network.fake_quantized
        if is_wanted and network.name.startswith(("MNIST", "arm-kws")):
            yield of_network(network, arguments.models, arguments.samples, folder)


def of_recipe(name: str, steps: int, folder: Path) -> Classifier:
    """Return the network of a recipe, with its data."""
    model, data = RECIPES / name / "model", RECIPES / name / "data"
    outputs = ["probabilities"]
    checkpoint = model / f"model.ckpt-{steps}"
    frozen = mobileprep.freeze(model / "graph.pbtxt", outputs, checkpoint=checkpoint)
    chain = "downgrade fold_constants fold_batch_norms fold_old_batch_norms"
    graph = mobileprep.transform(frozen.graph, chain, ["image"], outputs).graph
    source = folder / f"{name}.pb"
    mobileprep.save_graph(graph, source)
    with np.load(data / "calibration.npz") as calibration, np.load(data / "test.npz") as test:
        images, labels = test["image"], test["label"]
        shape = (1, *images.shape[1:])
        known = calibration["image"]
    return Classifier(name, source, "image", shape, outputs[0], known, images, labels)


def of_network(network: Network, models: Path, count: int, folder: Path) -> Classifier:
    """Return a network of ``quantization.py`` with labeled samples."""
    (input_name, shape), *_ = network.shapes.items()
    file = models / network.file
    source = folder / "network.pb"
    if network.checkpoint:
        checkpoint = models / network.checkpoint
        graph = mobileprep.freeze(file, network.outputs, checkpoint=checkpoint).graph
    else:
        graph = mobileprep.load_graph(file)
    kept = f'name="{input_name}", type_for_name=float, shape_for_name="{",".join(map(str, shape))}"'
    steps = f"strip_unused_nodes({kept}) remove_dropout"
    cut = mobileprep.transform(graph, steps, [input_name], list(network.outputs))
    mobileprep.save_graph(cut.graph, source)
    if network.name.startswith("MNIST"):
        table = np.loadtxt(models / "data" / "mnist_5k.csv.gz", np.float32, delimiter=",")
        order = np.random.default_rng(0).permutation(len(table))
        known, chosen = order[:128], order[-count:]
        images, labels = table[:, :-1] / 255, table[:, -1].astype(np.int64)
        parts = [images[known], images[chosen]]
        calibration, test = (part.reshape(-1, *shape[1:]) for part in parts)
        labels = labels[chosen]
    else:
        calibration, test = (
            network.draw(models, size, seed)[input_name] for size, seed in ((120, 0), (count, 2))
        )
        labels = spoken(models, count)
    output = network.outputs[0]
    return Classifier(network.name, source, input_name, shape, output, calibration, test, labels)


def spoken(models: Path, count: int) -> Array:
    """Return the class of each clip that the networks' samples are drawn from, in their order."""
    classes = (models / "arm-kws" / "labels.txt").read_text().split()
    names = [path.stem for path in sorted((models / "data" / "speech_commands").rglob("*.wav"))]
    known = ["_silence_" if name in ("silence", "arm_silence", "noise") else name for name in names]
    indices = [classes.index(name if name in classes else "_unknown_") for name in known]
    return np.array([indices[at % len(indices)] for at in range(count)])


def measure(network: Classifier, folder: Path) -> int:
    """Print a line for each mode, and return the number of missed goals."""
    graph = mobileprep.load_graph(network.source)
    exact = accuracy(network, interpreted(graph, network))
    size = len(network.labels)
    print(f"{network.name:24} {'float':14} {exact:7.2%} of {size} samples", flush=True)
    misses = 0
    for mode, (nearest, repaired, artifact, goal) in MODES.items():
        cells = []
        for quantize in (nearest, repaired):
            model = build(network, quantize, artifact, folder)
            run = litert(model, network) if artifact == "tflite" else None
            run = run or interpreted(mobileprep.load_graph(model), network)
            top1 = accuracy(network, run)
            loss = (exact - top1) * 100
            cells.append(f"{top1:7.2%} ({-loss:+.2f})")
        misses += loss > goal
        line = f"{network.name:24} {mode:14} nearest {cells[0]}  reconstructed {cells[1]}"
        print(f"{line}{'  missed' if loss > goal else ''}", flush=True)
    return misses


def build(network: Classifier, quantize: object, artifact: str, folder: Path) -> Path:
    """Return the file of the quantized model."""
    np.savez(folder / "calibration.npz", **{network.input: network.calibration})
    target: dict[str, Any] = {"quantize": quantize, "quantization_report": False}
    if artifact == "tflite":
        target["artifact"] = artifact
    else:
        # The networks have attributes that TensorFlow 1.15 does not know.
        target["registration"] = {"tensorflow": "2.21"}
    recipe = {
        "version": 1,
        "name": "network",
        "source": {"frozen": network.source.name},
        "inputs": {network.input: {"shape": list(network.shape)}},
        "outputs": [network.output],
        "transforms": ["strip_unused_nodes", "fold_constants", "fuse_batch_norms"],
        "calibration": {"data": "calibration.npz", "method": "min_max"},
        "targets": {"phone": target},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mobileprep.MobileprepWarning)
        built = mobileprep.build(folder / "recipe.yaml", folder / "out").targets[0]
    return Path(built.folder / built.report.model.file)


def interpreted(graph: Any, network: Classifier) -> Any:  # noqa: ANN401 - graphs have no public type
    """Return a function that computes scores with the interpreter."""
    return lambda x: mobileprep.run(graph, {network.input: x}, [network.output])[network.output]


def litert(model: Path, network: Classifier) -> Any:  # noqa: ANN401 - a function of arrays
    """Return a function that computes scores with LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model))
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner("serving_default")
    return lambda x: runner(**{network.input: x})[network.output]


def accuracy(network: Classifier, run: Any) -> float:  # noqa: ANN401 - a function of arrays
    """Return the share of test samples with the right class."""
    scores: Sequence[Array] = [run(x.reshape(network.shape)) for x in network.test]
    classes = [int(np.argmax(score)) for score in scores]
    return float(np.mean(np.array(classes) == network.labels))


if __name__ == "__main__":
    sys.exit(main())

"""Compare integer LiteRT models with those of TensorFlow's converter and litert-quantizer.

    python benchmarks/quantization.py --models FOLDER [--only TEXT] [--columns NAME,NAME]
        [--samples N] [--results FOLDER] [--markdown FILE]

All tools quantize the same frozen graphs with the same 64 calibration samples, and the files run in
the same interpreter on other samples. README.md says where the networks come from. Requires
tensorflow-cpu, litert-quantizer, ai-edge-litert, Pillow, scikit-image, and scikit-learn. The tables
show, for each network and tool, compared with the float network:

- the largest difference of any output element, as a share of the output's peak,
- for classifiers, the share of samples with the same class in front of it, and for labeled ones,
  the loss of accuracy in points,
- the lowest signal-to-noise ratio of an output in dB,
- the share of multiplications and additions in layers that compute in integers,
- the file size and the processor time of conversion and quantization.

Where the largest difference of another tool is smaller than that of every column of mobileprep
with as many bits, the cell is in bold.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from msgspec import Struct
from quantization_cases import (
    Comparison,
    Outputs,
    RefusedError,
    built,
    compared,
    feeds_of,
    networks,
    recipe_of,
    refused,
    search_limit,
    table,
    without_single_axis,
    write_source,
)
from quantization_networks import Network
from quantization_samples import LABELS, SETS, Array

import mobileprep
from mobileprep.formats.dtypes import DType
from mobileprep.graph.tflite import PREFIX, parse_tflite
from mobileprep.inspection.lite_costs import lite_costs

if TYPE_CHECKING:
    from quantization_tools import Source

CALIBRATION_SAMPLES = 64
SEARCH_SAMPLES = 32
LABELED_SAMPLES = 1000  # an accuracy needs more samples than a difference
TARGET = {"artifact": "tflite", "check": False}

# The key `quantize` of the target, by column of mobileprep.
REPAIR = ["equalize_ranges", "reconstruct_weights"]
OURS: Mapping[str, Any] = {
    "int8": "int8",
    "int8 repaired": {"mode": "int8", "repair": REPAIR},
    "auto": "auto",
    "int16x8": "int16x8",
    "int4": "int4",
    "int4 repaired": {"mode": "int4", "repair": [{"reconstruct_weights": {"bits": 4}}]},
}
# Limits of ``auto`` on the samples of its search, for classes and for other outputs.
AGREEMENT, SHARE = 0.98, 0.15
TENSORFLOW = "TensorFlow int8"
# Operators that multiply and add.
LAYERS = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL"}


class Row(Struct, frozen=True):
    """One cell of the tables.

    Args:
        network: name of the network.
        column: tool and mode.
        bytes: size of the file.
        seconds: processor time of the conversion.
        integers: share of multiplications and additions in layers that compute in integers.
        gap: differences from the float network; None if a tool does not support the network.
        note: why not, or how the file must run.
    """

    network: str
    column: str
    bytes: int = 0
    seconds: float = 0.0
    integers: float = 0.0
    gap: Comparison | None = None
    note: str = ""


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported
    arguments = parse_arguments()
    columns = arguments.columns.split(",") if arguments.columns else all_columns()
    rows = []
    for network in networks(arguments.models, arguments.only):
        for row in measured(network, columns, arguments):
            print(as_text(row), flush=True)
            rows.append(row)
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(rows), encoding="utf-8")


def all_columns() -> list[str]:
    """Return all columns; importing TensorFlow takes seconds."""
    from quantization_tools import RECIPES

    return [*OURS, TENSORFLOW, *RECIPES]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="directory of networks")
    parser.add_argument("--only", default="", help="networks whose name contains this text")
    parser.add_argument(
        "--columns", default="", help="columns to measure, such as int8,TensorFlow int8"
    )
    parser.add_argument("--samples", type=int, default=64, help="samples of the test")
    parser.add_argument("--method", default="auto", help="calibration method of mobileprep")
    parser.add_argument("--results", type=Path, help="directory of results to reuse and to add to")
    parser.add_argument("--markdown", type=Path, help="write the tables there, in Markdown")
    return parser.parse_args()


def measured(
    network: Network, columns: Sequence[str], arguments: argparse.Namespace
) -> Iterator[Row]:
    """Yield a row for each column, from the results or measured."""
    files = {c: result_file(arguments.results, network.name, c) for c in columns}
    missing = [c for c, file in files.items() if file is None or not file.exists()]
    with tempfile.TemporaryDirectory() as name:
        case = Case(network, arguments, Path(name)) if missing else None
        for column, file in files.items():
            if column not in missing and file:
                yield msgspec.convert(json.loads(file.read_text(encoding="utf-8")), Row)
            elif case:
                row = case.row(column)
                if file:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(json.dumps(msgspec.to_builtins(row)), encoding="utf-8")
                yield row


def result_file(folder: Path | None, network: str, column: str) -> Path | None:
    """Return the file of a cell's result."""
    name = f"{network} {column}".replace(",", "").replace(" ", "-").lower()
    return folder / f"{name}.json" if folder else None


class Case:
    """A network with its samples and the outputs that the float network has for them."""

    def __init__(self, network: Network, arguments: argparse.Namespace, folder: Path) -> None:
        models, count = arguments.models, arguments.samples
        self._network = network
        self._method = arguments.method
        self._folder = folder
        calibration = network.draw(models, CALIBRATION_SAMPLES, SETS.index("calibration"))
        test = network.draw(models, count, SETS.index("test"))
        if LABELS in test:
            test = network.draw(models, LABELED_SAMPLES, SETS.index("test"))
        self._labels = test.get(LABELS)
        self._feeds = feeds_of(network, test)
        source = write_source(network, models, folder, self._feeds[0])
        search = network.draw(models, SEARCH_SAMPLES, SETS.index("search"))
        for name, samples in (("calibration", calibration), ("search", search)):
            np.savez(folder / f"{name}.npz", **without_single_axis(network, samples))
        self._calibration = feeds_of(network, calibration)
        self._graph = source
        graph = mobileprep.load_graph(source)
        self._expected = [
            list(mobileprep.run(graph, feed, network.outputs).values()) for feed in self._feeds
        ]
        self._source: Source | None = None

    def row(self, column: str) -> Row:
        """Measure a column."""
        name = self._network.name
        started = processor_seconds()
        try:
            model, inputs, outputs = self._model(column)
            seconds = processor_seconds() - started
            run, note = runner(model, inputs, outputs)
            actual = [run(feed) for feed in self._feeds]
            integers = integer_share(model)
        except (RefusedError, mobileprep.MobileprepError) as error:
            first = str(error).replace(f"{self._folder}/", "").partition("\n")[0]
            return Row(name, column, note=first[:160])
        except (RuntimeError, ValueError) as error:  # of the interpreter
            return Row(name, column, note=str(refused(error)))
        gap = compared(self._network, self._expected, actual, self._labels)
        return Row(name, column, len(model), seconds, integers, gap, note)

    def _model(self, column: str) -> tuple[bytes, Mapping[str, str], Mapping[str, str]]:
        """Return a file, and the names of the network's inputs and outputs in its signature."""
        if column in OURS:
            quantize = OURS[column]
            recipe = recipe_of(self._network, {**TARGET, "quantize": quantize})
            recipe["calibration"] = {"data": "calibration.npz", "method": self._method}
            if quantize == "auto":
                recipe["validation"] = search_limit(self._network, AGREEMENT, SHARE)
            model = built(recipe, self._folder).read_bytes()
            return model, same(self._network.shapes), same(self._network.outputs)
        from quantization_tools import Source

        if self._source is None:
            network = self._network
            self._source = Source(self._graph, network.shapes, network.outputs, self._calibration)
        source = self._source
        model = (
            source.tensorflow_int8() if column == TENSORFLOW else source.litert_quantizer(column)
        )
        return model, source.inputs, source.outputs


def same(names: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    return {name: name for name in names}


def processor_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def runner(
    model: bytes, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> tuple[Callable[[Mapping[str, Array]], Outputs], str]:
    """Return a function that computes the outputs of LiteRT for a feed, and a note."""
    note = ""
    try:
        interpreter = Interpreter(model_content=model, num_threads=1)
        interpreter.allocate_tensors()
    except RuntimeError:
        without = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = Interpreter(
            model_content=model, num_threads=1, experimental_op_resolver_type=without
        )
        interpreter.allocate_tensors()
        note = "runs only without XNNPACK"
    run = interpreter.get_signature_runner("serving_default")

    def outputs_of(feed: Mapping[str, Array]) -> list[Array]:
        details = run.get_input_details()
        given = {key: as_stored(feed[name], details[key]) for name, key in inputs.items()}
        actual = run(**given)
        details = run.get_output_details()
        return [as_floats(actual[key], details[key]) for key in outputs.values()]

    return outputs_of, note


def as_stored(values: Array, details: Mapping[str, Any]) -> Array:
    scale, zero = details["quantization"]
    if not scale:
        return values
    limits = np.iinfo(details["dtype"])
    return np.clip(np.round(values / scale) + zero, limits.min, limits.max).astype(details["dtype"])


def as_floats(values: Array, details: Mapping[str, Any]) -> Array:
    scale, zero = details["quantization"]
    return (values.astype(np.float32) - zero) * scale if scale else values


def integer_share(model: bytes) -> float:
    """Return the share of multiplications and additions in layers with integer outputs.

    Loops do not count. A layer with float inputs and integer weights, which rounds its inputs while
    it runs, counts as a float layer.
    """
    graph = parse_tflite(model, "model").graph
    total = integers = 0.0
    for cost in lite_costs(graph, [], {}, 1).nodes:
        node = graph[cost.name]
        if node.op.removeprefix(PREFIX) in LAYERS:
            total += cost.flops or 0
            integers += (cost.flops or 0) * (node.attr_dtypes("T")[0] in (DType.INT8, DType.INT16))
    return integers / total if total else math.nan


def as_text(row: Row) -> str:
    """Format a row for a terminal."""
    start = f"{row.network:24} {row.column:34}"
    return start + (f"{cell(row):24} {details(row)} {row.note}" if row.gap else row.note)


def cell(row: Row) -> str:
    """Format the differences from the float network."""
    if row.gap is None:
        return "-"
    gap = row.gap
    parts = [] if math.isnan(gap.agreement) else [f"{gap.agreement:.3f}"]
    if not math.isnan(gap.loss):
        parts.append(f"{gap.loss:+.1f}")
    return ", ".join([*parts, f"{gap.share:.2g}"])


def details(row: Row) -> str:
    """Format the other numbers."""
    if row.gap is None:
        return "-"
    kilobytes = f"{row.bytes / 1000:.0f} kB"
    return f"{row.gap.snr:.0f} dB, {row.integers:.0%}, {kilobytes}, {row.seconds:.0f} s"


def as_markdown(rows: Sequence[Row]) -> str:
    """Format tables of 8-bit and 4-bit columns, then a list of the notes."""
    best: dict[tuple[str, bool], float] = {}
    for row in rows:
        if row.column in OURS and row.gap:
            best[bits_key(row)] = min(row.gap.share, best.get(bits_key(row), math.inf))

    def marked(row: Row) -> str:
        is_better = row.gap and row.gap.share < best.get(bits_key(row), -math.inf)
        return f"**{cell(row)}**" if is_better else cell(row)

    groups = [[row for row in rows if bits_key(row)[1] == narrow] for narrow in (False, True)]
    tables = [
        table({(row.network, row.column): text(row) for row in group})
        for text in (marked, details)
        for group in groups
        if group
    ]
    notes = [f"- {row.network}, {row.column}: {row.note}\n" for row in rows if row.note]
    return "\n".join(tables) + "\n" + "".join(notes)


def bits_key(row: Row) -> tuple[str, bool]:
    """Return the network, and whether the weights have 4 bits."""
    return row.network, "int4" in row.column


if __name__ == "__main__":
    sys.exit(main())

"""Quantized kernels compute the same outputs and ranges as TensorFlow's, exactly."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import MobileprepError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.graph.refs import Ref
from mobileprep.graph.serde import graph_to_bytes
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import fetches
from tests.ops.quantized_graphs import quantized_graph
from tests.reference.cases import quantized
from tests.reference.cases.base import Case
from tests.reference.original import run_original
from tests.reference.tensorflow_worker import TensorFlow

pytestmark = pytest.mark.reference

CASES = {
    op: list(cases)
    for op, cases in groupby(sorted(quantized.cases(), key=lambda c: c.op), key=lambda c: c.op)
}
QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32


def _tensorflow(*, onednn: bool) -> Iterator[TensorFlow]:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow-cpu is not installed")
    process = TensorFlow(onednn=onednn)
    yield process
    process.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[TensorFlow]:
    """TensorFlow with its own kernels."""
    yield from _tensorflow(onednn=False)


@pytest.fixture(scope="module")
def onednn() -> Iterator[TensorFlow]:
    """TensorFlow with the kernels of oneDNN."""
    yield from _tensorflow(onednn=True)


def run_both(tensorflow: TensorFlow, graph: Graph) -> tuple[Any, Any]:
    names = fetches(graph)
    theirs = tensorflow.run(graph_to_bytes(graph), [n if ":" in n else f"{n}:0" for n in names], {})
    try:
        return Interpreter(graph).run(names, {}), theirs
    except MobileprepError as error:
        return error, theirs


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind not in "iu")


@pytest.mark.parametrize("op", CASES)
def test_kernels_match_tensorflow_exactly(
    op: str, plain: TensorFlow, request: pytest.FixtureRequest
) -> None:
    for case in CASES[op]:
        process = plain
        if quantized.uses_onednn(case):
            process = request.getfixturevalue("onednn")
        ours, theirs = run_both(process, quantized_graph(op, case.inputs, **case.attrs))
        assert not isinstance(theirs, str), f"{case}: {theirs}"
        assert not isinstance(ours, MobileprepError), f"{case}: {ours}"
        for mine, reference in zip(ours, theirs, strict=True):
            assert same(mine, reference), f"{case}: {mine} here, {reference} there"


UNIT = (np.float32(-1), np.float32(1))
REVERSED = (np.float32(1), np.float32(-1))
BYTES = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1)
FILTERS = np.ones((2, 2, 1, 1), np.uint8)
SUMS = np.arange(4, dtype=np.int32)
CONV = {"Tinput": QUINT8, "Tfilter": QUINT8, "out_type": QINT32, "padding": "VALID"}
BOTH = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
INVALID = {
    "a range that ends before it begins": Case(
        "QuantizeV2", (np.ones(3, np.float32), *REVERSED), {"T": QUINT8}
    ),
    "HALF_TO_EVEN outside of SCALED": Case(
        "QuantizeV2",
        (np.ones(3, np.float32), *UNIT),
        {"T": QUINT8, "mode": "MIN_FIRST", "round_mode": "HALF_TO_EVEN"},
    ),
    "MIN_FIRST along an axis": Case(
        "QuantizeV2",
        (np.ones((2, 3), np.float32), np.zeros(3, np.float32), np.ones(3, np.float32)),
        {"T": QUINT8, "mode": "MIN_FIRST", "axis": 1},
    ),
    "ranges that do not fit the axis": Case(
        "Dequantize",
        (BYTES[0, ..., 0], np.zeros(3, np.float32), np.ones(3, np.float32)),
        {"T": QUINT8, "mode": "SCALED", "axis": 1},
    ),
    "bfloat16 outside of MIN_COMBINED": Case(
        "Dequantize", (BYTES, *UNIT), {"T": QUINT8, "mode": "SCALED", "dtype": DType.BFLOAT16}
    ),
    "no bits": Case(
        "QuantizeAndDequantizeV2",
        (np.ones(3, np.float32), *UNIT),
        {"T": DType.FLOAT, "num_bits": 0},
    ),
    "unequal strides": Case(
        "QuantizedConv2D", (BYTES, FILTERS, *UNIT, *UNIT), {**CONV, "strides": [1, 1, 2, 1]}
    ),
    "dilations": Case(
        "QuantizedConv2D",
        (BYTES, FILTERS, *UNIT, *UNIT),
        {**CONV, "strides": [1, 1, 1, 1], "dilations": [1, 2, 2, 1]},
    ),
    "a window larger than the image": Case(
        "QuantizedConv2D",
        (BYTES, np.ones((5, 5, 1, 1), np.uint8), *UNIT, *UNIT),
        {**CONV, "strides": [1, 1, 1, 1]},
    ),
    "other channels than the filters'": Case(
        "QuantizedConv2D",
        (BYTES, np.ones((1, 1, 2, 1), np.uint8), *UNIT, *UNIT),
        {**CONV, "strides": [1, 1, 1, 1]},
    ),
    "matrices that do not fit": Case(
        "QuantizedMatMul", (BYTES[0, ..., 0], BYTES[0, ..., 0], *UNIT, *UNIT), BOTH
    ),
    "an empty range of factors": Case(
        "QuantizedMul", (BYTES, BYTES, *UNIT, np.float32(1), np.float32(1)), BOTH
    ),
    "an empty range of summands": Case(
        "QuantizedAdd", (BYTES, BYTES, *UNIT, np.float32(1), np.float32(1)), BOTH
    ),
    "a broadcast in three steps": Case(
        "QuantizedAdd",
        (np.ones((2, 3, 4), np.uint8), np.ones((2, 1, 4), np.uint8), *UNIT, *UNIT),
        BOTH,
    ),
    "no biases": Case(
        "QuantizedBiasAdd",
        (np.ones((2, 0), np.uint8), np.ones(0, np.uint8), *UNIT, *UNIT),
        {"T1": QUINT8, "T2": QUINT8, "out_type": QINT32},
    ),
    "an axis from the end": Case(
        "QuantizedConcat",
        (np.int32(-1), BYTES, BYTES, UNIT[0], UNIT[0], UNIT[1], UNIT[1]),
        {"T": QUINT8, "N": 2},
    ),
    "an output range above zero": Case(
        "Requantize",
        (SUMS, *UNIT, np.float32(1), np.float32(2)),
        {"Tinput": QINT32, "out_type": QUINT8},
    ),
    "an output range that ends before it begins": Case(
        "Requantize",
        (SUMS, *UNIT, np.float32(-1), np.float32(-2)),
        {"Tinput": QINT32, "out_type": QUINT8},
    ),
    "an image without pixels": Case(
        "QuantizedResizeBilinear", (BYTES, np.array([0, 2], np.int32), *UNIT), {"T": QUINT8}
    ),
    "an empty output range": Case(
        "QuantizedInstanceNorm",
        (BYTES, *UNIT),
        {"T": QUINT8, "output_range_given": True, "given_y_min": 1.0, "given_y_max": 1.0},
    ),
    "a type without kernel": Case(
        "QuantizedRelu", (BYTES.view(np.int8), *UNIT), {"Tinput": QINT8, "out_type": QINT8}
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_inputs_are_rejected(name: str, plain: TensorFlow) -> None:
    case = INVALID[name]
    ours, theirs = run_both(plain, quantized_graph(case.op, case.inputs, **case.attrs))
    assert isinstance(theirs, str)
    assert isinstance(ours, MobileprepError)


CHAIN = (
    "add_default_attributes strip_unused_nodes fold_constants(ignore_errors=true) "
    "fold_batch_norms fold_old_batch_norms quantize_weights quantize_nodes strip_unused_nodes "
    "sort_by_execution_order"
)
POSENET = "MobilenetV1/{}_2/BiasAdd"
# Path, input, its shape, and outputs.
MODELS = {
    "autoencoder": ("tf2onnx-models/fc-layers/frozen.pb", "X", (8, 784), "output"),
    "recurrent": ("tf2onnx-models/gru/frozen.pb", "X", (8, 784), "output"),
    "quantization-aware training": (
        "made-qat-mnist-tf115/frozen_eval_graph.pb",
        "input",
        (8, 28, 28, 1),
        "output",
    ),
    "keyword spotter": ("arm-kws/DS_CNN_S.pb", "Mfcc", (1, 98, 10), "labels_softmax"),
    "face mesh": (
        "tfjs-facemesh/facemesh.pb",
        "input_1",
        (1, 192, 192, 3),
        "Identity,Identity_1,Identity_2",
    ),
    "MobileNetV2": (
        "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
        "input",
        (1, 224, 224, 3),
        "Identity",
    ),
    "pose net": (
        "tfjs-posenet/posenet.pb",
        "image",
        (1, 385, 385, 3),
        ",".join(POSENET.format(n) for n in ("heatmap", "offset")),
    ),
}


def _is_quantized(op: str) -> bool:
    return "Quantize" in op or op.startswith("Requant") or op == "Dequantize"


@pytest.mark.parametrize("name", MODELS)
def test_quantized_nodes_of_networks_match_tensorflow(
    name: str, plain: TensorFlow, original: Path, models: Path, tmp_path: Path
) -> None:
    path, source, shape, outputs = MODELS[name]
    graph = run_original(original, read_graph(models / path), source, outputs, CHAIN, tmp_path)
    compared = [n for n in graph if _is_quantized(n.op)]
    targets = [Ref(n.name, i) for n in compared for i in range(output_count(n) or 0)]
    # Float ops may round differently, so each quantized node gets its inputs from TensorFlow.
    read = {r for n in compared for r in n.data_inputs}
    between = sorted(
        {Ref(r.node, r.index) for r in read if not _is_quantized(graph[r.node].op)}
        - {Ref(n.name) for n in graph if n.op in ("Const", "Placeholder")},
        key=str,
    )
    feeds = {source: np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    if "keep_prob" in graph:
        feeds["keep_prob"] = np.asarray(np.float32(1))
    names = [f"{r.node}:{r.index}" for r in (*targets, *between)]
    theirs = plain.run(graph_to_bytes(graph), names, {f"{k}:0": v for k, v in feeds.items()})
    assert not isinstance(theirs, str), theirs
    fed = dict(zip(names[len(targets) :], theirs[len(targets) :], strict=True))
    ours = Interpreter(graph).run(names[: len(targets)], {**feeds, **fed})
    assert len(targets) > 20
    for ref, mine, reference in zip(targets, ours, theirs[: len(targets)], strict=True):
        assert same(mine, reference), f"{ref} ({graph[ref.node].op})"

"""The evaluate stage: batches, metrics, and invalid data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.engines import EngineChoice
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.outputs import KeptOutputs
from mobileprep.building.stages.evaluate.run import evaluated, run
from mobileprep.building.stages.evaluate.spec import EvaluateStage, MeasuredMetric
from mobileprep.data.source import Batch, Unread
from mobileprep.data.survey import runs
from mobileprep.errors import AccuracyError, UnsupportedError
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.sampling.inputs import fed_tensors
from tests.building.stages.jobs import (
    NUMPY,
    assets,
    classifier,
    files,
    interface,
    job,
    json_output,
    op,
    placeholder,
    slots,
)


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)


def evaluate(graph: Graph, feeds: dict[str, np.ndarray], fetches: list[str]) -> list[Any]:
    """The outputs of the interpreter, concatenated if they have a row for each sample."""
    engine = open_engine("numpy", graph, None, where="d")
    batches = runs(Arrays("d", feeds), fed_tensors(graph, feeds), 64)
    results = list(evaluated(engine, batches, fetches))
    counts = [batch.count for batch, _ in results]
    columns = zip(*(outputs for _, outputs in results), strict=True)
    has_rows = [(count,) for count in counts]
    return [
        np.concatenate(c) if [np.shape(part)[:1] for part in c] == has_rows else list(c)
        for c in columns
    ]


@dataclass(frozen=True)
class Arrays:
    """A data set of arrays."""

    name: str
    feeds: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.feeds.values())))

    def batches(
        self, size: int, start: int = 0, stop: int | None = None, unread: list[Unread] | None = None
    ) -> Iterator[Batch]:
        for at in range(start, len(self) if stop is None else stop, size):
            feeds = {name: array[at : at + size] for name, array in self.feeds.items()}
            count = len(next(iter(feeds.values())))
            yield Batch(feeds, None, tuple(f"sample {at + i}" for i in range(count)))


def evaluation(
    folder: Path,
    arrays: dict[str, np.ndarray],
    *,
    graph: Graph | None = None,
    outputs: tuple[str, ...] = ("y",),
    inputs: tuple[str, ...] = ("x",),
    engine: EngineChoice = NUMPY,
    metrics: tuple[MeasuredMetric, ...] = (MeasuredMetric(metric="top1"),),
    functions: dict[str, Any] | None = None,
    **asset_files: bytes,
) -> Job[EvaluateStage]:
    write_arrays(folder / "test.npz", arrays)
    stored = {
        "graph": graph or classifier(),
        "interface": interface(*outputs, inputs=inputs),
        "assets": assets(folder, **asset_files),
    }
    stage = EvaluateStage(
        data=files(folder / "test.npz", "data/test.npz"),
        metrics=metrics,
        functions=functions or {},
        engine=engine,
        **slots(*stored),
    )
    return job(folder, stage, **stored)


def top1(*arguments: Any, **options: Any) -> float:
    """Run the stage and return the value of its metric."""
    done = evaluation(*arguments, **options)
    run(done)
    (metric,) = json_output(done, "evaluation.json")["metrics"]
    return metric["value"]


def test_outputs_and_accuracy_are_recorded(tmp_path: Path) -> None:
    x = samples(200)
    label = x.argmax(axis=1)
    label[:50] = (label[:50] + 1) % 3
    done = evaluation(tmp_path, {"x": x, "label": label})
    run(done)
    assert json_output(done, "evaluation.json") == {
        "outputs": ["y"],
        "samples": 200,
        "metrics": [{"metric": "top1", "outputs": ["y"], "value": 0.75, "classes": 3}],
        "warnings": [],
        "engine": {
            "name": "numpy",
            "version": "",
            "samples": 0,
            "within": None,
            "tolerance": 1e-4,
            "unlike": "",
        },
        "basis": "",
    }
    batches = list(KeptOutputs(done.folder / "outputs.npz", 1).each_batch())
    assert [(count, len(batch)) for count, (batch,) in batches] == [(64, 64)] * 3 + [(8, 8)]
    assert np.concatenate([batch for _, (batch,) in batches]).tolist() == x.tolist()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 63, 64, 65, 200])
@pytest.mark.parametrize("batch", [-1, 1, 8, 100])
def test_any_number_of_samples_fits_any_batch_size(count: int, batch: int) -> None:
    x = samples(count)
    (y,) = evaluate(classifier(batch), {"x": x}, ["y"])
    assert y.tolist() == x.tolist()


def test_only_fixed_batches_are_padded() -> None:
    for batch, sizes in ((8, [8, 8, 8]), (-1, [20])):
        graph = classifier(batch)
        count = Node("n", "Shape", (parse_ref("x"),), attrs={"T": attr.dtype(DType.FLOAT)})
        graph = graph.with_nodes([*graph.nodes, count])
        _, shapes = evaluate(graph, {"x": samples(20)}, ["y", "n"])
        assert np.stack(shapes).tolist() == [[n, 3] for n in sizes]


@pytest.mark.parametrize("fetch", ["mean", "row", "total"])
def test_first_output_without_a_row_per_sample_is_refused(tmp_path: Path, fetch: str) -> None:
    axes = {"mean": [0], "row": [0], "total": [0, 1]}[fetch]
    graph = classifier()
    reduce = Node(
        fetch,
        "Mean",
        (parse_ref("y"), parse_ref("axes")),
        attrs={
            "T": attr.dtype(DType.FLOAT),
            "Tidx": attr.dtype(DType.INT32),
            "keep_dims": attr.boolean(fetch == "row"),
        },
    )
    graph = graph.with_nodes(
        [*graph.nodes, constant("axes", Tensor.of(np.array(axes, np.int32))), reduce]
    )
    arrays = {"x": samples(20), "label": np.zeros(20, np.int64)}
    with pytest.raises(AccuracyError, match=rf"'{fetch}' has the shape \[.*\] for 20 samples") as c:
        run(evaluation(tmp_path, arrays, graph=graph, outputs=(fetch,)))
    assert c.value.where == "recipe.yaml:5:1"
    # Other outputs may have one value for each batch.
    y, other = evaluate(graph, {"x": samples(130)}, ["y", fetch])
    assert (len(y), len(other)) == (130, 3)


def test_nan_scores_are_refused(tmp_path: Path) -> None:
    x = np.array([[3, 1, 2], [np.nan, 1, 2], [3, 1, 2], [3, np.nan, 2]], np.float32)
    graph = Graph([placeholder((-1, 3)), op("y", "Identity", "x")])
    done = evaluation(tmp_path, {"x": x, "label": np.zeros(4, np.int64)}, graph=graph)
    with pytest.raises(AccuracyError, match=r"2 of 4 samples are NaN, .* of sample 1;") as caught:
        run(done)
    assert caught.value.where == "recipe.yaml:8:1"


def test_nan_samples_are_refused(tmp_path: Path) -> None:
    x = samples(5)
    x[1:3] = np.nan
    done = evaluation(tmp_path, {"x": x, "label": np.zeros(5, np.int64)})
    with pytest.raises(AccuracyError, match=r"2 of 5 samples of 'x' are NaN .* sample 1") as caught:
        run(done)
    assert caught.value.where == "recipe.yaml:8:1"


@pytest.mark.parametrize(
    ("label", "message", "hint"),
    [
        (
            [0, 12, 2, 3],
            "2 of 4 labels 'label' .* 3 classes, 0 to 2: .* is 12, of sample 1",
            "whole",
        ),
        ([0, 1, -1, 2], "1 of 4 .* the first is -1, of sample 2", "whole numbers from 0"),
        ([1, 3, 2, 1], "1 of 4 .* the first is 3, of sample 1", "count from 1: save labels - 1"),
        (np.eye(4, 3)[[0, 1, 2, 0]], r"one-hot, of shape \[4, 3\]", "labels.argmax"),
        ([0.5, 1, 0, 1], "are float64, not the numbers of classes, and have fractions", "whole"),
        ([np.nan, 1, 0, 1], "are float64, not the numbers of classes, and have NaN", "whole"),
    ],
)
def test_invalid_labels_are_reported(tmp_path: Path, label: Any, message: str, hint: str) -> None:
    done = evaluation(tmp_path, {"x": samples(4), "label": np.asarray(label)})
    with pytest.raises(AccuracyError, match=message) as caught:
        run(done)
    assert re.search(hint, caught.value.hint)
    assert caught.value.where == "recipe.yaml:8:1"


def test_dtype_of_another_input_than_a_placeholder_is_inferred(tmp_path: Path) -> None:
    arrays = {"product": np.eye(3), "label": np.arange(3)}
    assert top1(tmp_path, arrays, inputs=("product",)) == 1


@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_labels_may_have_axes_of_size_one(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = samples(5)
    assert top1(tmp_path, {"x": x, "label": x.argmax(axis=1).reshape(shape)}) == 1


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32])
def test_numeric_dtypes_are_converted(tmp_path: Path, kind: type) -> None:
    x = np.array([[3, 1, 2], [1, 2, 3]]).astype(kind)
    assert top1(tmp_path, {"x": x, "label": np.array([0, 2])}) == 1


X, LABEL = samples(4), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "lable": LABEL}, r"data/test\.npz has no array 'label'; it has lable, x"),
        ({"X": X, "label": LABEL}, r"data/test\.npz has no array 'x'; it has X, label"),
        ({}, "it has none"),
        ({"x": X, "label": LABEL[:3]}, "3 labels, and x has 4"),
        ({"x": X[:3], "label": LABEL}, "4 labels, and x has 3"),
        ({"x": X[:0], "label": LABEL[:0]}, "0 labels, and x has 0"),
        ({"x": np.float32(1), "label": LABEL}, "4 labels, and x has 0"),
        ({"x": X, "label": np.ones((4, 4), np.int64)}, "16 labels, and y has 4"),
        ({"x": X, "label": LABEL.astype(float)}, "the labels 'label' are float64"),
        ({"x": X, "label": np.array(["a"] * 4)}, "the labels 'label' are <U1"),
        ({"x": X[:, :2], "label": LABEL}, r"takes the shape \[\?, 3\], and the array has \[4, 2\]"),
        (
            {"x": X.astype(complex), "label": LABEL},
            "'x' takes float32, and the array is complex128",
        ),
        ({"x": X.astype("U3"), "label": LABEL}, "'x' takes float32, and the array is text"),
    ],
)
def test_mismatched_data_is_reported(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(AccuracyError, match=message) as caught:
        run(evaluation(tmp_path, arrays))
    assert caught.value.where in ("recipe.yaml:8:1", "data/test.npz")


def test_input_may_be_a_tensor_name(tmp_path: Path) -> None:
    assert top1(tmp_path, {"x:0": X, "label": X.argmax(axis=1)}, inputs=("x:0",)) == 1


def test_model_without_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="no inputs are named"):
        run(evaluation(tmp_path, {"label": LABEL}, inputs=()))


def test_single_score_is_refused(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, 1)), op("y", "Relu", "x")])
    with pytest.raises(AccuracyError, match="a score for each class") as caught:
        run(evaluation(tmp_path, {"x": X[:, :1], "label": LABEL}, graph=graph))
    assert caught.value.where == "recipe.yaml:5:1"


def test_unsupported_op_is_named(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, 3)), op("y", "NoSuchOp", "x")])
    with pytest.raises(UnsupportedError, match="NoSuchOp"):
        run(evaluation(tmp_path, {"x": X, "label": LABEL}, graph=graph))


def test_outputs_of_every_dtype_are_stored(tmp_path: Path) -> None:
    graph = classifier()
    cast: dict[str, Any] = {"SrcT": attr.dtype(DType.FLOAT), "Truncate": attr.boolean(False)}
    more = [
        Node("half", "Cast", (parse_ref("y"),), attrs={**cast, "DstT": attr.dtype(DType.BFLOAT16)}),
        Node("whole", "Cast", (parse_ref("y"),), attrs={**cast, "DstT": attr.dtype(DType.INT32)}),
        Node("words", "Identity", (parse_ref("text"),), attrs={"T": attr.dtype(DType.STRING)}),
        placeholder((-1,), DType.STRING, "text"),
    ]
    graph = graph.with_nodes([*graph.nodes, *more])
    words = np.array([b"a", b"bcd", b"", b"e"])
    done = evaluation(
        tmp_path,
        {"x": X, "label": LABEL, "text": words},
        graph=graph,
        outputs=("y", "half", "whole", "words"),
        inputs=("x", "text"),
    )
    run(done)
    ((count, outputs),) = KeptOutputs(done.folder / "outputs.npz", 4).each_batch()
    assert count == 4
    assert outputs[1].dtype == np.float32
    assert outputs[2].dtype == np.int32
    assert outputs[3].tolist() == words.tolist()


def test_tables_are_initialized_from_asset_files(tmp_path: Path) -> None:
    types = {"key_dtype": attr.dtype(DType.STRING), "value_dtype": attr.dtype(DType.INT64)}
    file = constant("file", Tensor.of(np.array(b"words.txt", dtype=object)))
    whole, number = attr.integer(-2), attr.integer(-1)
    fill = Node(
        "fill",
        "InitializeTableFromTextFileV2",
        (parse_ref("table"), parse_ref("file")),
        attrs={"key_index": whole, "value_index": number},
    )
    looked_up = tuple(map(parse_ref, ("table", "x", "none")))
    find = {"Tin": attr.dtype(DType.STRING), "Tout": attr.dtype(DType.INT64)}
    rows = {"Tindices": attr.dtype(DType.INT64), "Tparams": attr.dtype(DType.FLOAT)}
    graph = Graph(
        [
            placeholder((-1,), DType.STRING, "x"),
            Node("table", "HashTableV2", attrs=types),
            file,
            fill,
            constant("none", Tensor.of(np.array(-1, np.int64))),
            Node("ids", "LookupTableFindV2", looked_up, attrs=find),
            constant("scores", Tensor.of(np.eye(3, dtype=np.float32))),
            Node("y", "Gather", (parse_ref("scores"), parse_ref("ids")), attrs=rows),
        ]
    )
    words = np.array([b"no", b"up", b"yes", b"no"])
    arrays = {"x": words, "label": np.array([1, 2, 0, 1])}
    assert top1(tmp_path, arrays, graph=graph, words_txt=b"yes\nno\nup\n") == 1

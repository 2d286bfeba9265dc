"""The evaluate stage: batches, metrics, and invalid data."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.plan.engines import EngineChoice
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.run import (
    KeptOutputs,
    each_pair,
    evaluated,
    kept_outputs,
    run,
)
from mobileprep.building.stages.evaluate.spec import EvaluateStage, MeasuredMetric
from mobileprep.data.source import Batch, Unread
from mobileprep.data.survey import runs
from mobileprep.errors import AccuracyError, CorruptFileError, UnsupportedError
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


MEASURING_X = np.random.default_rng(0).standard_normal((150, 3)).astype(np.float32)
MEASURING_LABEL = MEASURING_X.argmax(axis=1)


def measuring_evaluation(
    folder: Path, arrays: dict[str, Any], *metrics: MeasuredMetric, code: str = ""
) -> Job[EvaluateStage]:
    write_arrays(folder / "test.npz", arrays)
    (folder / "metric.py").write_text(code)
    graph = classifier()
    graph = Graph([*graph.nodes, op("z", "Neg", "y")])
    stored = {
        "graph": graph,
        "interface": interface("y", "z"),
        "assets": assets(folder),
    }
    stage = EvaluateStage(
        data=files(folder / "test.npz", "data/test.npz"),
        metrics=metrics,
        functions={"metric m.py": files(folder / "metric.py", "m.py")},
        engine=NUMPY,
        **slots(*stored),
    )
    return job(folder, stage, **stored)


def test_each_metric_has_its_own_output_and_labels(tmp_path: Path) -> None:
    done = measuring_evaluation(
        tmp_path,
        {"x": MEASURING_X, "label": MEASURING_LABEL, "target": -MEASURING_X - 1},
        MeasuredMetric(metric="top1"),
        MeasuredMetric(metric="mean_squared_error", outputs=("z:0",), labels="target"),
        MeasuredMetric(metric="agreement", labels=None),
        MeasuredMetric(metric="score", python="metric m.py", outputs=()),
        code="def score(outputs, labels):\n    return len(outputs['z']) + len(labels)\n",
    )
    run(done)
    top1, error, agreement, own = json_output(done, "evaluation.json")["metrics"]
    assert top1 == {"metric": "top1", "outputs": ["y"], "value": 1.0, "classes": 3}
    assert (error["outputs"], error["value"]) == (["z"], pytest.approx(1, abs=1e-6))
    assert agreement == {"metric": "agreement", "outputs": [], "value": None, "classes": None}
    assert own == {"metric": "score", "outputs": ["y"], "value": 300.0, "classes": None}


@pytest.mark.parametrize(
    ("arrays", "metric", "warned"),
    [
        ({"x": MEASURING_X, "label": MEASURING_LABEL}, "top1", False),
        ({"x": MEASURING_X}, "agreement", True),
        ({"x": MEASURING_X, "weights": MEASURING_X}, "agreement", True),
    ],
)
def test_default_metric_depends_on_labels(
    tmp_path: Path, arrays: dict[str, Any], metric: str, warned: bool
) -> None:
    done = measuring_evaluation(
        tmp_path, arrays, MeasuredMetric(metric="auto", labels_needed=False)
    )
    run(done)
    record = json_output(done, "evaluation.json")
    assert [m["metric"] for m in record["metrics"]] == [metric]
    assert ["without labels" in warning for warning in record["warnings"]] == [True] * warned


def test_misspelled_labels_are_refused(tmp_path: Path) -> None:
    automatic = MeasuredMetric(metric="auto", labels_needed=False)
    with pytest.raises(AccuracyError, match="no array 'label'; it has labels, x") as caught:
        run(
            measuring_evaluation(tmp_path, {"x": MEASURING_X, "labels": MEASURING_LABEL}, automatic)
        )
    assert caught.value.hint == "did you mean 'labels'?"


def test_unknown_output_suggests_the_nearest_name(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="top1", outputs=("zz",), place="recipe.yaml:7:7")
    with pytest.raises(AccuracyError, match="the model has no output 'zz'; it has y, z") as caught:
        run(measuring_evaluation(tmp_path, {"x": MEASURING_X, "label": MEASURING_LABEL}, metric))
    assert (caught.value.hint, caught.value.where) == ("did you mean 'z'?", "recipe.yaml:7:7")


def test_labels_of_a_function_may_be_none(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="score", python="metric m.py", labels_needed=False)
    code = "def score(outputs, labels):\n    return labels is None\n"
    done = measuring_evaluation(tmp_path, {"x": MEASURING_X}, metric, code=code)
    run(done)
    assert json_output(done, "evaluation.json")["metrics"][0]["value"] == 1.0


def test_error_of_a_function_is_reported_with_its_line(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="score", python="metric m.py")
    code = "def score(outputs, labels):\n    return outputs['gone']\n"
    with pytest.raises(AccuracyError, match="KeyError: 'gone'") as caught:
        run(
            measuring_evaluation(
                tmp_path, {"x": MEASURING_X, "label": MEASURING_LABEL}, metric, code=code
            )
        )
    assert caught.value.where == f"{tmp_path / 'metric.py'}:2"


def test_samples_are_numbered_across_batches(tmp_path: Path) -> None:
    label = MEASURING_LABEL.copy()
    label[140] = 9
    with pytest.raises(AccuracyError, match="the first is 9, of sample 140"):
        run(
            measuring_evaluation(
                tmp_path, {"x": MEASURING_X, "label": label}, MeasuredMetric(metric="top1")
            )
        )


def test_outputs_are_read_back_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "outputs.npz"
    with kept_outputs(path) as keep:
        for size in (2, 11, 0):
            keep([np.arange(size), np.float32(size)], size)
    batches = list(KeptOutputs(path, 2).each_batch())
    assert [(count, a.tolist(), b.item()) for count, (a, b) in batches] == [
        (2, [0, 1], 2.0),
        (11, list(range(11)), 11.0),
        (0, [], 0.0),
    ]


def test_failure_stores_no_outputs(tmp_path: Path) -> None:
    path = tmp_path / "outputs.npz"
    with pytest.raises(AccuracyError), kept_outputs(path) as keep:
        keep([np.zeros(3)], 3)
        raise AccuracyError
    assert not path.exists()
    with pytest.raises(CorruptFileError):
        list(KeptOutputs(path, 1).each_batch())


def test_memory_does_not_grow_with_the_batches(tmp_path: Path) -> None:
    path, batch = tmp_path / "outputs.npz", np.zeros((64, 1000))

    def peak(count: int) -> int:
        tracemalloc.start()
        with kept_outputs(path) as keep:
            for _ in range(count):
                keep([batch], len(batch))
        for _ in KeptOutputs(path, 1).each_batch():
            pass
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return allocated

    # Only the names of entries remain in memory.
    assert peak(40) < peak(4) + batch.nbytes / 2


@pytest.mark.parametrize("sizes", [(64, 1), (1, 64), (64, 100), (7, 3), (64, 64), (200, 1)])
def test_outputs_of_different_batch_sizes_are_paired(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """Transforms such as strip_unused_nodes may fix the batch size."""
    samples = 130
    values = np.arange(samples * 2).reshape(samples, 2)
    stored = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.npz"
        with kept_outputs(path) as keep:
            for at in range(0, samples, size):
                few = values[at : at + size]
                keep([few, np.float32(1)], len(few))
        stored.append(KeptOutputs(path, 2))
    seen = 0
    for count, (pair, of_batch) in each_pair(*stored):
        assert pair is not None
        assert [array.tolist() for array in pair] == [values[seen : seen + count].tolist()] * 2
        assert (of_batch is not None) == (min(sizes[0], samples) == min(sizes[1], samples))
        seen += count
    assert seen == samples

"""The evaluate stage: batches, metrics, and data that does not fit."""

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
    left,
    op,
    placeholder,
    slots,
)


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)


def evaluate(graph: Graph, feeds: dict[str, np.ndarray], fetches: list[str]) -> list[Any]:
    """What the interpreter gives for each output, joined where there is an entry a sample."""
    engine = open_engine("numpy", graph, None, where="d")
    given = runs(Arrays("d", feeds), fed_tensors(graph, feeds), 64)
    ran = list(evaluated(engine, given, fetches))
    assert [r.first for r in ran] == list(range(0, sum(r.count for r in ran), ran[0].count))
    columns = list(zip(*(r.outputs for r in ran), strict=True))
    is_each = [
        all(np.shape(p)[:1] == (r.count,) for p, r in zip(c, ran, strict=True)) for c in columns
    ]
    return [
        np.concatenate(c) if each else list(c) for c, each in zip(columns, is_each, strict=True)
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
    **read: bytes,
) -> Job[EvaluateStage]:
    write_arrays(folder / "test.npz", arrays)
    stored = {
        "graph": graph or classifier(),
        "interface": interface(*outputs, inputs=inputs),
        "assets": assets(folder, **read),
    }
    asked = EvaluateStage(
        data=files(folder / "test.npz", "data/test.npz"),
        metrics=metrics,
        functions=functions or {},
        engine=engine,
        **slots(*stored),
    )
    return job(folder, asked, **stored)


def top1(done: Job[EvaluateStage]) -> float:
    (metric,) = left(done, "evaluation.json")["metrics"]
    return metric["value"]


def test_outputs_and_share_of_hits_are_left(tmp_path: Path) -> None:
    x = samples(200)
    label = x.argmax(axis=1)
    label[:50] = (label[:50] + 1) % 3
    done = evaluation(tmp_path, {"x": x, "label": label})
    run(done)
    assert left(done, "evaluation.json") == {
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
    kept = list(KeptOutputs(done.folder / "outputs.npz", 1).each_batch())
    assert [(count, len(batch)) for count, (batch,) in kept] == [(64, 64)] * 3 + [(8, 8)]
    assert np.concatenate([batch for _, (batch,) in kept]).tolist() == x.tolist()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 63, 64, 65, 200])
@pytest.mark.parametrize("batch", [-1, 1, 8, 100])
def test_any_number_of_samples_fits_any_batch(count: int, batch: int) -> None:
    x = samples(count)
    (found,) = evaluate(classifier(batch), {"x": x}, ["y"])
    assert found.tolist() == x.tolist()


def test_a_fixed_batch_is_fed_whole_and_others_are_not_filled_up() -> None:
    for batch, sizes in ((8, [8, 8, 8]), (-1, [20])):
        graph = classifier(batch)
        count = Node("n", "Shape", (parse_ref("x"),), attrs={"T": attr.dtype(DType.FLOAT)})
        graph = graph.with_nodes([*graph.nodes, count])
        _, shapes = evaluate(graph, {"x": samples(20)}, ["y", "n"])
        assert np.stack(shapes).tolist() == [[n, 3] for n in sizes]


@pytest.mark.parametrize("fetch", ["mean", "row", "total"])
def test_a_first_output_without_an_entry_a_sample_is_refused(tmp_path: Path, fetch: str) -> None:
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
    # Beside one that has, it is kept for the comparison, an entry a batch.
    y, other = evaluate(graph, {"x": samples(130)}, ["y", fetch])
    assert (len(y), len(other)) == (130, 3)


def test_scores_that_are_nan_are_no_accuracy(tmp_path: Path) -> None:
    x = np.array([[3, 1, 2], [np.nan, 1, 2], [3, 1, 2], [3, np.nan, 2]], np.float32)
    graph = Graph([placeholder((-1, 3)), op("y", "Identity", "x")])
    done = evaluation(tmp_path, {"x": x, "label": np.zeros(4, np.int64)}, graph=graph)
    with pytest.raises(AccuracyError, match=r"2 of 4 samples are NaN, .* of sample 1;") as caught:
        run(done)
    assert caught.value.where == "recipe.yaml:8:1"


def test_samples_without_a_number_are_named(tmp_path: Path) -> None:
    x = samples(5)
    x[1:3] = np.nan
    done = evaluation(tmp_path, {"x": x, "label": np.zeros(5, np.int64)})
    with pytest.raises(AccuracyError, match=r"2 of 5 samples of 'x' are NaN .* sample 1") as caught:
        run(done)
    assert caught.value.where == "recipe.yaml:8:1"


@pytest.mark.parametrize(
    ("label", "told", "hint"),
    [
        (
            [0, 12, 2, 3],
            "2 of 4 labels 'label' .* 3 classes, 0 to 2: .* is 12, of sample 1",
            "whol",
        ),
        ([0, 1, -1, 2], "1 of 4 .* the first is -1, of sample 2", "whole numbers from 0"),
        ([1, 3, 2, 1], "1 of 4 .* the first is 3, of sample 1", "count from 1: save labels - 1"),
        (np.eye(4, 3)[[0, 1, 2, 0]], r"one-hot, of shape \[4, 3\]", "labels.argmax"),
        ([0.5, 1, 0, 1], "are float64, not the numbers of classes, and have fractions", "whole"),
        ([np.nan, 1, 0, 1], "are float64, not the numbers of classes, and have NaN", "whole"),
    ],
)
def test_labels_that_are_no_classes_are_told(
    tmp_path: Path, label: Any, told: str, hint: str
) -> None:
    done = evaluation(tmp_path, {"x": samples(4), "label": np.asarray(label)})
    with pytest.raises(AccuracyError, match=told) as caught:
        run(done)
    assert re.search(hint, caught.value.hint)
    assert caught.value.where == "recipe.yaml:8:1"


def test_an_output_for_each_pixel_is_no_score_a_class(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, 2, 2, 3)), op("y", "Relu", "x")])
    x = np.arange(48, dtype=np.float32).reshape(4, 2, 2, 3)
    with pytest.raises(AccuracyError, match=r"a score for each class, .* \[4, 2, 2, 3\]"):
        run(evaluation(tmp_path, {"x": x, "label": LABEL}, graph=graph))


def test_an_input_that_is_no_placeholder_takes_its_type_from_its_op(tmp_path: Path) -> None:
    x = np.eye(3)
    done = evaluation(tmp_path, {"product": x, "label": np.arange(3)}, inputs=("product",))
    run(done)
    assert top1(done) == 1


@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_labels_may_have_axes_of_one(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = samples(5)
    done = evaluation(tmp_path, {"x": x, "label": x.argmax(axis=1).reshape(shape)})
    run(done)
    assert top1(done) == 1


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32])
def test_numbers_of_another_width_are_converted(tmp_path: Path, kind: type) -> None:
    x = np.array([[3, 1, 2], [1, 2, 3]]).astype(kind)
    done = evaluation(tmp_path, {"x": x, "label": np.array([0, 2])})
    run(done)
    assert top1(done) == 1


X, LABEL = samples(4), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("arrays", "told"),
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
def test_data_that_does_not_fit_is_told(
    tmp_path: Path, arrays: dict[str, np.ndarray], told: str
) -> None:
    with pytest.raises(AccuracyError, match=told) as caught:
        run(evaluation(tmp_path, arrays))
    assert caught.value.where in ("recipe.yaml:8:1", "data/test.npz")


def test_a_misspelt_array_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(evaluation(tmp_path, {"x": X, "lable": LABEL}))
    assert caught.value.hint == "did you mean 'lable'?"


def test_an_input_is_found_by_tensor_name_too(tmp_path: Path) -> None:
    done = evaluation(tmp_path, {"x:0": X, "label": X.argmax(axis=1)}, inputs=("x:0",))
    run(done)
    assert top1(done) == 1


def test_without_inputs_there_is_nothing_to_feed(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match="no inputs are named"):
        run(evaluation(tmp_path, {"label": LABEL}, inputs=()))


def test_one_score_is_no_ranking(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, 1)), op("y", "Relu", "x")])
    with pytest.raises(AccuracyError, match="a score for each class") as caught:
        run(evaluation(tmp_path, {"x": X[:, :1], "label": LABEL}, graph=graph))
    assert caught.value.where == "recipe.yaml:5:1"


def test_an_op_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, 3)), op("y", "NoSuchOp", "x")])
    with pytest.raises(UnsupportedError, match="NoSuchOp"):
        run(evaluation(tmp_path, {"x": X, "label": LABEL}, graph=graph))


def test_every_type_of_output_can_be_kept(tmp_path: Path) -> None:
    graph = classifier()
    cast: dict[str, Any] = {"SrcT": attr.dtype(DType.FLOAT), "Truncate": attr.boolean(False)}
    text = placeholder((-1,), DType.STRING, "text")
    more = [
        Node("half", "Cast", (parse_ref("y"),), attrs={**cast, "DstT": attr.dtype(DType.BFLOAT16)}),
        Node("whole", "Cast", (parse_ref("y"),), attrs={**cast, "DstT": attr.dtype(DType.INT32)}),
        Node("words", "Identity", (parse_ref("text"),), attrs={"T": attr.dtype(DType.STRING)}),
        text,
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
    ((count, kept),) = KeptOutputs(done.folder / "outputs.npz", 4).each_batch()
    assert count == 4
    assert kept[1].dtype == np.float32
    assert kept[2].dtype == np.int32
    assert kept[3].tolist() == words.tolist()


def test_text_is_no_score(tmp_path: Path) -> None:
    graph = Graph(
        [
            placeholder((-1, 2), DType.STRING),
            Node("y", "Identity", (parse_ref("x"),), attrs={"T": attr.dtype(DType.STRING)}),
        ]
    )
    arrays = {"x": np.array([[b"a", b"b"]] * 4), "label": LABEL}
    with pytest.raises(AccuracyError, match="a score for each class"):
        run(evaluation(tmp_path, arrays, graph=graph))


def test_tables_are_filled_from_the_model_s_own_files(tmp_path: Path) -> None:
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
    done = evaluation(
        tmp_path,
        {"x": words, "label": np.array([1, 2, 0, 1])},
        graph=graph,
        words_txt=b"yes\nno\nup\n",
    )
    run(done)
    assert top1(done) == 1

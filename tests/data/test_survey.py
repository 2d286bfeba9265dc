"""Doubts about a whole data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mobileprep.data.source import Batch, DataFiles
from mobileprep.data.survey import DataSurvey, runs
from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.runtime.sampling.inputs import FedTensor
from tests.building.stages.jobs import op, placeholder
from tests.data.made import fed, opened

SHAPE = (-1, 16, 16, 1)


def photos(count: int, seed: int = 0) -> Array:
    """Images whose neighboring pixels are alike, from 0 to 1."""
    noise = np.random.default_rng(seed).random((count, 19, 19, 1))
    smooth = sum(noise[:, i : i + 16, j : j + 16] for i in range(4) for j in range(4)) / 16
    return smooth.astype(np.float32)


def survey_of(*arrays: Array, rotated: Sequence[str] = (), name: str = "x") -> DataSurvey:
    survey = DataSurvey("d")
    for array in arrays:
        names = tuple(f"sample {at}" for at in range(len(array)))
        survey.look(Batch({name: array}, None, names, tuple(rotated)))
    return survey


def doubts(*arrays: Array) -> list[str]:
    return list(survey_of(*arrays).calibration_doubts())


def test_good_samples_are_not_doubted() -> None:
    assert doubts(photos(20)) == []
    assert doubts(photos(6), photos(6, seed=1)) == []
    assert doubts(np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32)) == []


@pytest.mark.parametrize(("count", "message"), [(1, "1 sample;"), (4, "4 samples;"), (10, "")])
def test_few_samples_are_a_doubt(count: int, message: str) -> None:
    messages = doubts(photos(count))
    assert len(messages) == bool(message)
    assert all(f"d: the ranges are those of {message}" in text for text in messages)


def test_duplicates_are_a_doubt() -> None:
    one = photos(1)
    (doubt,) = doubts(np.repeat(one, 8, axis=0))
    assert doubt.startswith("d: only 1 of 8 samples are distinct, so the ranges are those of 1;")
    half = np.concatenate([photos(10), photos(10)])
    assert len(doubts(half)) == 1
    # A few duplicates are common.
    assert doubts(np.concatenate([photos(20), photos(3)])) == []


def test_duplicate_strings_are_a_doubt() -> None:
    (doubt,) = doubts(np.array([b"a"] * 12, object))
    assert "only 1 of 12" in doubt


def test_noise_is_a_doubt() -> None:
    noise = np.random.default_rng(2).random((20, 16, 16, 3)).astype(np.float32)
    (doubt,) = doubts(noise)
    assert "the images look like noise, because neighboring pixels correlate by " in doubt
    assert len(doubts(np.moveaxis(noise, 3, 1))) == 1


def test_only_images_are_checked_for_noise() -> None:
    draw = np.random.default_rng(2)
    assert doubts(draw.random((20, 16, 16)).astype(np.float32)) == []
    assert doubts(draw.random((20, 16, 16, 8)).astype(np.float32)) == []
    assert doubts(draw.random((20, 4, 4, 3)).astype(np.float32)) == []


def test_images_with_infinity_are_not_checked_for_noise() -> None:
    broken = photos(20)
    broken[3, 0, 0, 0] = np.inf
    broken[4, 0, 0, 0] = np.nan
    survey = survey_of(broken)
    assert list(survey.calibration_doubts()) == []
    assert survey.ends["x"] == (broken[np.isfinite(broken)].min(), np.inf)


def test_merged_surveys_match_the_whole() -> None:
    parts = [photos(12, seed=seed) for seed in range(3)]
    whole, sum_of = survey_of(*parts), survey_of(parts[0])
    for part in parts[1:]:
        sum_of.merge(survey_of(part))
    assert sum_of.digests == whole.digests
    assert sum_of.ends == whole.ends
    assert sum_of.likeness == pytest.approx(whole.likeness)


def network(*, scaled: bool = False, limits: tuple[float, float] | None = None) -> Graph:
    """A convolution of an image that may first be scaled to -1 and 1 or fake quantized."""
    nodes = [placeholder(SHAPE)]
    last = "x"
    if scaled:
        half = constant("half", Tensor.of(np.float32(127.5)))
        one = constant("one", Tensor.of(np.float32(1)))
        nodes += [half, op("over", "RealDiv", "x", "half"), one, op("scaled", "Sub", "over", "one")]
        last = "scaled"
    if limits is not None:
        attrs = {"min": attr.floating(limits[0]), "max": attr.floating(limits[1])}
        nodes.append(op("fake", "FakeQuantWithMinMaxArgs", last, **attrs))
        last = "fake"
    nodes.append(constant("w", Tensor.of(np.ones((3, 3, 1, 2), np.float32))))
    attrs = {"strides": attr.integers(1, 1, 1, 1), "padding": attr.string("SAME")}
    return Graph([*nodes, op("y", "Conv2D", last, "w", **attrs)])


@pytest.mark.parametrize(
    ("graph", "scale", "expected"),
    [
        (network(limits=(0, 1)), 255, "0 to 1 (the graph states it)"),
        (network(limits=(-1, 1)), 255, "-1 to 1 (the graph states it)"),
        (network(scaled=True), 1, "0 to 255 (the first operations scale it so)"),
        (network(limits=(0, 1)), 1, ""),
        (network(scaled=True), 255, ""),
        (network(), 255, ""),
        (network(), 1, ""),
    ],
)
def test_values_on_another_scale_than_the_graph_are_a_doubt(
    graph: Graph, scale: float, expected: str
) -> None:
    survey = survey_of(photos(12) * np.float32(scale))
    messages = list(survey.doubts(graph, [fed(SHAPE)]))
    assert len(messages) == bool(expected)
    for text in messages:
        assert "d: the input 'x' is fed values from " in text
        assert f"and the graph expects {expected}; look at the scale" in text


def test_unscaled_bytes_are_a_doubt() -> None:
    images = photos(12)
    images[0, 0, 0, 0] = 1
    inputs = [fed(SHAPE)]
    (doubt,) = survey_of(images * 255).unscaled(network(), inputs)
    assert doubt.startswith("the input 'x' is fed ")
    assert list(survey_of(images * 255).unscaled(network(scaled=True), inputs)) == []
    assert list(survey_of(images).unscaled(network(), inputs)) == []


def test_rotated_images_are_a_doubt() -> None:
    survey = survey_of(photos(12), rotated=("a.jpg", "b.jpg"))
    (doubt,) = survey.doubts(network(), [fed(SHAPE)])
    assert "d: 2 of 12 images have an EXIF orientation, such as a.jpg; it is ignored" in doubt


X = np.arange(15, dtype=np.float32).reshape(5, 3)


def of(folder: Path, inputs: list[FedTensor], size: int = 2, **arrays: Array):
    np.savez(folder / "d.npz", **arrays)
    labels = "label" if "label" in arrays else None
    return list(runs(opened(DataFiles("d", folder / "d.npz"), inputs, labels=labels), inputs, size))


def test_open_batches_have_the_requested_size(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((-1, 3))], x=X, label=np.arange(5))
    assert [(run.count, run.fed) for run in batches] == [(2, 2), (2, 2), (1, 1)]
    assert [run.labels.tolist() for run in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1].names == ("sample 2", "sample 3")


def test_fixed_batches_are_padded(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((4, 3))], x=X)
    assert [(run.count, run.fed) for run in batches] == [(4, 4), (1, 4)]
    assert batches[1].feeds["x"].tolist() == [X[4].tolist()] * 4


def test_input_without_a_batch_axis_gets_one_sample_a_run(tmp_path: Path) -> None:
    batches = of(tmp_path, [fed((3,)), fed((-1, 2), name="y")], x=X, y=np.ones((5, 2)) * 2)
    assert len(batches) == 5
    assert (batches[3].feeds["x"].tolist(), batches[3].feeds["y"].shape) == (X[3].tolist(), (1, 2))


def test_scalar_with_one_value_is_fed_once_per_batch(tmp_path: Path) -> None:
    inputs = [fed((-1, 3)), fed((), name="keep")]
    batches = of(tmp_path, inputs, x=X, keep=np.ones(5))
    assert [run.feeds["keep"].shape for run in batches] == [(), (), ()]
    assert [run.count for run in batches] == [2, 2, 1]
    batches = of(tmp_path, inputs, x=X, keep=np.arange(5))
    assert [float(run.feeds["keep"]) for run in batches] == [0, 1, 2, 3, 4]


def test_head_limits_the_samples_of_a_run(tmp_path: Path) -> None:
    (run,) = of(tmp_path, [fed((-1, 3)), fed((), name="k")], size=5, x=X, k=np.ones(5))
    head = run.head(2)
    assert (head.count, head.feeds["x"].shape, head.feeds["k"].shape) == (2, (2, 3), ())
    (whole, _) = of(tmp_path, [fed((4, 3))], x=X)
    assert whole.head(2) is whole


def test_nan_samples_are_reported(tmp_path: Path) -> None:
    x = X.copy()
    x[3] = np.nan
    x[0, 0] = np.nan
    with pytest.raises(AccuracyError, match=r"1 of 2 samples of 'x' are NaN .* of them sample 3"):
        of(tmp_path, [fed((-1, 3))], x=x)


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_constant_data_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(AccuracyError, match=f"d: all samples hold one value: 'x' is {value:g} thr"):
        of(tmp_path, [fed((-1, 3))], x=np.full((5, 3), value))


def test_constant_input_with_varying_inputs_is_accepted(tmp_path: Path) -> None:
    assert of(tmp_path, [fed((-1, 3)), fed((-1,), name="k")], x=X, k=np.ones(5))
    assert of(tmp_path, [fed((-1,))], x=np.ones(1))
    assert of(tmp_path, [fed((-1,), DType.STRING)], x=np.array(["a", "a"]))

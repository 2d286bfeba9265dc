"""Doubts about a whole data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mobileprep.data.source import Batch
from mobileprep.data.survey import DataSurvey
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from tests.building.stages.jobs import op, placeholder
from tests.data.made import fed

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

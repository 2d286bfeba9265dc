"""What samples as a whole show to be doubtful."""

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
    """Pictures whose neighboring pixels are alike, from 0 to 1."""
    noise = np.random.default_rng(seed).random((count, 19, 19, 1))
    smooth = sum(noise[:, i : i + 16, j : j + 16] for i in range(4) for j in range(4)) / 16
    return smooth.astype(np.float32)


def surveyed(*arrays: Array, rotated: Sequence[str] = (), name: str = "x") -> DataSurvey:
    survey = DataSurvey("d")
    for array in arrays:
        names = tuple(f"sample {at}" for at in range(len(array)))
        survey.look(Batch({name: array}, None, names, tuple(rotated)))
    return survey


def doubts(*arrays: Array) -> list[str]:
    return list(surveyed(*arrays).calibration_doubts())


def test_good_samples_leave_no_doubt() -> None:
    assert doubts(photos(20)) == []
    assert doubts(photos(6), photos(6, seed=1)) == []
    assert doubts(np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32)) == []


@pytest.mark.parametrize(("count", "told"), [(1, "1 sample;"), (4, "4 samples;"), (10, "")])
def test_few_samples_are_a_doubt(count: int, told: str) -> None:
    found = doubts(photos(count))
    assert len(found) == bool(told)
    assert all(f"d: the ranges are those of {told}" in text for text in found)


def test_copies_are_a_doubt() -> None:
    one = photos(1)
    (found,) = doubts(np.repeat(one, 8, axis=0))
    assert found.startswith("d: only 1 of 8 samples are distinct, so the ranges are those of 1;")
    half = np.concatenate([photos(10), photos(10)])
    assert len(doubts(half)) == 1
    # Some data has a few twins.
    assert doubts(np.concatenate([photos(20), photos(3)])) == []


def test_copies_of_texts_are_a_doubt() -> None:
    (found,) = doubts(np.array([b"a"] * 12, object))
    assert "only 1 of 12" in found


def test_noise_is_a_doubt() -> None:
    noise = np.random.default_rng(2).random((20, 16, 16, 3)).astype(np.float32)
    (found,) = doubts(noise)
    assert "the images look like noise, because neighboring pixels correlate by " in found
    assert len(doubts(np.moveaxis(noise, 3, 1))) == 1


def test_what_is_no_picture_is_not_noise() -> None:
    draw = np.random.default_rng(2)
    assert doubts(draw.random((20, 16, 16)).astype(np.float32)) == []
    assert doubts(draw.random((20, 16, 16, 8)).astype(np.float32)) == []
    assert doubts(draw.random((20, 4, 4, 3)).astype(np.float32)) == []


def test_infinity_in_a_picture_is_not_looked_at() -> None:
    broken = photos(20)
    broken[3, 0, 0, 0] = np.inf
    broken[4, 0, 0, 0] = np.nan
    survey = surveyed(broken)
    assert list(survey.calibration_doubts()) == []
    assert survey.ends["x"] == (broken[np.isfinite(broken)].min(), np.inf)


def test_parts_add_up_to_the_whole() -> None:
    parts = [photos(12, seed=seed) for seed in range(3)]
    whole, sum_of = surveyed(*parts), surveyed(parts[0])
    for part in parts[1:]:
        sum_of.merge(surveyed(part))
    assert sum_of.digests == whole.digests
    assert sum_of.ends == whole.ends
    assert sum_of.likeness == pytest.approx(whole.likeness)


def network(*, scaled: bool = False, limits: tuple[float, float] | None = None) -> Graph:
    """A convolution of a picture, which is scaled to -1 and 1, or fake quantized, before."""
    nodes = [placeholder(SHAPE)]
    last = "x"
    if scaled:
        half = constant("half", Tensor.of(np.float32(127.5)))
        one = constant("one", Tensor.of(np.float32(1)))
        nodes += [half, op("over", "RealDiv", "x", "half"), one, op("scaled", "Sub", "over", "one")]
        last = "scaled"
    if limits is not None:
        given = {"min": attr.floating(limits[0]), "max": attr.floating(limits[1])}
        nodes.append(op("fake", "FakeQuantWithMinMaxArgs", last, **given))
        last = "fake"
    nodes.append(constant("w", Tensor.of(np.ones((3, 3, 1, 2), np.float32))))
    given = {"strides": attr.integers(1, 1, 1, 1), "padding": attr.string("SAME")}
    return Graph([*nodes, op("y", "Conv2D", last, "w", **given)])


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
def test_values_of_another_scale_than_the_graph_s_are_a_doubt(
    graph: Graph, scale: float, expected: str
) -> None:
    survey = surveyed(photos(12) * np.float32(scale))
    found = list(survey.doubts(graph, [fed(SHAPE)]))
    assert len(found) == bool(expected)
    for text in found:
        assert "d: the input 'x' is fed values from " in text
        assert f"and the graph expects {expected}; look at the scale" in text


def test_bytes_that_nothing_scales_are_found() -> None:
    pictures = photos(12)
    pictures[0, 0, 0, 0] = 1
    inputs = [fed(SHAPE)]
    (found,) = surveyed(pictures * 255).unscaled(network(), inputs)
    assert found.startswith("the input 'x' is fed ")
    assert list(surveyed(pictures * 255).unscaled(network(scaled=True), inputs)) == []
    assert list(surveyed(pictures).unscaled(network(), inputs)) == []


def test_rotated_pictures_are_a_doubt() -> None:
    survey = surveyed(photos(12), rotated=("a.jpg", "b.jpg"))
    (found,) = survey.doubts(network(), [fed(SHAPE)])
    assert "d: 2 of 12 images have an EXIF orientation, such as a.jpg; it is ignored" in found

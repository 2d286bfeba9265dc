"""Scaling, order of channels, and label offset of a classifier, from labeled images.

The classifiers choose the nearest of some colors, given the scaling that they were made for.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.preprocessing import SCALINGS, PreprocessingFit, Trial, find_preprocessing
from mobileprep.data.source import DataFiles
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import const, node

CLASSES = 12
CHANCE = np.random.default_rng(5)
# Pixels of 0 to 255, which differ in color and in brightness.
COLORS = CHANCE.uniform(10, 245, (CLASSES, 3)).astype(np.float32)


def classifier(colors: np.ndarray, channels: int = 3) -> Graph:
    """Scores of an image [N, 8, 8, channels]: minus the squared distance to each color."""
    placeholder = node("image", "Placeholder", T=None, dtype=DType.FLOAT)
    return Graph(
        [
            placeholder.with_attrs(shape=attr.shape((-1, 8, 8, channels))),
            const("axes", [1, 2], np.int32),
            node("mean", "Mean", "image axes", Tidx=DType.INT32),
            const("w", 2 * colors.T),
            node("product", "MatMul", "mean w"),
            const("b", -(colors * colors).sum(axis=1)),
            node("out", "BiasAdd", "product b"),
        ]
    )


def images(count: int = 64, colors: np.ndarray = COLORS) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of the colors, and their classes, sorted as directories are."""
    chance = np.random.default_rng(1)
    labels = np.sort(np.arange(count) % len(colors))
    noise = chance.normal(0, 8, (count, 8, 8, colors.shape[1]))
    pixels = np.clip(colors[labels][:, None, None] + noise, 0, 255)
    return pixels.astype(np.float32), labels


def found(
    folder: Path, graph: Graph, pixels: np.ndarray, labels: np.ndarray
) -> PreprocessingFit | None:
    np.savez(folder / "data.npz", image=pixels, label=labels)
    data = DataFiles("data.npz", folder / "data.npz")
    return find_preprocessing(graph, ["image"], ["out"], data, "label")


def choice(result: PreprocessingFit | None) -> Trial:
    assert result is not None
    assert result.choice is not None, result.doubt
    return result.choice


@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s.name)
def test_each_combination_is_found(tmp_path, scaling, order):
    colors = COLORS[:, ::-1] if order == "bgr" else COLORS
    colors = scaling.applied(colors, is_reversed=order == "bgr")
    result = found(tmp_path, classifier(colors), *images(120))
    best = choice(result)
    assert (best.scaling.name, best.channels, best.offset) == (scaling.name, order, 0)
    assert best.accuracy > 0.9
    assert len(best.hits) == 64
    assert result.doubt == ""


@pytest.mark.parametrize("first", [1, -1])
def test_classes_that_start_elsewhere_than_labels(tmp_path, first):
    colors = SCALINGS[0].applied(COLORS, is_reversed=False)
    pixels, labels = images()
    background = np.full((1, 3), 9.0, np.float32)
    graph = classifier(np.concatenate([background, colors])) if first > 0 else classifier(colors)
    result = found(tmp_path, graph, pixels, labels + (first < 0))
    assert choice(result).offset == first


def test_values_of_arrays_may_be_scaled_before(tmp_path):
    graph = classifier(SCALINGS[1].applied(COLORS, is_reversed=False))
    pixels, labels = images()
    stored = {"0 to 255": pixels, "0 to 1": pixels / 255, "-1 to 1": pixels / 127.5 - 1}
    for name, values in stored.items():
        result = found(tmp_path, graph, values, labels)
        assert choice(result).scaling.name == "-1 to 1"
        assert result.stored == name


def test_gray_images_do_not_show_the_order_of_channels(tmp_path):
    gray = np.linspace(10, 245, 8, dtype=np.float32)[:, None]
    pixels, labels = images(64, gray)
    graph = classifier(SCALINGS[0].applied(np.repeat(gray, 3, axis=1), is_reversed=False))
    result = found(tmp_path, graph, np.repeat(pixels, 3, axis=3), labels)
    best = choice(result)
    assert (best.scaling.name, best.channels) == ("0 to 1", "rgb")
    assert result.doubt == "the order of channels makes no clear difference"


def test_one_channel(tmp_path):
    gray = np.linspace(10, 245, 8, dtype=np.float32)[:, None]
    graph = classifier(SCALINGS[1].applied(gray, is_reversed=False), channels=1)
    best = choice(found(tmp_path, graph, *images(64, gray)))
    assert (best.scaling.name, best.channels) == ("-1 to 1", "grayscale")


def test_near_chance_there_is_no_choice(tmp_path):
    pixels, labels = images()
    graph = classifier(SCALINGS[0].applied(COLORS, is_reversed=False))
    result = found(tmp_path, graph, pixels, np.random.default_rng(2).permutation(labels))
    assert result is not None
    assert result.choice is None
    assert result.doubt.startswith("no preprocessing is clearly better than chance, which is 0.")


def test_a_constant_prediction_of_the_usual_class_is_chance(tmp_path):
    pixels, labels = images()
    colors = np.full((CLASSES, 3), 1e3, np.float32)
    colors[3] = 0
    result = found(tmp_path, classifier(colors), pixels, np.where(labels < 9, 3, labels))
    assert result is not None
    assert result.choice is None


def test_too_few_samples_are_not_clear(tmp_path):
    pixels, labels = images()
    graph = classifier(SCALINGS[0].applied(COLORS, is_reversed=False))
    result = found(tmp_path, graph, pixels[::16], labels[::16])
    assert result is not None
    assert result.choice is None
    assert result.doubt == "no preprocessing is clearly better than chance, which is 0.250"


def test_scalings_that_predict_alike_are_not_told_apart(tmp_path):
    """Normalizing the mean of an image takes out its scale."""
    graph = classifier(np.eye(3, dtype=np.float32))
    pixels, labels = images(64, np.diag([200.0, 200.0, 200.0]).astype(np.float32) + 20)
    result = found(tmp_path, graph, pixels, labels)
    assert result is not None
    assert result.choice is None
    assert "is not clearly better than" in result.doubt


def test_both_orders_of_a_scaling_do_not_hide_another(tmp_path):
    """Classes that differ in green alone: both orders of a scaling are right."""
    colors = np.full((8, 3), 120, np.float32)
    colors[:, 1] = np.linspace(10, 245, 8)
    graph = classifier(SCALINGS[1].applied(colors, is_reversed=False))
    result = found(tmp_path, graph, *images(64, colors))
    best = choice(result)
    assert (best.scaling.name, best.channels) == ("-1 to 1", "rgb")
    assert result.doubt == "the order of channels makes no clear difference"


def test_labels_out_of_range_are_named(tmp_path):
    pixels, labels = images()
    result = found(tmp_path, classifier(COLORS / 255), pixels, labels + 5)
    assert result is not None
    assert (result.choice, list(result.table())) == (None, [])
    assert result.doubt == "labels are 5 to 16, and the model has 12 classes"


@pytest.mark.parametrize("labels", [np.array(list("abcd")), np.ones(4) / 2])
def test_labels_that_are_not_classes_give_no_result(tmp_path, labels):
    assert found(tmp_path, classifier(COLORS), images()[0][::16], labels) is None


def test_arrays_with_another_scaling_give_no_result(tmp_path):
    pixels, labels = images()
    assert found(tmp_path, classifier(COLORS), pixels - 128, labels) is None


def test_models_of_something_else_give_no_result(tmp_path):
    pixels, labels = images()
    unshaped = node("image", "Placeholder", T=None, dtype=DType.FLOAT)
    assert found(tmp_path, Graph([unshaped, node("out", "Neg", "image")]), pixels, labels) is None
    nodes = [n for n in classifier(COLORS) if n.name != "out"]
    outputs = node("out", "Mean", "product axis", Tidx=DType.INT32)
    one_score = Graph([*nodes, const("axis", [1], np.int32), outputs])
    assert found(tmp_path, one_score, pixels, labels) is None


def test_a_large_model_sees_fewer_samples(tmp_path):
    """Twice 150,000 times 150,000 operations for each image, in a branch that does not run."""
    side = const("side", np.zeros((150_000, 1), np.float32))
    large = node("large", "Placeholder", T=None, dtype=DType.FLOAT)
    large = large.with_attrs(shape=attr.shape((150_000, 150_000)))
    graph = classifier(SCALINGS[0].applied(COLORS, is_reversed=False))
    result = found(
        tmp_path, Graph([*graph, large, side, node("more", "MatMul", "large side")]), *images()
    )
    assert result is not None
    assert len(result.trials[-1].hits) == 4
